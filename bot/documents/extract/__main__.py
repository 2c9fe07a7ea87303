"""The child: ``python -I -m bot.documents.extract text|picture PARENT [MEDIA_TYPE ENDING]``.

It decides by the bytes of a file what it is. The sender's claim decides only between kinds of text.
"""

from __future__ import annotations

import io
import mimetypes
import os
import sys
import zipfile
from collections.abc import Callable
from functools import partial

from .confinement import MEMORY, confine
from .encoding import decoded
from .result import Extraction, Unreadable
from .text import plain

MAX_INPUT = 100_000_000
"""Bytes of a file that are read."""

MAX_PARTS, MAX_XML, MAX_UNPACKED = 5_000, 60_000_000, 200_000_000
"""Files in an archive, and its unpacked bytes: of XML, and of all files."""

_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ENCRYPTED = "EncryptedPackage".encode("utf-16-le")
_HTML_STARTS = ("<!doctype html", "<html", "<head", "<body")


def main(what: str, parent: str, media_type: str = "", ending: str = "") -> None:
    """Read standard input, and write what is in it."""
    confine(int(parent), MEMORY[what])
    output = os.dup(1)
    os.dup2(2, 1)  # what a library prints is not output
    try:
        extraction = _read(what, media_type, ending)
    except Unreadable as error:
        extraction = Extraction(problem=error.code)
    except MemoryError:
        extraction = Extraction(problem="too_large", fault="MemoryError")
    except Exception as error:  # noqa: BLE001 - the boundary of the parsers: they fail in any way
        extraction = Extraction(problem="damaged", fault=type(error).__name__)
    with os.fdopen(output, "wb") as file:
        file.write(extraction.encoded())


def _read(what: str, media_type: str, ending: str) -> Extraction:
    data = sys.stdin.buffer.read(MAX_INPUT + 1)
    if len(data) > MAX_INPUT:
        raise Unreadable("too_large")
    if what == "picture":
        from .image import picture  # noqa: PLC0415 - only the needed libraries are imported

        return picture(data)
    return _text(data, media_type, ending)


def _text(data: bytes, media_type: str, ending: str) -> Extraction:
    """Return the text of *data*; raises `Unreadable`, or any error of a parser for a broken file."""
    if not data.strip():
        raise Unreadable("empty")
    if data.startswith(_OLE):
        raise Unreadable("password" if _ENCRYPTED in data else "old_office")
    kind, _, charset = media_type.partition(";")
    kind, declared = kind.strip().lower(), charset.partition("=")[2].strip("\"' ")
    if data.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _archive(data)
    if read := _reader(data, kind, ending):
        return read(data)
    if _is_page(data, kind, ending):
        from .html import page  # noqa: PLC0415 - only the needed libraries are imported

        return page(data, declared)
    return plain(data, declared)


def _reader(data: bytes, kind: str, ending: str) -> Callable[[bytes], Extraction] | None:
    """Return the reader of a format that is known by its first bytes, or by what its sender calls it."""
    if b"%PDF-" in data[:1024] and not data.lstrip().startswith(b"<"):
        from .pdf import pdf as read  # noqa: PLC0415 - as above
    elif data.startswith(b"\x1f\x8b") or data[257:262] == b"ustar":
        from .archives import tar_list as read  # noqa: PLC0415
    elif data.startswith(b"{\\rtf"):
        from .rich_text import rich_text as read  # noqa: PLC0415
    elif kind == "message/rfc822" or ending == ".eml":
        from .mail import mail  # noqa: PLC0415

        read = partial(mail, read=_text)
    elif ending == ".ipynb":
        from .notebook import notebook as read  # noqa: PLC0415
    else:
        return None
    return read


def _is_page(data: bytes, kind: str, ending: str) -> bool:
    if kind in ("text/html", "application/xhtml+xml") or ending in (".html", ".htm", ".xhtml"):
        return True
    if kind == "text/plain" and ending:
        return False  # its sender named it as something else, and wants it as it is
    start = decoded(data[:4096], "")
    return start is not None and start.text.lstrip("\ufeff \t\r\n").lower().startswith(_HTML_STARTS)


def _archive(data: bytes) -> Extraction:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts = archive.infolist()
        kind = archive.read("mimetype")[:100] if "mimetype" in archive.namelist() else b""
    names = {part.filename for part in parts}
    from . import archives, office  # noqa: PLC0415

    if "word/document.xml" in names:
        read = office.word
    elif "ppt/presentation.xml" in names:
        read = office.slides
    elif kind.startswith(b"application/vnd.oasis.opendocument"):
        read = office.open_document
    elif kind.startswith(b"application/epub"):
        read = archives.book
    elif "xl/workbook.xml" in names:
        mimetypes.knownfiles.clear()  # openpyxl reads them at its import, and no file can be opened
        from .xlsx import workbook as read  # noqa: PLC0415
    else:
        return archives.zip_list(data)
    # No part has more than its entry says: zipfile stops there.
    xml = sum(part.file_size for part in parts if part.filename.endswith((".xml", ".rels")))
    if len(parts) > MAX_PARTS or xml > MAX_XML or sum(part.file_size for part in parts) > MAX_UNPACKED:
        raise Unreadable("too_large")
    if any(part.flag_bits & 1 for part in parts):
        raise Unreadable("password")
    return read(data)


if __name__ == "__main__":
    main(*sys.argv[1:])
