"""Measure in a fresh process: a benchmark module runs itself and prints what it found as one line of JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from benchmarks.figures import Figure

ROOT = Path(__file__).parent.parent
TIMEOUT_S = 240


def ask(module: str, *arguments: object) -> dict[str, float]:
    """Run ``python -m benchmarks.<module> <arguments>`` and return what it prints."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def resident() -> int:
    """Return the bytes of memory that this process holds right now (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def serving(module: str, *arguments: object) -> Iterator[int]:
    """Run ``python -m benchmarks.<module> serve <arguments>``; yields the port that it prints."""
    command = [sys.executable, "-m", f"benchmarks.{module}", "serve", *map(str, arguments)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield int(server.stdout.readline())
        finally:
            server.kill()


def import_figures(module: str, statements: Mapping[str, str], rounds: int) -> Iterator[Figure]:
    """Return the milliseconds that each import takes, by ``python -m benchmarks.<module> import <statement>``."""
    for name, statement in statements.items():
        found = [ask(module, "import", statement) for _ in range(rounds)]
        note = f"`{statement}`; {median(figure['mb'] for figure in found):.1f} MB resident"
        yield Figure(f"import, {name}", median(figure["ms"] for figure in found), "ms", note=note)


def import_cost(statement: str) -> dict[str, float]:
    start = time.perf_counter()
    exec(statement, {})
    return {"ms": (time.perf_counter() - start) * 1e3, "mb": resident() / 1e6}
