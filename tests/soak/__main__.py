"""`python -m tests.soak --minutes 30 --threads 500`: a long run with faults on every side; exit 1 if a promise was broken."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path

import anyio
from rich.console import Console
from rich.table import Table

from tests.soak.plan import Plan
from tests.soak.run import Report, soak


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--threads", type=int, default=500)
    parser.add_argument("--rate", type=float, default=1.0, help="messages a second, over all threads")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    parser.add_argument(
        "--growth", type=float, default=0.05, help="of memory from the second third to the last"
    )
    parser.add_argument("--keep", action="store_true", help="keep the folder of a good run too")
    args = parser.parse_args()
    plan = Plan(args.minutes * 60, args.threads, args.seed, args.rate, args.growth)
    folder = Path(tempfile.mkdtemp(prefix="threadfast-soak-"))
    print(
        f"{args.minutes:g} minutes, {plan.threads} threads, seed {plan.seed}; all of it is in {folder}",
        flush=True,
    )
    report = anyio.run(soak, folder, plan, lambda line: print(line, flush=True))
    show(report)
    print(f"samples: {report.samples.write()}")
    if report.kept and not args.keep:
        kept = Path(tempfile.gettempdir(), f"{folder.name}.csv")
        shutil.move(folder / "samples.csv", kept)
        shutil.rmtree(folder)
        print(f"kept promises leave only the samples: {kept}")
    sys.exit(not report.kept)


def show(report: Report) -> None:
    for violation in report.violations[:50]:
        print(violation)
    for name, count in report.log.most_common(15):
        print(f"log: {count:5} x {name}")
    print("faults of the models: ", ", ".join(f"{count} {name}" for name, count in report.faults.items()))
    for name, counts in report.counts.items():
        print(f"{name}: ", ", ".join(f"{count} {what}" for what, count in counts.items()))
    table = Table("", "found", "allowed", "")
    for verdict in report.verdicts:
        told = {None: "", True: "kept", False: "BROKEN"}[verdict.kept]
        table.add_row(verdict.what, verdict.found, verdict.allowed, told)
    Console().print(table)


if __name__ == "__main__":
    main()
