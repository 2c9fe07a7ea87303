"""The child: ``python -I -m bot.extensions.documents.extract text|site|picture PARENT [MEDIA_TYPE ENDING]``.

``site`` is for a page of the web, of which only the main part is read. The bytes of a file decide what it is. The
sender's claim decides only between kinds of text.
"""

from __future__ import annotations

import io
import mimetypes
import os
import re
import sys
import zipfile
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from .confinement import MEMORY, confine
from .encoding import decoded
from .result import Extraction, Unreadable
from .text import plain

if TYPE_CHECKING:
    from .package import Package

MAX_INPUT = 100_000_000
"""Bytes of a file that are read."""

MAX_PARTS, MAX_XML, MAX_UNPACKED = 5_000, 60_000_000, 200_000_000
"""Files in an archive, and its unpacked bytes: of XML, and of all files."""

_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ENCRYPTED = "EncryptedPackage".encode("utf-16-le")
_FLAT = b"urn:oasis:names:tc:opendocument:xmlns:office:1.0"
_MAIN_PARTS = ("word/document.xml", "ppt/presentation.xml", "xl/workbook.xml")
"""What an Office document mostly names its main part."""
_ROOT = re.compile(rb"<(?:\w+:)?(document|presentation|workbook)[\s>]")
_SAMPLE = 4096
"""Bytes that tell a kind of XML from another."""
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
    return _text(data, media_type, ending, site=what == "site")


def _text(data: bytes, media_type: str, ending: str, *, site: bool = False) -> Extraction:
    """Return the text of *data*; raises `Unreadable`, or any error of a parser for a broken file."""
    if not data.strip():
        raise Unreadable("empty")
    if data.startswith(_OLE):
        raise Unreadable("password" if _ENCRYPTED in data else "other_program")
    kind, _, charset = media_type.partition(";")
    kind, declared = kind.strip().lower(), charset.partition("=")[2].strip("\"' ")
    if data.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _archive(data)
    if read := _reader(data, kind, ending):
        return read(data)
    if _is_page(data, kind, ending):
        from .html import page  # noqa: PLC0415 - only the needed libraries are imported

        return page(data, declared, site=site)
    return plain(data, declared)


def _reader(data: bytes, kind: str, ending: str) -> Callable[[bytes], Extraction] | None:
    """Return the reader of a format that is known by its first bytes, or by what its sender calls it."""
    from . import archives  # noqa: PLC0415 - as above

    if b"%PDF-" in data[:1024] and not data.lstrip().startswith(b"<"):
        from .pdf import pdf as read  # noqa: PLC0415
    elif archives.packed(data):
        read = partial(archives.unpacked, ending=ending, read=_text)
    elif data.lstrip().startswith(b"{\\rtf"):
        from .rich_text import rich_text as read  # noqa: PLC0415
    elif kind in ("message/rfc822", "multipart/related") or ending in (".eml", ".mht", ".mhtml"):
        from .mail import mail  # noqa: PLC0415

        read = partial(mail, read=_text)
    elif ending == ".ipynb":
        from .notebook import notebook as read  # noqa: PLC0415
    elif data.lstrip().startswith(b"<?xml") and _FLAT in data[:_SAMPLE]:
        from .open_document import flat_document as read  # noqa: PLC0415
    else:
        return None
    return read


def _is_page(data: bytes, kind: str, ending: str) -> bool:
    if kind in ("text/html", "application/xhtml+xml") or ending in (".html", ".htm", ".xhtml"):
        return True
    if kind == "text/plain" and ending:
        return False  # its sender named it as something else, and wants it as it is
    start = decoded(data[:_SAMPLE], "")
    return start is not None and start.text.lstrip("\ufeff \t\r\n").lower().startswith(_HTML_STARTS)


def _archive(data: bytes) -> Extraction:
    from .archives import zip_list  # noqa: PLC0415 - as above
    from .package import Package  # noqa: PLC0415

    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts = archive.infolist()
    names = {part.filename for part in parts}
    if not names & {"[Content_Types].xml", "mimetype", *_MAIN_PARTS}:
        if any(name.endswith(".iwa") for name in names):
            raise Unreadable("other_program")
        return zip_list(data)
    # No part has more than its entry says: zipfile stops there.
    xml = sum(part.file_size for part in parts if part.filename.endswith((".xml", ".rels")))
    if len(parts) > MAX_PARTS or xml > MAX_XML or sum(part.file_size for part in parts) > MAX_UNPACKED:
        raise Unreadable("too_large")
    if any(part.flag_bits & 1 for part in parts):
        raise Unreadable("password")
    return _document(data, Package(data)) or zip_list(data)


def _document(data: bytes, package: Package) -> Extraction | None:
    """Return the text of an office document or a book, None for an archive of another kind."""
    from . import book, open_document, slides, word  # noqa: PLC0415 - as above

    kind = package.bytes_of("mimetype")[:100]
    if kind.startswith(b"application/vnd.oasis.opendocument"):
        return open_document.open_document(package)
    if kind.startswith(b"application/epub"):
        return book.book(package)
    main = next(
        (part for part in (*package.linked("", "officeDocument"), *_MAIN_PARTS) if part in package.names), ""
    )
    found = _ROOT.search(package.bytes_of(main)[:_SAMPLE])
    match found and found[1]:
        case b"document":
            return word.word(package, main, _text)
        case b"presentation":
            return slides.slides(package, main)
        case b"workbook":
            mimetypes.knownfiles.clear()  # openpyxl reads them at its import, and no file can be opened
            from .xlsx import workbook  # noqa: PLC0415

            return workbook(data, package)
    if main.endswith(".bin"):
        raise Unreadable("other_program")
    return None


if __name__ == "__main__":
    main(*sys.argv[1:])
