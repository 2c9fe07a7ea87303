"""How much a workspace may hold: one thread cannot fill the disk for all.

Usage is measured by a walk through the workspace, which stops once there is too much. File tools reuse a measurement
for `FRESH_S`, with what they wrote since; before a refusal they measure again. What commands write is limited by
`bot.tools.sandbox.workspace_meter`.
"""

from __future__ import annotations

import errno
import math
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from bot.ports.errors import ToolError

from .walk import scan
from .workspace import open_workspace

FRESH_S = 30.0
"""How long a measurement is used; what commands write meanwhile is not in it."""

REMEMBERED = 1000
"""Workspaces whose measurements are remembered."""

_CLOSED = frozenset({errno.EACCES, errno.EPERM, errno.ENAMETOOLONG})
"""Errors of a folder that exists and cannot be opened."""


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """What a workspace holds: bytes, and files and folders together. ``largest`` is the size of the largest file.

    ``closed`` counts folders that cannot be opened: what is in them is unknown.
    """

    size: int = 0
    entries: int = 0
    measured_at: float = -math.inf
    largest: int = 0
    closed: int = 0


class Quota:
    """The limits of all workspaces. Blocking. Several threads may use it, one at a time for each workspace."""

    def __init__(
        self, max_bytes: int, max_entries: int, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.max_bytes, self.max_entries = max_bytes, max_entries
        self._clock = clock
        self._usages: dict[Path, DiskUsage] = {}

    def reserve(self, workspace: Path, size: int, entries: int) -> None:
        """Reserve *size* bytes, negative for a file that shrinks; raises `ToolError` if there is no room."""
        usage = self._usages.get(workspace, DiskUsage())
        stale = self._clock() - usage.measured_at > FRESH_S
        if stale or not self._fits(usage, size, entries):
            usage = measure_usage(workspace, self.max_entries, self._clock())
        if not self._fits(usage, size, entries):
            limit = f"{self.max_bytes // 1_000_000} MB or {self.max_entries} files"
            raise ToolError(
                f"The workspace would hold more than {limit}, so nothing was written.",
                suggestion="Say so. Files that are not needed must be deleted first.",
            )
        if len(self._usages) >= REMEMBERED:
            self._usages.clear()
        self._usages[workspace] = replace(usage, size=usage.size + size, entries=usage.entries + entries)

    def measure(self, workspace: Path, max_entries: int) -> DiskUsage:
        """Measure a workspace that something else writes to, and forget the earlier measurement."""
        self._usages.pop(workspace, None)
        return measure_usage(workspace, max_entries, self._clock())

    def _fits(self, usage: DiskUsage, size: int, entries: int) -> bool:
        return (size <= 0 or usage.size + size <= self.max_bytes) and (
            entries <= 0 or usage.entries + entries <= self.max_entries
        )


def measure_usage(workspace: Path, max_entries: int, now: float) -> DiskUsage:
    """Measure a workspace up to one more than *max_entries* entries. Raises OSError if it does not exist.

    A file with several names counts once, and a sparse file counts what it takes on disk. Folders may come and go
    meanwhile.
    """
    size = entries = largest = closed = 0
    linked: set[tuple[int, int]] = set()
    waiting: list[tuple[str, ...]] = [()]
    with open_workspace(workspace) as root:
        while waiting and entries <= max_entries:
            folder = waiting.pop()
            try:
                for name, state in islice(scan(root, folder), max_entries + 1 - entries):
                    entries += 1
                    if stat.S_ISDIR(state.st_mode):
                        waiting.append((*folder, name))
                    elif state.st_nlink > 1:
                        if (state.st_dev, state.st_ino) in linked:
                            continue
                        linked.add((state.st_dev, state.st_ino))
                    size += min(state.st_size, state.st_blocks * 512)
                    largest = max(largest, state.st_size if stat.S_ISREG(state.st_mode) else 0)
            except OSError as error:
                closed += error.errno in _CLOSED
    return DiskUsage(size, entries, now, largest, closed)
