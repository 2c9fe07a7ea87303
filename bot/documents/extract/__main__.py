"""The child: ``python -I -m bot.documents.extract text|picture PARENT [MEDIA_TYPE ENDING]``.

It decides by the bytes of a file what it is. The sender's claim decides only between kinds of text.
"""

from __future__ import annotations

import io
import mimetypes
import os
import sys
import zipfile

from .confinement import MEMORY, confine
from .result import Extraction, Unreadable
from .text import decoded, plain

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
    if data.startswith(b"PK\x03\x04"):
        return _archive(data)
    if data.startswith(_OLE):
        raise Unreadable("password" if _ENCRYPTED in data else "old_office")
    if b"%PDF-" in data[:1024] and not data.lstrip().startswith(b"<"):
        from .pdf import pdf  # noqa: PLC0415 - as above

        return pdf(data)
    kind, _, charset = media_type.partition(";")
    declared = charset.partition("=")[2].strip("\"' ")
    if _is_page(data, kind.strip().lower(), ending):
        from .html import page  # noqa: PLC0415

        return page(data, declared)
    return plain(data, declared)


def _is_page(data: bytes, kind: str, ending: str) -> bool:
    if kind in ("text/html", "application/xhtml+xml") or ending in (".html", ".htm", ".xhtml"):
        return True
    if kind == "text/plain" and ending:
        return False  # its sender named it as something else, and wants it as it is
    start = decoded(data[:4096], "")
    return start is not None and start[0].lstrip("\ufeff \t\r\n").lower().startswith(_HTML_STARTS)


def _archive(data: bytes) -> Extraction:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts = archive.infolist()
    names = {part.filename for part in parts}
    if not names & {"word/document.xml", "xl/workbook.xml"}:
        raise Unreadable("unknown")
    # No part has more than its entry says: zipfile stops there.
    xml = sum(part.file_size for part in parts if part.filename.endswith((".xml", ".rels")))
    if len(parts) > MAX_PARTS or xml > MAX_XML or sum(part.file_size for part in parts) > MAX_UNPACKED:
        raise Unreadable("too_large")
    if any(part.flag_bits & 1 for part in parts):
        raise Unreadable("password")
    if "word/document.xml" in names:
        from .docx import document  # noqa: PLC0415

        return document(data)
    mimetypes.knownfiles.clear()  # openpyxl reads them at its import, and no file can be opened
    from .xlsx import workbook  # noqa: PLC0415

    return workbook(data)


if __name__ == "__main__":
    main(*sys.argv[1:])
