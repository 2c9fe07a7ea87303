"""Reads and writes the files of a workspace on this machine, and follows no link.

Links, pipes and the like do not count as files. A process that a tool left behind may change the folder at any time.
"""

from __future__ import annotations

import logging
import os
import shutil
import stat
from collections.abc import Collection, Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath
from secrets import token_hex

log = logging.getLogger(__name__)

PART = 1 << 20
"""Bytes of a part."""

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW

Hashes = dict[tuple[bytes, int, int, int], tuple[bytes, ...]]
"""The SHA-256 of a file's parts, by its path, size, modification time and inode."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a workspace: its path, the SHA-256 of its parts, and whether it is executable."""

    path: bytes
    parts: tuple[bytes, ...]
    mode: int


class NewFile:
    """A context that writes a file beneath *root* under a temporary name and then moves it into place.

    Whatever is in its place is removed. Blocking. Raises OSError, also for a path that leaves *root*.
    """

    def __init__(self, root: Path, file: StoredFile) -> None:
        self._folder, self._name = _open_parent(root, file.path, make=True)
        self._part = f".{token_hex(8)}.part"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        try:
            self._file = os.fdopen(os.open(self._part, flags, file.mode, dir_fd=self._folder), "wb")
        except BaseException:
            os.close(self._folder)
            raise

    def write(self, data: bytes) -> None:
        self._file.write(data)

    def place(self) -> None:
        """Move the file into place."""
        self._file.close()
        _move(self._part, self._name, self._folder)

    def close(self) -> None:
        """Close the file, and delete it if it was not moved into place."""
        self._file.close()
        with suppress(FileNotFoundError):
            os.unlink(self._part, dir_fd=self._folder)
        os.close(self._folder)


def _parts(path: Path | str, folder: int | None = None) -> Generator[bytes]:
    """Yield the content of a file in parts, at least one, which may be empty. *path* is relative to *folder*."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder), "rb") as file:
        data = file.read(PART)
        yield data
        while len(data) == PART and (data := file.read(PART)):
            yield data


def scan(root: Path, hashes: Hashes) -> tuple[dict[bytes, StoredFile], Hashes]:
    """Return the regular files beneath *root* by path, and their hashes. Files with a known hash are not read again.

    *root* is created if it is missing. Folders that a tool closed to their owner are opened.
    """
    _make_root(root)
    files, fresh = dict[bytes, StoredFile](), Hashes()
    for folder, folders, names, number in os.fwalk(root):
        for name in folders:
            _let_owner_in(name, number)
        for name in names:
            try:
                about = os.stat(name, dir_fd=number, follow_symlinks=False)
                if stat.S_ISREG(about.st_mode):
                    path = os.fsencode(Path(folder, name).relative_to(root).as_posix())
                    known = (path, about.st_size, about.st_ctime_ns, about.st_ino)
                    fresh[known] = parts = hashes.get(known) or part_digests(name, number)
                    files[path] = StoredFile(path, parts, 0o700 if about.st_mode & 0o100 else 0o600)
            except (FileNotFoundError, PermissionError) as error:
                log.warning("workspace.left_out: a file cannot be stored: %s", error)
    return files, fresh


def keep_only(root: Path, kept: Collection[bytes]) -> None:
    """Delete the files beneath *root* whose paths are not among those to keep. Blocking. Raises OSError."""
    there = {
        os.fsencode(Path(folder, name).relative_to(root).as_posix())
        for folder, _, names in os.walk(root)
        for name in names
    }
    remove(root, there.difference(kept))


def _make_root(root: Path) -> None:
    root.parent.mkdir(parents=True, exist_ok=True)
    parent = os.open(root.parent, FOLDER)
    try:
        _make_folder(root.name, parent)
        _let_owner_in(root.name, parent)
    finally:
        os.close(parent)


def _let_owner_in(name: str, parent: int) -> None:
    with suppress(FileNotFoundError):
        mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode) and mode & 0o700 != 0o700:
            os.chmod(name, 0o700, dir_fd=parent)


def part_digests(name: str, folder: int) -> tuple[bytes, ...]:
    return tuple(sha256(data).digest() for data in _parts(name, folder))


def read_parts(root: Path, path: bytes) -> Generator[bytes]:
    folder, name = _open_parent(root, path)
    try:
        yield from _parts(name, folder)
    finally:
        os.close(folder)


def _open_parent(root: Path, path: bytes, make: bool = False) -> tuple[int, str]:
    """Open the parent folder of the file at *path* beneath *root*. Return its descriptor and the file's name.

    With *make*, missing folders are created, also in place of something else. Raises OSError, also for a path that
    leaves *root*.
    """
    *folders, name = PurePosixPath(os.fsdecode(path)).parts or ("..",)
    if ".." in (*folders, name) or os.fsdecode(path).startswith("/"):
        raise OSError(f"{os.fsdecode(path)!r} is no path below a workspace")
    number = os.open(root, FOLDER)
    for inner in folders:
        outer = number
        try:
            if make:
                _make_folder(inner, outer)
            number = os.open(inner, FOLDER, dir_fd=outer)
        finally:
            os.close(outer)
    return number, name


def _make_folder(name: str, parent: int) -> None:
    with suppress(FileNotFoundError):
        if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=parent)
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent)


def _move(part: str, name: str, folder: int) -> None:
    """Rename a file, also if its target is a folder."""
    try:
        os.replace(part, name, src_dir_fd=folder, dst_dir_fd=folder)
    except IsADirectoryError:
        shutil.rmtree(name, dir_fd=folder)
        os.replace(part, name, src_dir_fd=folder, dst_dir_fd=folder)


def remove(root: Path, paths: Iterable[bytes]) -> None:
    for path in paths:
        with suppress(FileNotFoundError):
            folder, name = _open_parent(root, path)
            try:
                os.unlink(name, dir_fd=folder)
            finally:
                os.close(folder)
