"""The text of a PDF, page by page."""

from __future__ import annotations

import io
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass

from pypdf import PdfReader
from pypdf.errors import PdfReadError

from .result import SOFT_S, Extraction, Unreadable, text
from .text import clean

MAX_PAGES = 500


@dataclass(slots=True)
class _Pages:
    """The pages that can be read; ``missing`` is when others cannot, ``late`` when there was no time for all."""

    reader: PdfReader
    missing: bool = False
    late: bool = False

    def __iter__(self) -> Iterator[str]:
        for number, page in enumerate(self.reader.pages, 1):
            if number > MAX_PAGES or time.process_time() > SOFT_S:
                self.late = True
                return
            try:
                content = clean(page.extract_text()).strip()
            except MemoryError:
                raise
            except Exception:  # noqa: BLE001 - a page that pypdf fails on, in whatever way, costs only itself
                self.missing = True
                continue
            if content:
                yield f"[page {number}]\n{content}\n\n"


def pdf(data: bytes) -> Extraction:
    """Return a PDF's text; raises `Unreadable`, or whatever pypdf raises on a broken one."""
    logging.disable()
    reader = PdfReader(io.BytesIO(data))
    if reader.is_encrypted and not reader.decrypt(""):
        raise Unreadable("password")
    pages = _Pages(reader)
    try:
        said = text(pages, title=_title(reader))
    except Unreadable:
        raise Unreadable("damaged" if pages.missing else "late" if pages.late else "scanned") from None
    problem = said.problem or ("cut" if pages.late else "partly" if pages.missing else "")
    return Extraction(said.body.rstrip(), said.title, problem)


def _title(reader: PdfReader) -> str:
    try:
        return clean(str((reader.metadata and reader.metadata.title) or ""))
    except (PdfReadError, ValueError, TypeError, AttributeError, RecursionError):
        return ""
