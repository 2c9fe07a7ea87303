"""A thread's files in and out, its pictures, and its messages from before the bot joined."""

from __future__ import annotations

import errno
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import anyio

from threads import wording
from threads.errors import FileUnavailable, PostFailed
from threads.model import Attachment, File, Image, Incoming, Spoken, ThreadId

from .attachments import (
    PICTURES,
    TEXTS,
    AttachmentStore,
    Extracted,
    ModelImage,
    ReadableFile,
    StoredFile,
    paths,
    safe_name,
    unavailable,
)
from .image_header import MAX_BYTES, look

log = logging.getLogger(__name__)

MAX_FILES = 10
"""Files of one message that are kept."""

WITHIN_S = 120.0
"""How long one file may take to arrive."""

OPENED_WITHIN_S = 60.0
"""How long it may take to read all files of one message, once they are there."""

EARLIER_WITHIN_S = 8.0
"""How long an answer may wait for what was said before."""

TOO_SLOW, SHUT = "it took too long to read.", "my disk does not give it back."


class Source(Protocol):
    """What a transport gives and takes besides messages. See `transports.base.transport.Transport`."""

    async def earlier(self, thread: ThreadId, before: str) -> Sequence[Spoken]:
        """Return what was said before that message; nothing where that cannot be. Raises `PostFailed`."""
        ...

    def download(self, attachment: Attachment) -> AbstractAsyncContextManager[AsyncIterator[bytes]]: ...

    async def attach(self, thread: ThreadId, key: str, file: Path, name: str) -> None:
        """Post a file. Raises `PostFailed`."""
        ...


class Reader(Protocol):
    """Reads foreign files where that can do no harm. Both methods raise OSError if a file cannot be opened."""

    async def text_of(self, data: Path, media_type: str, name: str = "") -> Extracted:
        """Return the text of a file."""
        ...

    async def picture_of(self, data: Path) -> ModelImage:
        """Return a picture, scaled down to what models need."""
        ...


@dataclass(frozen=True, slots=True)
class ThreadFiles:
    """One for all threads. ``source`` gives a transport by its name, ``workspace`` where a thread's files are.

    Without a ``reader`` files are kept and named, and only pictures that models take as they are are shown.
    """

    store: AttachmentStore
    source: Callable[[str], Source]
    workspace: Callable[[ThreadId], Awaitable[Path]]
    reader: Reader | None = None

    async def files(self, incoming: Incoming) -> list[File]:
        """Return the message's files, each of them on disk, whole and read, or with what is wrong with it."""
        attachments = incoming.files[:MAX_FILES]
        places = paths(incoming.id, [attachment.name for attachment in attachments])
        files = [
            await self._file(incoming.thread, attachment, path)
            for attachment, path in zip(attachments, places, strict=True)
        ]
        until = anyio.current_time() + OPENED_WITHIN_S
        files = [await self._opened(incoming.thread, file, until) if file.path else file for file in files]
        if (more := len(incoming.files) - MAX_FILES) > 0:
            files.append(File(wording.more_files(more), problem=wording.too_many_files(MAX_FILES)))
        return files

    async def picture(self, thread: ThreadId, image: Image) -> Image:
        """Return the picture with its bytes, or without them when it is not there any more as it was."""
        read = self.store.read
        try:
            data = await self.store.offload(read, await self.workspace(thread), image.file, MAX_BYTES + 1)
        except OSError as error:
            log.warning("picture.unread: %s", error, extra={"thread_id": str(thread)})
            return image
        seen = look(data)
        same = seen and seen.fits and seen.media_type == image.media_type and len(data) <= MAX_BYTES
        return replace(image, data=data) if same else image

    async def earlier(self, incoming: Incoming, note: Callable[[str], None]) -> Sequence[Spoken]:
        """Return what was said before the bot was asked into the thread; that it could not be read is noted.

        Nothing when the message began the thread.
        """
        thread = incoming.thread
        if thread.root == incoming.id:
            return ()
        try:
            with anyio.fail_after(EARLIER_WITHIN_S):
                return await self.source(thread.transport).earlier(thread, incoming.id)
        except (PostFailed, OSError) as error:
            log.warning("earlier.unread: %s", error, extra={"thread_id": str(thread)})
            note(wording.NOT_HEARD)
            return ()

    async def _file(self, thread: ThreadId, attachment: Attachment, path: str) -> File:
        name, ids = safe_name(attachment.name), {"thread_id": str(thread)}
        try:
            kept = await self._kept(thread, attachment, path)
        except FileUnavailable as error:
            log.warning("file.unread: %s", error, extra=ids)
            return File(name, problem=error.friendly or wording.NO_FILE)
        except TimeoutError:
            return File(name, problem=wording.FILE_LATE)
        except OSError as error:
            log.warning("file.not_kept: %s", error, extra=ids)
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            return File(name, problem=wording.DISK_FULL if full else wording.DISK_REFUSES)
        seen = look(kept.head)
        claimed = "" if attachment.media_type.startswith("image/") else attachment.media_type
        takes = kept.size <= MAX_BYTES and seen is not None and (seen.small if self.reader else seen.fits)
        return File(name, path, seen.media_type if seen else claimed, kept.size, picture=takes)

    async def _opened(self, thread: ThreadId, file: File, until: float) -> File:
        """Return the file with what of it a model can be shown; what cannot be is told in it."""
        if self.reader is None or file.picture:
            return file
        opened = self._shown if file.media_type.startswith("image/") else self._read
        try:
            with anyio.fail_after(until - anyio.current_time()):
                return await opened(self.reader, thread, file)
        except TimeoutError:
            return replace(file, problem=TOO_SLOW)
        except OSError as error:
            log.warning("file.not_opened: %s", error, extra={"thread_id": str(thread)})
            return replace(file, problem=SHUT)

    async def _read(self, reader: Reader, thread: ThreadId, file: File) -> File:
        workspace = await self.workspace(thread)
        place = await self.store.offload(self.store.place, workspace, file.path)
        found = await reader.text_of(place, file.media_type, file.name)
        if not found.text:
            return replace(file, problem=found.problem)
        if not found.as_is:
            text_path = f"{TEXTS}/{place.name}.txt"
            await self.store.put(workspace, text_path, found.text.encode())
        return ReadableFile(
            file.name,
            file.path,
            file.media_type,
            file.size,
            text=found.text,
            text_path=file.path if found.as_is else text_path,
            missing=found.problem,
        )

    async def _shown(self, reader: Reader, thread: ThreadId, file: File) -> File:
        workspace = await self.workspace(thread)
        place = await self.store.offload(self.store.place, workspace, file.path)
        found = await reader.picture_of(place)
        if found.problem:
            return replace(file, problem=found.problem)
        path = f"{PICTURES}/{place.name}.{found.media_type.removeprefix('image/')}"
        await self.store.put(workspace, path, found.data)
        shown = Image(path, found.media_type)
        return ReadableFile(file.name, file.path, file.media_type, file.size, shown=shown)

    async def _kept(self, thread: ThreadId, attachment: Attachment, path: str) -> StoredFile:
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
        except Exception as error:  # the boundary of a transport: its bugs are files that cannot be had
            log.exception("file.download_failed: see the traceback", extra={"thread_id": str(thread)})
            raise unavailable(wording.NO_FILE) from error
