"""What a process costs, with all that it has started: CPU to the microsecond, and memory (Linux)."""

from __future__ import annotations

import os
import time
from pathlib import Path

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process, of its threads and of its children, also of those that are over."""
    return sum(_cpu(one) + ended * _TICK_S for one, ended in _family(pid))


def resident_of(pid: int) -> int:
    """Return the bytes of memory that a process and its children hold."""
    return sum(int(Path(f"/proc/{one}/statm").read_text().split()[1]) * _PAGE for one, _ in _family(pid))


def _cpu(pid: int) -> float:
    # the clock of a process (see clock_getcpuclockid) is exact, where /proc counts in hundredths of a second
    return time.clock_gettime((~pid << 3) | 2)


def _family(pid: int) -> list[tuple[int, int]]:
    """Return a process and all below it, each with the ticks of its children that are over."""
    parents, ended = dict[int, int](), dict[int, int]()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        number = int(stat.parent.name)
        parents[number], ended[number] = int(words[1]), int(words[13]) + int(words[14])
    known, found = {pid}, {pid}
    while found := {one for one, parent in parents.items() if parent in found}:
        known |= found
    return [(one, ended[one]) for one in known if one in ended]
