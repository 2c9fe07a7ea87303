"""Processes that a test does not own: which there are, and waiting for their end."""

import os
from contextlib import suppress
from pathlib import Path

import anyio


def children(pid: int) -> set[int]:
    found = set[int]()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended
            found |= set(map(int, task.read_text().split()))
    return found


def descendants(pid: int | None = None) -> set[int]:
    """Return the processes that *pid*, or this process, has started, and all that those have started."""
    started = children(pid or os.getpid())
    return started.union(*map(descendants, started))


async def gone(pid: int, within_s: float = 5) -> bool:
    """Whether a process has ended; one that nobody has reaped has."""
    with anyio.move_on_after(within_s):
        while True:
            try:
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            except (FileNotFoundError, ProcessLookupError):
                return True
            if state in "ZX":
                return True
            await anyio.sleep(0.02)
    return False
