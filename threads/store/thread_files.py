"""A thread's files in and out, its pictures, and its messages from before the bot joined."""

from __future__ import annotations

import errno
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path, PurePath
from typing import Literal, Protocol

import anyio

from threads import wording
from threads.errors import FileUnavailable, PostFailed
from threads.model import Attachment, Earlier, File, Image, Incoming, SentFile, Spoken, ThreadId, time_of

from .attachments import (
    PICTURES,
    TEXTS,
    AttachmentStore,
    Extracted,
    ModelImage,
    StoredFile,
    safe_name,
    sent_files,
    unavailable,
)
from .image_header import MAX_BYTES, read_header

log = logging.getLogger(__name__)

MAX_FILES = 10
"""Files that one message brings, its own and those of the lines before it."""

WITHIN_S = 120.0
"""Seconds that the download of one file may take."""

OPENED_WITHIN_S = 60.0
"""Seconds to extract the content of all files of one message, once they are stored."""

EARLIER_WITHIN_S = 8.0
"""Seconds that an answer may wait for the thread's earlier messages."""

MOST_LOOKS, LOOKED_WITHIN_S = 25, 30.0
"""How often a platform is asked for lines to find the files of a thread, and the seconds that all of it may take."""

AUDIO = (".flac", ".m4a", ".mp3", ".mpga", ".oga", ".ogg", ".opus", ".wav", ".webm")
"""The endings of recordings, for files whose media type does not say what they are."""

NO_TYPE = ("", "application/octet-stream", "application/ogg")

TOO_SLOW, SHUT = "it took too long to read.", "my disk does not give it back."


class Source(Protocol):
    """A transport's files and earlier messages. See `transports.base.transport.Transport`."""

    async def earlier(self, thread: ThreadId, before: str, after: str = "") -> Earlier:
        """Return the messages before that one, and after the other one if it is given. Raises `PostFailed`."""
        ...

    def download(self, attachment: Attachment) -> AbstractAsyncContextManager[AsyncIterator[bytes]]: ...

    async def attach(self, thread: ThreadId, key: str, file: Path, name: str) -> None:
        """Post a file. Raises `PostFailed`."""
        ...


class Documents(Protocol):
    """Reads hostile files and pages. Both methods raise OSError for a file that cannot be opened."""

    async def text_of(
        self, data: bytes | Path, media_type: str, name: str = "", *, site: bool = False
    ) -> Extracted:
        """Return the text of a file, of a *site*'s page only the main part.

        *media_type* and *name* are the sender's claim, and only a hint. With a ``problem`` and a text, something is
        missing from the text.
        """
        ...

    async def picture_of(self, data: bytes | Path) -> ModelImage:
        """Return a picture, as small as models need it. With a ``problem`` it has no bytes."""
        ...


@dataclass(frozen=True, slots=True)
class ThreadFiles:
    """The files of all threads. ``source`` returns a transport by its name, ``workspace`` a thread's folder.

    ``is_forgotten`` returns whether a line of a thread is not to be read again.
    """

    store: AttachmentStore
    source: Callable[[str], Source]
    workspace: Callable[[ThreadId], Awaitable[Path]]
    reader: Documents
    is_forgotten: Callable[[ThreadId, Spoken], bool] = lambda *_: False

    async def fetch(self, thread: ThreadId, sent: Sequence[SentFile]) -> list[File]:
        """Return files of the thread, each complete and read, or with its problem; the last stands for too many."""
        files = [await self._file(thread, one.attachment, one.path) for one in sent[:MAX_FILES]]
        until = anyio.current_time() + OPENED_WITHIN_S
        files = [await self._with_content(thread, file, until) if file.path else file for file in files]
        if (more := len(sent) - MAX_FILES) > 0:
            files.append(File(wording.more_files(more), problem=wording.too_many_files(MAX_FILES)))
        return files

    async def picture(self, thread: ThreadId, image: Image) -> Image:
        """Return the picture with its bytes, or without them if the file is gone or has changed."""
        read = self.store.read
        try:
            data = await self.store.offload(read, await self.workspace(thread), image.file, MAX_BYTES + 1)
        except OSError as error:
            log.warning("picture.unread: %s", error, extra={"thread_id": str(thread)})
            return image
        header = read_header(data)
        unchanged = (
            header and header.fits and header.media_type == image.media_type and len(data) <= MAX_BYTES
        )
        return replace(image, data=data) if unchanged else image

    async def bytes_of(self, thread: ThreadId, file: File) -> bytes:
        """Return the bytes of a stored file. Raises OSError."""
        read = self.store.read
        return await self.store.offload(read, await self.workspace(thread), file.path, self.store.max_bytes)

    async def with_text(self, thread: ThreadId, file: File, text: str) -> File:
        """Return the file with its *text*, which is stored beside it. Raises OSError."""
        text_path = f"{TEXTS}/{PurePath(file.path).name}.txt"
        await self.store.put(await self.workspace(thread), text_path, text.encode())
        return replace(file, text=text, text_path=text_path)

    async def earlier(self, incoming: Incoming, after: str, note: Callable[[str], None]) -> Earlier:
        """Return the thread's lines between two messages, or all before one. If they cannot be read, *note* says so.

        There are none if this message is the older of the two, or begins the thread.
        """
        thread = incoming.thread
        if incoming.id == thread.root or (time_of(incoming.id) or inf) < (time_of(after) or 0):
            return Earlier()
        try:
            with anyio.fail_after(EARLIER_WITHIN_S):
                return await self._lines(thread, incoming.id, after)
        except (PostFailed, OSError) as error:
            log.warning("earlier.unread: %s", error, extra={"thread_id": str(thread)})
            note(wording.EARLIER_UNREAD)
            return Earlier()

    async def sent_to(self, thread: ThreadId) -> list[SentFile]:
        """Return the files of the thread, newest first: of its root, and as far back as `MOST_LOOKS` looks reach.

        Raises `PostFailed` if the platform cannot be asked at all.
        """
        files, before = dict[str, SentFile](), ""
        if not thread.root:  # the channel itself
            return []
        with anyio.move_on_after(LOOKED_WITHIN_S):
            for _ in range(MOST_LOOKS):
                part = await self._lines(thread, before)
                root, lines = part.lines[:1], part.lines[1:]
                for line in (*reversed(lines), *root):
                    files |= {sent.path: sent for sent in sent_files(line) if sent.path not in files}
                oldest = lines[0].id if part.left_out and lines else ""
                if oldest in ("", before):
                    break
                before = oldest
        return list(files.values())

    async def _lines(self, thread: ThreadId, before: str, after: str = "") -> Earlier:
        """Return lines as `Source.earlier` does, without those that were forgotten; with one goes the title."""
        found = await self.source(thread.transport).earlier(thread, before, after)
        lines = tuple(line for line in found.lines if not self.is_forgotten(thread, line))
        return found if len(lines) == len(found.lines) else replace(found, lines=lines, title="")

    async def _file(self, thread: ThreadId, attachment: Attachment, path: str) -> File:
        name, ids = safe_name(attachment.name), {"thread_id": str(thread)}
        try:
            stored = await self._store(thread, attachment, path)
        except FileUnavailable as error:
            log.warning("file.unread: %s", error, extra=ids)
            return File(name, problem=error.friendly or wording.NO_FILE)
        except TimeoutError:
            return File(name, problem=wording.FILE_LATE)
        except OSError as error:
            log.warning("file.not_kept: %s", error, extra=ids)
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            return File(name, problem=wording.DISK_FULL if full else wording.DISK_REFUSES)
        header = read_header(stored.head)
        claimed = "" if attachment.media_type.startswith("image/") else attachment.media_type
        media_type = header.media_type if header else claimed
        return File(name, path, media_type, stored.size, audio=audio_kind(attachment))

    async def _with_content(self, thread: ThreadId, file: File, until: float) -> File:
        """Return the file with its content for a model, or with its problem."""
        if file.audio:
            return file
        extract = self._picture if file.media_type.startswith("image/") else self._text
        try:
            with anyio.fail_after(until - anyio.current_time()):
                place = await self.store.offload(self.store.place, await self.workspace(thread), file.path)
                return await extract(thread, file, place)
        except TimeoutError:
            return replace(file, problem=TOO_SLOW)
        except OSError as error:
            log.warning("file.not_opened: %s", error, extra={"thread_id": str(thread)})
            return replace(file, problem=SHUT)

    async def _text(self, thread: ThreadId, file: File, place: Path) -> File:
        found = await self.reader.text_of(place, file.media_type, file.name)
        if not found.text:
            return replace(file, problem=found.problem)
        if found.as_is:
            return replace(file, text=found.text, text_path=file.path, missing=found.problem)
        return replace(await self.with_text(thread, file, found.text), missing=found.problem)

    async def _picture(self, thread: ThreadId, file: File, place: Path) -> File:
        found = await self.reader.picture_of(place)
        if found.problem:
            return replace(file, problem=found.problem)
        path = f"{PICTURES}/{place.name}.{found.media_type.removeprefix('image/')}"
        await self.store.put(await self.workspace(thread), path, found.data)
        return replace(file, missing=found.missing, shown=Image(path, found.media_type))

    async def _store(self, thread: ThreadId, attachment: Attachment, path: str) -> StoredFile:
        workspace = await self.workspace(thread)
        if found := await self.store.find(workspace, path):
            return found
        if attachment.size > self.store.max_bytes:
            raise unavailable(wording.file_too_large(self.store.max_bytes))
        with anyio.fail_after(WITHIN_S):
            async with aclosing(self._chunks(thread, attachment)) as chunks:
                return await self.store.keep(workspace, path, chunks)

    async def _chunks(self, thread: ThreadId, attachment: Attachment) -> AsyncGenerator[bytes]:
        try:
            async with self.source(thread.transport).download(attachment) as chunks:
                async for chunk in chunks:
                    yield chunk
        except FileUnavailable:
            raise
        except Exception as error:  # the boundary of a transport: its bugs make a file unavailable
            log.exception("file.download_failed: see the traceback", extra={"thread_id": str(thread)})
            raise unavailable(wording.NO_FILE) from error


def audio_kind(attachment: Attachment) -> Literal["", "voice", "file"]:
    """Return what kind of recording a file is by what the platform says, blank for another file."""
    media_type = attachment.media_type.partition(";")[0].strip().lower()
    named_so = media_type in NO_TYPE and PurePath(attachment.name).suffix.lower() in AUDIO
    if attachment.voice:
        return "voice"
    return "file" if media_type.startswith("audio/") or named_so else ""
