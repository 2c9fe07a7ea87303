"""Print how much is explored and how fast; ``--mutants`` also plants every bug and says where it is found."""

from __future__ import annotations

import logging
import sys
import time

import anyio

from .campaign import run_all
from .explore import Figures
from .mutants import MUTANTS
from .scenarios import Violation


async def main() -> None:
    began = time.process_time()

    def report(name: str, figures: Figures) -> None:
        print(f"{time.process_time() - began:6.1f} s  {name:32} {figures}", flush=True)

    total = await run_all(report)
    report("all", total)
    for name, (case, plant) in MUTANTS.items() if "--mutants" in sys.argv else ():
        began = time.process_time()
        try:
            with plant():
                await run_all(lambda case, figures: None, only=case)
        except Violation as violation:
            outcome = str(violation).partition(":")[0]
        else:
            outcome = "NOT FOUND"
        print(f"{time.process_time() - began:6.1f} s  {name:52} {outcome}", flush=True)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    anyio.run(main)
