"""``python -m tests.sim --seeds 10000 [--from N]``: prints the first broken promise and its seed, and exits 1."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter

from .run import run_seed

COUNTED = ("messages", "crashes", "calls", "summaries", "questions", "stacked", "plays")


def _kind(fault: str) -> str:
    """Return what a fault is about, without whom it met."""
    return re.sub(r"\S*\d\S*|'.*", "#", fault.partition("\n")[0])[:80]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim")
    parser.add_argument("--seeds", type=int, default=10_000)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first failure")
    parser.add_argument("--trace", action="store_true", help="print every operation")
    parser.add_argument("--known", default="$^", metavar="REGEX", help="pass over faults that match")
    arguments = parser.parse_args()
    began, failed = time.perf_counter(), 0
    sums: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    for done, seed in enumerate(range(arguments.first, arguments.first + arguments.seeds), 1):
        result = run_seed(seed)
        sums.update({name: int(getattr(result, name)) for name in COUNTED})
        if arguments.trace:
            print("\n".join(result.trace).encode("utf-8", "replace").decode())
        faults = [fault for fault in result.faults if not re.search(arguments.known, fault)]
        if faults:
            failed += 1
            kinds.update({_kind(fault) for fault in faults})
            print(
                f"SEED={seed}",
                *(f.encode("utf-8", "replace").decode() for f in faults[:3]),
                sep="\n  ",
            )
            if not arguments.keep_going:
                return 1
        if done % 500 == 0 or done == arguments.seeds:
            rate = done / (time.perf_counter() - began)
            told = ", ".join(f"{count} {name}" for name, count in sums.items())
            print(f"{done} seeds, {told}, {rate:.0f}/s, {failed} failed", flush=True)
    for kind, count in kinds.most_common():
        print(f"{count:6} {kind}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
