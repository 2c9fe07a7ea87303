"""Waiting for the end of processes that a test does not own."""

from pathlib import Path

import anyio


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
