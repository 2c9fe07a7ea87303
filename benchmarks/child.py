"""Measuring in a fresh process: a benchmark module runs itself and prints what it found as one line of JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
TIMEOUT_S = 240


@dataclass(frozen=True, slots=True)
class Ended:
    """A process that is over; ``cpu`` is user and system time in seconds, ``peak`` bytes of memory."""

    output: str
    cpu: float
    wall: float
    peak: int


def ask(module: str, *arguments: object) -> dict[str, float]:
    """Run ``python -m benchmarks.<module> <arguments>`` and return what it prints."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def resident() -> int:
    """Return the bytes of memory that this process holds right now (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
