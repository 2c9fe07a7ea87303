"""Where a transport stores how far it has read each channel; what it stores there is its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from .disk import Disk, read_or_empty, replace_file, set_aside


class MarkStore(Protocol):
    """Where the marks of one transport are. All of it blocks and may raise OSError."""

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


class MarkFile:
    """A `MarkStore` of the only process there is: a file."""

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
