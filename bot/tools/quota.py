"""How much a workspace may hold, counted cheaply: one thread cannot fill the disk for all.

A count is a walk through the workspace, stopped as soon as it is too much. It is remembered for `FRESH_S`, with what
was written since; a refusal always rests on a count of its own.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from bot.errors import ToolError

from .beneath import FOLDER
from .tree import walk

FRESH_S = 30.0
"""How long a count is good for; what commands write meanwhile comes on top."""

REMEMBERED = 1000
"""Workspaces whose counts are remembered."""


@dataclass(frozen=True, slots=True)
class Count:
    """What a workspace holds: bytes, and files and folders together."""

    size: int = 0
    entries: int = 0
    counted_at: float = -math.inf


class Quota:
    """One for all workspaces; whoever uses one of them has it alone meanwhile. Blocking."""

    def __init__(
        self, max_bytes: int, max_entries: int, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._max_bytes, self._max_entries, self._clock = max_bytes, max_entries, clock
        self._counts: dict[Path, Count] = {}

    def take(self, workspace: Path, size: int, entries: int) -> None:
        """Set aside *size* bytes, less than nothing where a file shrinks; raises `ToolError` if there is no room."""
        count = self._counts.get(workspace, Count())
        stale = self._clock() - count.counted_at > FRESH_S
        if stale or not self._fits(count, size, entries):
            count = counted(workspace, self._max_entries, self._clock())
        if not self._fits(count, size, entries):
            limit = f"{self._max_bytes // 1_000_000} MB or {self._max_entries} files"
            raise ToolError(
                f"The workspace would hold more than {limit}, so nothing was written.",
                suggestion="Say so. Files that are not needed have to go first.",
            )
        if len(self._counts) >= REMEMBERED:
            self._counts.clear()
        self._counts[workspace] = Count(count.size + size, count.entries + entries, count.counted_at)

    def _fits(self, count: Count, size: int, entries: int) -> bool:
        return (size <= 0 or count.size + size <= self._max_bytes) and (
            entries <= 0 or count.entries + entries <= self._max_entries
        )


def counted(workspace: Path, most: int, now: float = 0.0) -> Count:
    """Count what is in the workspace, up to a few more than *most* entries. Raises OSError when it is not there."""
    root = os.open(workspace, FOLDER | os.O_NOFOLLOW | os.O_CLOEXEC)
    size = entries = 0
    try:
        for entry in islice(walk(root, []), most + 1):
            size, entries = size + entry.on_disk, entries + 1
    finally:
        os.close(root)
    return Count(size, entries, now)
