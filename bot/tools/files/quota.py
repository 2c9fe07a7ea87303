"""How much a workspace may hold, counted cheaply: one thread cannot fill the disk for all.

A count is a walk through the workspace, stopped as soon as it is too much. File tools remember it for `FRESH_S`, with
what was written since; a refusal always rests on a count of its own. What commands write is bounded by
`bot.tools.sandbox.workspace_meter`.
"""

from __future__ import annotations

import errno
import math
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from bot.ports.errors import ToolError

from .resolve_beneath import FOLDER, open_at

FRESH_S = 30.0
"""How long a count is good for; what commands write meanwhile comes on top."""

REMEMBERED = 1000
"""Workspaces whose counts are remembered."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a workspace holds: bytes, and files and folders together. ``largest`` is the size of the largest file.

    ``closed`` are folders that cannot be looked into: what lies in them is not known.
    """

    size: int = 0
    entries: int = 0
    counted_at: float = -math.inf
    largest: int = 0
    closed: int = 0


class Quota:
    """One for all workspaces; whoever uses one of them has it alone meanwhile. Blocking."""

    def __init__(
        self, max_bytes: int, max_entries: int, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.max_bytes, self.max_entries = max_bytes, max_entries
        self._clock = clock
        self._counts: dict[Path, Usage] = {}

    def reserve(self, workspace: Path, size: int, entries: int) -> None:
        """Set aside *size* bytes, less than nothing where a file shrinks; raises `ToolError` if there is no room."""
        count = self._counts.get(workspace, Usage())
        stale = self._clock() - count.counted_at > FRESH_S
        if stale or not self._fits(count, size, entries):
            count = measure_usage(workspace, self.max_entries, self._clock())
        if not self._fits(count, size, entries):
            limit = f"{self.max_bytes // 1_000_000} MB or {self.max_entries} files"
            raise ToolError(
                f"The workspace would hold more than {limit}, so nothing was written.",
                suggestion="Say so. Files that are not needed have to go first.",
            )
        if len(self._counts) >= REMEMBERED:
            self._counts.clear()
        self._counts[workspace] = Usage(count.size + size, count.entries + entries, count.counted_at)

    def measure(self, workspace: Path, most: int) -> Usage:
        """Count a workspace that something else writes to; what was remembered of it is forgotten."""
        self._counts.pop(workspace, None)
        return measure_usage(workspace, most, self._clock())

    def _fits(self, count: Usage, size: int, entries: int) -> bool:
        return (size <= 0 or count.size + size <= self.max_bytes) and (
            entries <= 0 or count.entries + entries <= self.max_entries
        )


_CLOSED = frozenset({errno.EACCES, errno.EPERM, errno.ENAMETOOLONG})
"""What says of a folder that it is there and cannot be looked into."""


def measure_usage(workspace: Path, most: int, now: float = 0.0) -> Usage:
    """Count what is in the workspace, up to one more than *most* entries. Raises OSError when it is not there.

    A file of several names is counted once, a sparse one as what it takes. Folders may come and go meanwhile.
    """
    root = os.open(workspace, FOLDER | os.O_NOFOLLOW | os.O_CLOEXEC)
    size = entries = largest = closed = 0
    linked: set[tuple[int, int]] = set()
    waiting: list[tuple[str, ...]] = [()]
    try:
        while waiting and entries <= most:
            folder = waiting.pop()
            try:
                for name, about in islice(_found(root, folder), most + 1 - entries):
                    entries += 1
                    if stat.S_ISDIR(about.st_mode):
                        waiting.append((*folder, name))
                    elif about.st_nlink > 1:
                        if (about.st_dev, about.st_ino) in linked:
                            continue
                        linked.add((about.st_dev, about.st_ino))
                    size += min(about.st_size, about.st_blocks * 512)
                    largest = max(largest, about.st_size if stat.S_ISREG(about.st_mode) else 0)
            except OSError as error:
                closed += error.errno in _CLOSED
    finally:
        os.close(root)
    return Usage(size, entries, now, largest, closed)


def _found(root: int, folder: tuple[str, ...]) -> Iterator[tuple[str, os.stat_result]]:
    """Give the entries of a folder, without those that are gone since they were found."""
    fd = open_at(root, folder, FOLDER)
    try:
        with closing(os.scandir(fd)) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    yield entry.name, entry.stat(follow_symlinks=False)
    finally:
        os.close(fd)
