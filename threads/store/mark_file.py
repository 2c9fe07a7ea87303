"""The store of a transport's high-water marks. The transport decides about the content."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from .disk import Disk, read_or_empty, replace_file, set_aside


class MarkStore(Protocol):
    """The marks of one transport. Every method blocks and may raise OSError.

    Times are the platform's. Reading begins ``overlap_s`` seconds before a mark, because events may overtake each
    other, and the marks of several processes may differ by so much.
    """

    overlap_s: float

    def read(self) -> bytes:
        """Return what was written last. Empty at first."""
        ...

    def write(self, data: bytes) -> None:
        """Replace the marks, and forget those that were taken over."""
        ...

    def set_aside(self, data: bytes) -> None:
        """Set damaged data aside."""
        ...

    def take_over(self) -> Sequence[bytes]:
        """Return the marks of processes that are gone. They are returned again until the next `write`."""
        ...

    def claim(self, channel: str, since: str, begins: str, due: str, now: str) -> str | None:
        """Return "" if this process has to read a channel from *begins* on, and None while another process reads it.

        If another process has read everything *since* then, and began after the gap at *due*, return up to where.
        """
        ...

    def finish(self, channel: str, upto: str) -> None:
        """Note up to where this process has read a claimed channel."""
        ...


class MarkFile:
    """A `MarkStore` in a file, for a single process."""

    overlap_s = 5.0

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk, self._path = disk, path

    def read(self) -> bytes:
        return read_or_empty(self._disk, self._path)

    def write(self, data: bytes) -> None:
        replace_file(self._disk, self._path, data)

    def set_aside(self, data: bytes) -> None:
        set_aside(self._disk, self._path, data)

    def take_over(self) -> Sequence[bytes]:
        return ()

    def claim(self, *_: str) -> str:
        return ""

    def finish(self, *_: str) -> None:
        """Do nothing. There is no other process."""
