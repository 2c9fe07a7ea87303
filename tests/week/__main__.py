"""`make week`: each composition of the bot lives through a week, two at a time; see `tests.week.run`."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.crash.run import ROOT, environment
from tests.week.run import WEEKS

IN_MEMORY = Path("/dev/shm")
"""The disk is not what is tried here."""


def run(name: str, days: float, *spoils: str) -> tuple[str, list[str]]:
    """Run one composition and return what it told of itself, and what was wrong."""
    folder = IN_MEMORY if IN_MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="week-", dir=folder) as made:
        command = [sys.executable, "-W", "ignore", "-m", "tests.week.run", name, str(days), made, *spoils]
        done = subprocess.run(
            command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False
        )
    crashed = [] if done.returncode == 0 else [done.stderr]
    return done.stderr, [*done.stdout.splitlines(), *crashed]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=float, default=7.0)
    parser.add_argument("--only", choices=WEEKS, action="append")
    args = parser.parse_args()

    def tell(name: str) -> bool:
        began = time.monotonic()
        told, wrong = run(name, args.days)
        print(f"{name}, {args.days:g} days in {time.monotonic() - began:.0f} s: {len(wrong)} faults")
        print(told, *wrong, sep="\n", flush=True)
        return not wrong

    with ThreadPoolExecutor(2) as pool:
        return 0 if all(list(pool.map(tell, args.only or WEEKS))) else 1


if __name__ == "__main__":
    sys.exit(main())
