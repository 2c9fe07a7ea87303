"""What a file is, by its own bytes first: what its sender claims decides only between kinds of text."""

from __future__ import annotations

import io
import mimetypes
import zipfile

from .result import Extraction, Unreadable
from .text import decoded, plain

MAX_PARTS, MAX_XML, MAX_UNPACKED = 5_000, 60_000_000, 200_000_000
"""Files in an archive that is read, and bytes of its XML and of all of it, unpacked."""

_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ENCRYPTED = "EncryptedPackage".encode("utf-16-le")
_HTML_STARTS = ("<!doctype html", "<html", "<head", "<body")


def read(data: bytes, media_type: str, ending: str) -> Extraction:
    """Return what there is to read in *data*; raises `Unreadable`, or whatever a parser raises on a broken file."""
    if not data.strip():
        raise Unreadable("empty")
    if data.startswith(b"PK\x03\x04"):
        return _archive(data)
    if data.startswith(_OLE):
        raise Unreadable("password" if _ENCRYPTED in data else "old_office")
    if b"%PDF-" in data[:1024] and not data.lstrip().startswith(b"<"):
        from .pdf import pdf  # noqa: PLC0415 - only what is needed is imported

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
        return False  # a file that somebody named as something else: they want it as it is
    start = decoded(data[:4096], "")
    return start is not None and start[0].lstrip("\ufeff \t\r\n").lower().startswith(_HTML_STARTS)


def _archive(data: bytes) -> Extraction:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts = archive.infolist()
    names = {part.filename for part in parts}
    if not names & {"word/document.xml", "xl/workbook.xml"}:
        raise Unreadable("unknown")
    # No part can give more than its entry says: zipfile stops there.
    xml = sum(part.file_size for part in parts if part.filename.endswith((".xml", ".rels")))
    if len(parts) > MAX_PARTS or xml > MAX_XML or sum(part.file_size for part in parts) > MAX_UNPACKED:
        raise Unreadable("too_large")
    if any(part.flag_bits & 1 for part in parts):
        raise Unreadable("password")
    if "word/document.xml" in names:
        from .docx import document  # noqa: PLC0415

        return document(data)
    mimetypes.knownfiles.clear()  # openpyxl has them read when it is imported, and no file can be
    from .xlsx import workbook  # noqa: PLC0415

    return workbook(data)
