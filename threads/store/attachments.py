"""Stores attached files: safe names, and writes that are complete or leave nothing.

The bytes go to a temporary file outside the workspace. Only a complete, fsynced file is moved into the workspace. A
file that an earlier process stored is found by its path.
"""

from __future__ import annotations

import errno
import hashlib
import re
import unicodedata
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import anyio

from threads import model, wording
from threads.errors import FileUnavailable

from .checksummed_lines import scrub
from .disk import Disk, File, Offload, write_all, write_new
from .image_header import HEAD

FOLDER = "attachments"
"""Their folder in the thread's workspace."""

TEXTS, PICTURES = f"{FOLDER}/.text", f"{FOLDER}/.shown"
"""The folders of extracted texts, and of pictures scaled for models. Each is named after its file."""

MAX_NAME = 120
"""Bytes of a name. The message's id is put before it, and file systems take 255 bytes."""


_SHORT = re.compile(r"[A-Za-z0-9][A-Za-z0-9.]{0,31}")


def safe_name(name: str) -> str:
    """Return a safe file name: letters, digits and a few marks, no folders, never blank."""
    last = scrub(name).replace("\\", "/").rstrip("/").rpartition("/")[2]
    allowed = (c if _allowed(c) else "_" for c in unicodedata.normalize("NFC", last))
    stem, dot, ending = "".join(allowed).strip(". ").rpartition(".")
    if not dot or len(ending.encode()) > MAX_NAME // 4:
        stem, dot, ending = f"{stem}{dot}{ending}", "", ""
    room = MAX_NAME - len(f"{dot}{ending}".encode())
    return f"{stem.encode()[:room].decode('utf-8', 'ignore').rstrip('. ')}{dot}{ending}" or "file"


def _allowed(character: str) -> bool:
    return unicodedata.category(character)[0] in "LNM" or character in "._-+@() "


def paths(message_id: str, names: Sequence[str]) -> Iterator[str]:
    """Return the path of each file of a message in the workspace. No two files have the same path.

    The name that people know begins after the first dash.
    """
    owner = message_id
    if not _SHORT.fullmatch(message_id):
        owner = hashlib.sha256(message_id.encode("utf-8", "replace")).hexdigest()[:10]
    used: set[str] = set()
    for name in map(safe_name, names):
        number, unique = 1, name
        while unique.casefold() in used:
            number += 1
            unique = f"{number}-{name}"
        used.add(unique.casefold())
        yield f"{FOLDER}/{owner}-{unique}"


def sent_files(message: model.Incoming | model.Spoken) -> list[model.SentFile]:
    """Return the files of a message with their places."""
    places = paths(message.id, [attachment.name for attachment in message.files])
    return [
        model.SentFile(attachment, path, message.author)
        for attachment, path in zip(message.files, places, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file on disk: its size in bytes, and its first bytes."""

    size: int
    head: bytes


@dataclass(frozen=True, slots=True)
class Extracted:
    """The text of a file, as Markdown or plain text.

    ``problem`` is a sentence that says why there is no text, or what is missing from it. ``as_is``: the file itself
    is this text, in UTF-8.
    """

    text: str
    title: str = ""
    problem: str = ""
    as_is: bool = False


@dataclass(frozen=True, slots=True)
class ModelImage:
    """A picture in a form that models accept, or no bytes and a ``problem``, which is a sentence.

    ``missing`` is a sentence on what the picture lacks.
    """

    data: bytes
    media_type: str = ""
    problem: str = ""
    missing: str = ""


@dataclass(frozen=True, slots=True)
class AttachmentStore:
    """Stores files of at most ``max_bytes``, one at a time in each workspace."""

    disk: Disk
    offload: Offload
    max_bytes: int

    async def find(self, workspace: Path, path: str) -> StoredFile | None:
        """Return the file if it is stored already. Raises OSError if the disk cannot be read."""
        try:
            data = await self.offload(self.read, workspace, path, self.max_bytes)
        except FileNotFoundError:
            return None
        return StoredFile(len(data), data[:HEAD])

    def read(self, workspace: Path, path: str, most: int) -> bytes:
        """Return a file's bytes, or the last *most* bytes of a longer one. Raises OSError. Blocking."""
        _follow_no_link(workspace, path)
        return self.disk.tail(workspace / path, most)

    async def keep(self, workspace: Path, path: str, chunks: AsyncIterator[bytes]) -> StoredFile:
        """Write the chunks to *path*, all or nothing. Raises `FileUnavailable` or OSError."""
        async with self._moving_to(workspace, path) as temporary:
            return await self._write(await self.offload(self._create, temporary), chunks)

    async def put(self, workspace: Path, path: str, data: bytes) -> None:
        """Write *data* to *path*, all or nothing. Raises OSError."""
        async with self._moving_to(workspace, path) as temporary:
            await self.offload(write_new, self.disk, temporary, data)

    @asynccontextmanager
    async def _moving_to(self, workspace: Path, path: str) -> AsyncIterator[Path]:
        """Yield a temporary path. The file is moved to *path* if the block succeeds."""
        temporary = workspace.parent / "attachment.tmp"
        try:
            yield temporary
            await self.offload(self._move, temporary, workspace, path)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.offload(self._drop, temporary)
            raise

    async def _write(self, file: File, chunks: AsyncIterator[bytes]) -> StoredFile:
        size, head = 0, b""
        try:
            async for chunk in chunks:
                size += len(chunk)
                if size > self.max_bytes:
                    raise unavailable(wording.file_too_large(self.max_bytes))
                head += chunk[: HEAD - len(head)]
                await self.offload(write_all, file, chunk)
            await self.offload(file.fsync)
        finally:
            with anyio.CancelScope(shield=True):
                await self.offload(file.close)
        return StoredFile(size, head)

    def place(self, workspace: Path, path: str) -> Path:
        """Return the absolute path of a file. Raises OSError if a link is in its path. Blocking."""
        _follow_no_link(workspace, path)
        return workspace / path

    def _create(self, temporary: Path) -> File:
        self.disk.mkdir(temporary.parent)
        return self.disk.create(temporary)

    def _move(self, temporary: Path, workspace: Path, path: str) -> None:
        target = workspace / path
        _follow_no_link(workspace, path)
        for folder in (workspace, workspace / FOLDER, target.parent):
            self.disk.mkdir(folder)
        self.disk.rename(temporary, target)
        self.disk.fsync_folder(target.parent)

    def _drop(self, temporary: Path) -> None:
        with suppress(OSError):  # a leftover is ignored, and replaced by the next file
            self.disk.unlink(temporary)


def unavailable(why: str) -> FileUnavailable:
    """Return the error for a file that is not available. *why* is a sentence for people."""
    error = FileUnavailable(why)
    error.friendly = why
    return error


def _follow_no_link(workspace: Path, path: str) -> None:
    """Refuse a link that a tool has put in the path. No tool runs while files are stored or read."""
    target = workspace / path
    for place in (target, *(parent for parent in target.parents if parent.is_relative_to(workspace))):
        if place.is_symlink():
            raise OSError(errno.ELOOP, "a link in the workspace", str(place))
