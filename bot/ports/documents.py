"""What is read of files and web pages from outside without an extension that takes them apart."""

from __future__ import annotations

import codecs
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from threads.invisible_text import prose
from threads.store.attachments import Extracted, ModelImage
from threads.store.disk import Offload
from threads.store.image_header import MAX_BYTES, read_header

MOST_TEXT = 1_000_000
"""Bytes of a plain text that are read."""

UNREAD = "the extension `documents` reads files of this kind, and it is not installed here."


@dataclass(frozen=True, slots=True)
class PlainDocuments:
    """Reads plain text in UTF-8, and pictures that models take as they are."""

    offload: Offload

    async def text_of(
        self, data: bytes | Path, media_type: str, name: str = "", *, site: bool = False
    ) -> Extracted:
        del media_type, name, site  # its bytes say whether it is text
        read = await self.offload(_beginning, data, MOST_TEXT + 1)
        try:
            text = codecs.getincrementaldecoder("utf-8")().decode(read[:MOST_TEXT], len(read) <= MOST_TEXT)
        except UnicodeDecodeError:
            return Extracted("", problem=UNREAD)
        shown = prose(text, lambda _: "")
        if not shown.strip():
            return Extracted("", problem="it is empty.")
        cut = "only the beginning of it was read." if len(read) > MOST_TEXT else ""
        return Extracted(shown, problem=cut, as_is=shown == text)

    async def picture_of(self, data: bytes | Path) -> ModelImage:
        read = await self.offload(_beginning, data, MAX_BYTES + 1)
        header = read_header(read)
        if header and header.fits and len(read) <= MAX_BYTES:
            return ModelImage(read, header.media_type)
        return ModelImage(b"", problem=UNREAD)


def _beginning(data: bytes | Path, most: int) -> bytes:
    if isinstance(data, bytes):
        return data[:most]
    with os.fdopen(open_regular(data), "rb") as file:
        return file.read(most)


def open_regular(path: Path) -> int:
    """Open a regular file, following no link at its end. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(f"{path} is not a regular file")
    return fd
