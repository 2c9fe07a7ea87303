"""Files at a console: the bot's are copied into a folder, a person's are read in place."""

from __future__ import annotations

import mimetypes
import os
import shlex
import shutil
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from io import FileIO
from pathlib import Path

import anyio.to_thread

from threads.model import Attachment
from threads.store.attachments import unavailable

CHUNK = 64 * 1024
GONE = "it cannot be read any more. Attaching it again may help."


def copy_into(folder: Path, file: Path, name: str) -> tuple[Path, int]:
    """Copy *file* into *folder*, never over another; return where it is and its size. Blocking; raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with file.open("rb") as source:
        path, fd = _new(folder, Path(Path(name).name or "file"))
        try:
            with os.fdopen(fd, "wb") as target:
                shutil.copyfileobj(source, target)
                return path, target.tell()
        except BaseException:
            with suppress(OSError):  # half a file is worthless
                path.unlink()
            raise


def _new(folder: Path, name: Path) -> tuple[Path, int]:
    """Create a new file, with a number in its name if the name is taken."""
    number, path = 1, folder / name
    while True:
        try:
            return path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            number += 1
            path = folder / f"{name.stem}-{number}{name.suffix}"


def read_attachment(typed: str, file_id: str) -> Attachment:
    """Return the file that a person names. Blocking; raises OSError unless it is a readable regular file."""
    path = _path(typed)
    with closing(_open(path)) as file:
        size = os.fstat(file.fileno()).st_size
    return Attachment(file_id, path.name, mimetypes.guess_type(path.name)[0] or "", size, str(path))


def _path(typed: str) -> Path:
    """Return the path as typed, or as a terminal writes a dropped one: quoted, or with backslashes."""
    path = Path(typed).expanduser()
    if not path.exists():
        with suppress(ValueError):
            words = shlex.split(typed)
            path = Path(words[0]).expanduser() if len(words) == 1 else path
    return path.absolute()


def _open(path: Path) -> FileIO:
    file = FileIO(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(0, "it is not a regular file")
    return file


@asynccontextmanager
async def open_attachment(attachment: Attachment) -> AsyncIterator[AsyncIterator[bytes]]:
    """Open a person's file. Raises `threads.errors.FileUnavailable`."""
    try:
        file = await anyio.to_thread.run_sync(_open, Path(attachment.url))
    except (OSError, ValueError) as error:
        raise unavailable(GONE) from error
    with closing(file):
        yield _chunks(file)


async def _chunks(file: FileIO) -> AsyncIterator[bytes]:
    while True:
        try:
            chunk = await anyio.to_thread.run_sync(file.read, CHUNK)
        except OSError as error:
            raise unavailable(GONE) from error
        if not chunk:
            return
        yield chunk
