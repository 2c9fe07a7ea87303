"""Measuring in a fresh process: a benchmark module runs itself and prints what it found as one line of JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

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
