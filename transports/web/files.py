"""Files of the page: what a person sends waits here for its turn, and what the bot posts stays for downloads.

Every name on disk is made by us; a person's own name for a file is only data. A file is complete or not there.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from io import BufferedWriter
from pathlib import Path
from shutil import copyfileobj, rmtree

from threads.errors import TransportRejected, TransportUnavailable
from threads.model import Attachment, ThreadId
from threads.store.attachments import safe_name, unavailable
from threads.store.data_folder import plain
from threads.store.disk import Offload
from transports.base.text import digest

log = logging.getLogger(__name__)

CHUNK = 64 * 1024
KEPT_S = 24 * 3600.0
"""How long a sent file waits for the message that it belongs to."""

MOST_SENT = 500
"""Files of one person that wait."""

GONE = "it is not on this machine any more. Sending it again may help."
BROKEN_S = 3_600.0
"""After so long a file that is not complete belongs to a process that is gone: a body may take some minutes."""

_SENT = re.compile(r"[a-f0-9]{32}")
_POSTED = re.compile(r"[^/~\x00]{1,200}~(?:sent)?[a-f0-9]{20}~[^/\x00]{1,200}")
_PICTURES = {b"\x89PNG\r\n\x1a\n": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif", b"RIFF": "webp"}
"""The first bytes of the pictures that a page shows, and their types."""


class TooLarge(Exception):
    """A sent file has more bytes than are taken."""


class TooMany(Exception):
    """A person has sent more files than may wait."""


@dataclass(frozen=True, slots=True)
class PostedFile:
    """A file that a page can have: the message it belongs to, its name, its size in bytes, and its name on disk.

    The bot posted it, or it is a picture that a person ``sent``.
    """

    message_id: str
    name: str
    size: int
    stored: str

    @property
    def sent(self) -> bool:
        return self.stored.split("~")[1].startswith("sent")


class Files:
    """The files below *folder*. *most* is the largest file that is taken, in bytes."""

    def __init__(self, folder: Path, offload: Offload, most: int) -> None:
        self._sent, self._posted = folder / "sent", folder / "posted"
        self._offload, self._most = offload, most

    async def take(self, person: str, name: str, body: AsyncIterator[bytes]) -> Attachment:
        """Store a file that a person sends. Raises `TooLarge`, `TooMany` and OSError."""
        folder, file_id, size = self._sent / plain(person), secrets.token_hex(16), 0
        path = folder / file_id
        fd = await self._offload(_create, folder, path.with_suffix(".part"))
        try:
            with os.fdopen(fd, "wb") as file:
                async for chunk in body:
                    size = _bounded(size + len(chunk), self._most)
                    await self._offload(file.write, chunk)
                await self._offload(_sync, file)
            await self._offload(path.with_suffix(".part").rename, path)
        except BaseException:
            with suppress(OSError):  # half a file is worthless
                path.with_suffix(".part").unlink()
            raise
        return Attachment(file_id, safe_name(name), "", size, f"{person}/{file_id}")

    async def sent(self, person: str, file_id: str, name: str) -> Attachment | None:
        """Return a file that this person has sent, None if there is none."""
        if not _SENT.fullmatch(file_id):
            return None
        try:
            status = await self._offload(os.stat, self._sent / plain(person) / file_id)
        except OSError:
            return None
        return Attachment(file_id, safe_name(name), "", status.st_size, f"{person}/{file_id}")

    @asynccontextmanager
    async def open_sent(self, attachment: Attachment) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a file that a person sent. Raises `threads.errors.FileUnavailable`."""
        person, _, file_id = attachment.url.rpartition("/")
        if not _SENT.fullmatch(file_id):
            raise unavailable(GONE)
        try:
            file = await self._offload((self._sent / plain(person) / file_id).open, "rb")
        except OSError as error:
            raise unavailable(GONE) from error
        with file:

            async def chunks() -> AsyncIterator[bytes]:
                while chunk := await self._offload(file.read, CHUNK):
                    yield chunk

            yield chunks()

    async def keep(self, thread: ThreadId, message_id: str, key: str, file: Path, name: str) -> PostedFile:
        """Store a file that the bot posts; the same *key* is the same file. Raises `PostFailed`."""
        folder = self._posted / plain(thread.channel) / plain(thread.root)
        stored = f"{plain(message_id)}~{digest(key)}~{safe_name(name)}"
        try:
            await self._offload(_copy, file, folder, stored)
            size = (await self._offload(os.stat, folder / stored)).st_size
        except FileNotFoundError as error:
            raise TransportRejected(f"the file {safe_name(name)} is gone") from error
        except OSError as error:
            raise TransportUnavailable(f"the file was not kept: {error.strerror}") from error
        return PostedFile(message_id, safe_name(name), size, stored)

    async def keep_picture(self, thread: ThreadId, message_id: str, sent: Attachment) -> PostedFile | None:
        """Keep a file that a person sent for the pages of the thread, if it is a picture and there is room."""
        source = self._sent / plain(thread.channel) / sent.id
        folder = self._posted / plain(thread.channel) / plain(thread.root)
        stored = f"{plain(message_id)}~sent{digest(sent.id)}~{safe_name(sent.name)}"
        try:
            if not await self._offload(picture_type, source):
                return None
            await self._offload(_link, source, folder, stored)
        except OSError as error:  # the message goes out without it
            log.warning("web.picture_not_kept: %s", error)
            return None
        return PostedFile(message_id, safe_name(sent.name), sent.size or 0, stored)

    async def posted(self, thread: ThreadId) -> list[PostedFile]:
        """Return the files of a thread that the bot posted, by name on disk."""
        return await self._offload(_list, self._posted / plain(thread.channel) / plain(thread.root))

    def path(self, thread: ThreadId, stored: str) -> Path | None:
        """Return where a posted file is, None for a name that is not one of ours."""
        if not _POSTED.fullmatch(stored) or ".." in stored.split("~"):
            return None
        return self._posted / plain(thread.channel) / plain(thread.root) / stored

    async def erase(self, thread: ThreadId) -> None:
        """Delete the files of a thread. Raises OSError."""
        folder = self._posted / plain(thread.channel) / plain(thread.root)
        with suppress(FileNotFoundError):
            await self._offload(rmtree, folder)

    async def sweep(self) -> None:
        """Delete what waited for too long, and what a killed process left half."""
        await self._offload(_sweep, self._sent)


def _create(folder: Path, path: Path) -> int:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if sum(1 for _ in folder.iterdir()) >= MOST_SENT:
        raise TooMany
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


def _bounded(size: int, most: int) -> int:
    if size > most:
        raise TooLarge
    return size


def _sync(file: BufferedWriter) -> None:
    file.flush()
    os.fsync(file.fileno())


def _copy(file: Path, folder: Path, stored: str) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = folder / f".{secrets.token_hex(8)}"
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as target, file.open("rb") as source:
            copyfileobj(source, target)
        part.rename(folder / stored)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise


def picture_type(path: Path) -> str:
    """Return the media type of a picture by its first bytes, a blank for any other file. Raises OSError."""
    with path.open("rb") as file:
        head = file.read(12)
    kind = next((kind for begin, kind in _PICTURES.items() if head.startswith(begin)), "")
    return "" if not kind or (kind == "webp" and head[8:] != b"WEBP") else f"image/{kind}"


def _link(file: Path, folder: Path, stored: str) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        (folder / stored).hardlink_to(file)
    except FileExistsError:
        return  # the message is sent once more
    except OSError:  # a file system without links
        _copy(file, folder, stored)


def _list(folder: Path) -> list[PostedFile]:
    return sorted(_posted_in(folder), key=lambda file: file.stored)


def _posted_in(folder: Path) -> Iterator[PostedFile]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if _POSTED.fullmatch(entry.name):
                    message_id, _, name = entry.name.split("~", 2)
                    yield PostedFile(message_id, name, entry.stat().st_size, entry.name)
    except FileNotFoundError:
        return


def _sweep(folder: Path) -> None:
    now = time.time()
    for path in folder.glob("*/*"):
        with suppress(OSError):
            if now - path.stat().st_mtime > (BROKEN_S if path.suffix == ".part" else KEPT_S):
                path.unlink()
