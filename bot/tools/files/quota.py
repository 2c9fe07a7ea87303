"""How much a workspace may hold: one thread cannot fill the disk for all.

Usage is measured by a walk through the workspace, which stops once there is too much. The sandbox of commands has a
meter of its own.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from bot.ports.errors import ToolError
from threads.store.open_beneath import FOLDER, closing, open_at

from .workspace import open_workspace

_CLOSED = frozenset({errno.EACCES, errno.EPERM, errno.ENAMETOOLONG})
"""Errors of a folder that exists and cannot be opened."""


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """What a workspace holds: bytes, and files and folders together. ``largest`` is the size of the largest file.

    ``closed`` counts folders that cannot be opened: their content is unknown.
    """

    size: int = 0
    entries: int = 0
    largest: int = 0
    closed: int = 0


@dataclass(frozen=True, slots=True)
class Quota:
    """The most that each workspace may hold."""

    max_bytes: int
    max_entries: int

    def check(self, workspace: Path, size: int, entries: int) -> None:
        """Raise `ToolError` if there is no room for *size* more bytes and *entries* more files. Blocking.

        There is always room for a file that does not grow.
        """
        if size <= 0 and entries <= 0:
            return
        usage = measure_usage(workspace, self.max_entries)
        if (size > 0 and usage.size + size > self.max_bytes) or (
            entries > 0 and usage.entries + entries > self.max_entries
        ):
            limit = f"{self.max_bytes // 1_000_000} MB or {self.max_entries} files"
            raise ToolError(
                f"The workspace would hold more than {limit}, so nothing was written.",
                suggestion="Say so. Files that are not needed must be deleted first.",
            )


def measure_usage(workspace: Path, max_entries: int) -> DiskUsage:
    """Measure a workspace up to one more than *max_entries* entries. Raises OSError if it does not exist.

    A file with several names counts once, and a sparse file counts what it takes on disk. Folders may come and go
    meanwhile.
    """
    size = entries = largest = closed = 0
    linked: set[tuple[int, int]] = set()
    pending: list[tuple[str, ...]] = [()]
    with open_workspace(workspace) as root:
        while pending and entries <= max_entries:
            folder = pending.pop()
            try:
                for name, state in islice(scan(root, folder), max_entries + 1 - entries):
                    entries += 1
                    if stat.S_ISDIR(state.st_mode):
                        pending.append((*folder, name))
                    elif state.st_nlink > 1:
                        if (state.st_dev, state.st_ino) in linked:
                            continue
                        linked.add((state.st_dev, state.st_ino))
                    size += min(state.st_size, state.st_blocks * 512)
                    largest = max(largest, state.st_size if stat.S_ISREG(state.st_mode) else 0)
            except OSError as error:
                closed += error.errno in _CLOSED
    return DiskUsage(size, entries, largest, closed)


def scan(root: int, folder: Sequence[str]) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the name and the state of each entry of a folder below *root*; raises OSError."""
    with closing(open_at(root, folder, FOLDER)) as fd, os.scandir(fd) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # removed meanwhile
                yield entry.name, entry.stat(follow_symlinks=False)
