"""The file operations of the store, behind a Protocol that a test can implement.

Everything durable goes through two of them. After `replace_file` a reader finds the old file or the new one, never a
part of either, even after a power cut. `append` writes everything or raises. Both block, so callers `Offload` them.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol, TypeVar, TypeVarTuple

Arguments = TypeVarTuple("Arguments")
T = TypeVar("T")

Bytes = bytes | bytearray
"""Content to write. A bytearray must not change meanwhile."""


class Offload(Protocol):
    """Runs a blocking function off the event loop. It waits for the function even if its caller is cancelled."""

    def __call__(self, function: Callable[[*Arguments], T], /, *args: *Arguments) -> Awaitable[T]: ...


class File(Protocol):
    """An open file. Every method may raise OSError."""

    def write(self, data: bytes | memoryview) -> int:
        """Write at the end, and return how many bytes were written: at least one."""
        ...

    def fsync(self) -> None: ...

    def close(self) -> None: ...


class Disk(Protocol):
    """A file system. Every method may raise OSError."""

    def read(self, path: Path) -> bytes: ...

    def tail(self, path: Path, size: int) -> bytes:
        """Return the last *size* bytes, or the whole file if it is shorter."""
        ...

    def create(self, path: Path) -> File:
        """Open a new, empty file for writing. An old file of that name is never reused."""
        ...

    def append(self, path: Path) -> File:
        """Open a file for appending. A missing file is created."""
        ...

    def truncate(self, path: Path, size: int) -> None:
        """Truncate the file to *size* bytes, durably."""
        ...

    def rename(self, source: Path, target: Path) -> None: ...

    def unlink(self, path: Path) -> None: ...

    def fsync_folder(self, path: Path) -> None: ...

    def mkdir(self, *paths: Path) -> None:
        """Create the folders and their parents, and make them durable, even those that exist already."""
        ...


class PosixFile:
    def __init__(self, path: Path, flags: int) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flags, 0o600)

    def write(self, data: bytes | memoryview) -> int:
        return os.write(self._fd, data)

    def fsync(self) -> None:
        os.fsync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


class PosixDisk:
    """The real file system: folders 0700, files 0600."""

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def tail(self, path: Path, size: int) -> bytes:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - size))
            return file.read()

    def create(self, path: Path) -> File:
        try:
            return PosixFile(path, os.O_EXCL)
        except FileExistsError:
            path.unlink()
            return PosixFile(path, os.O_EXCL)

    def append(self, path: Path) -> File:
        return PosixFile(path, os.O_APPEND)

    def truncate(self, path: Path, size: int) -> None:
        with path.open("r+b") as file:
            file.truncate(size)
            os.fsync(file.fileno())

    def rename(self, source: Path, target: Path) -> None:
        os.rename(source, target)  # noqa: PTH104 - a Path's own makes another Path

    def unlink(self, path: Path) -> None:
        path.unlink()

    def fsync_folder(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def mkdir(self, *paths: Path) -> None:
        for parent in dict.fromkeys(parent for path in paths for parent in _make_folder(path)):
            with suppress(PermissionError):  # a parent that we may not read existed long before
                self.fsync_folder(parent)


def _make_folder(path: Path) -> list[Path]:
    """Create a folder and its parents. Returns the folders with new entries, the outermost first."""
    outer: list[Path] = []
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        pass  # by now
    except FileNotFoundError:
        outer = _make_folder(path.parent)
        path.mkdir(mode=0o700)
    return [*outer, path.parent]


def write_all(file: File, data: Bytes) -> None:
    """Write all bytes, in as many writes as it takes."""
    written = 0
    with memoryview(data) as view:  # closed, or the traceback of an error would keep the bytes from growing
        while written < len(view):
            with view[written:] as rest:
                written += file.write(rest)


@dataclass(slots=True)
class Replacement:
    """A file and its new content. After an ``error`` the old file is in place, or the new one may not be durable.

    The folder of a ``new`` file is created first and made durable. A crash may have left one that is not.
    """

    path: Path
    data: Bytes
    new: bool = False
    error: OSError | None = None


def replace_file(disk: Disk, path: Path, data: Bytes, new: bool = False) -> None:
    """Replace the file, all or nothing and durably. Raises OSError, and leaves the old file in place."""
    replacement = Replacement(path, data, new)
    replace_files(disk, [replacement])
    if replacement.error is not None:
        raise replacement.error


def replace_files(disk: Disk, replacements: Sequence[Replacement]) -> None:
    """Replace different files, each all or nothing and durably. A failure sets the replacement's ``error``.

    The order makes it safe: first the content, then the name, then the folder of the name.
    """
    if new := [one for one in replacements if one.new]:
        _make_folders(disk, new)
    steps: Sequence[Callable[[Replacement, Path], None]] = (
        lambda one, temporary: _write_temporary(disk, temporary, one.data),
        lambda one, temporary: disk.rename(temporary, one.path),
        lambda one, _: disk.fsync_folder(one.path.parent),
    )
    temporaries = [temporary_of(one.path) for one in replacements]
    for step in steps:
        for one, temporary in zip(replacements, temporaries, strict=True):
            if one.error is None:
                try:
                    step(one, temporary)
                except OSError as error:
                    one.error = error


def _make_folders(disk: Disk, new: Sequence[Replacement]) -> None:
    """Create the folders together, or one after another if that fails: a folder's failure is only its file's."""
    try:
        disk.mkdir(*{one.path.parent: None for one in new})
    except OSError as error:
        if len(new) == 1:
            new[0].error = error
        else:
            for one in new:
                _make_folders(disk, [one])


def _write_temporary(disk: Disk, temporary: Path, data: Bytes) -> None:
    try:
        write_new(disk, temporary, data)
    except OSError:
        with suppress(OSError):  # a leftover is ignored, and replaced by the next try
            disk.unlink(temporary)
        raise


@lru_cache(4096)
def temporary_of(path: Path) -> Path:
    return path.with_name(path.name + ".tmp")


def write_new(disk: Disk, path: Path, data: Bytes) -> None:
    """Create the file and fsync it. A missing folder is created."""
    try:
        file = disk.create(path)
    except FileNotFoundError:
        disk.mkdir(path.parent)
        file = disk.create(path)
    try:
        write_all(file, data)
        file.fsync()
    finally:
        file.close()


def set_aside(disk: Disk, path: Path, damaged: bytes) -> None:
    """Copy damaged bytes of *path* to its ``.broken`` sidecar, once."""
    sidecar = path.with_name(path.name + ".broken")
    before = read_or_empty(disk, sidecar)
    # Written again even if nothing is added: what is there may not be durable.
    replace_file(disk, sidecar, before if damaged in before else before + damaged + b"\n")


def read_or_empty(disk: Disk, path: Path) -> bytes:
    """Return a file's bytes. A missing file is empty."""
    try:
        return disk.read(path)
    except FileNotFoundError:
        return b""
