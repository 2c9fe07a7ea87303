"""Where a transport stores how far it has read each channel; what it stores there is its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from .disk import Disk, read_or_empty, replace_file, set_aside


class MarkStore(Protocol):
    """Where the marks of one transport are. All of it blocks and may raise OSError.

    Times are the platform's. Reading begins ``overlap_s`` seconds before a mark: so far the marks of processes that
    missed the same may lie apart, and events may overtake each other.
    """

    overlap_s: float

    def read(self) -> bytes:
        """Return what was written last, blank at first."""
        ...

    def write(self, data: bytes) -> None:
        """Replace it, and forget what was taken over."""
        ...

    def set_aside(self, data: bytes) -> None:
        """Move away what cannot be understood."""
        ...

    def take_over(self) -> Sequence[bytes]:
        """Return the marks of processes that are gone. They come again until the next `write`."""
        ...

    def claim(self, channel: str, since: str, begins: str, due: str, now: str) -> str | None:
        """Return "" if this process is to read a channel, from *begins* on; None while another reads it.

        Otherwise another has read all *since* then, and began after the gap, at *due*; return up to where.
        """
        ...

    def finish(self, channel: str, upto: str) -> None:
        """Note up to where this process has read a channel that it claimed."""
        ...


class MarkFile:
    """A `MarkStore` of the only process there is: a file."""

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
        """Do nothing: nobody else wants to know."""
