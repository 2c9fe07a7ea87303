"""The text of a PDF, page by page."""

from __future__ import annotations

import io
import logging
import time
from collections.abc import Iterator
from dataclasses import replace

from pypdf import PageObject, PdfReader
from pypdf.errors import PdfReadError

from .result import SOFT_S, Extraction, Unreadable, text
from .text import clean

MAX_PAGES = 500


def pdf(data: bytes) -> Extraction:
    """Return a PDF's text; raises `Unreadable`, or any error of pypdf for a broken one."""
    logging.disable()
    reader = PdfReader(io.BytesIO(data))
    if reader.is_encrypted and not reader.decrypt(""):
        raise Unreadable("password")
    problems: set[str] = set()
    try:
        extraction = text(_pages(reader, problems), title=_title(reader))
    except Unreadable:
        raise Unreadable(
            "damaged" if "partly" in problems else "late" if "cut" in problems else "scanned"
        ) from None
    problem = extraction.problem or min(problems, default="")  # "cut" before "partly"
    return replace(extraction, body=extraction.body.rstrip(), problem=problem)


def _pages(reader: PdfReader, problems: set[str]) -> Iterator[str]:
    """Yield the pages; adds to *problems* "partly" for a broken page, "cut" if there are too many."""
    for number, page in enumerate(reader.pages, 1):
        if number > MAX_PAGES or time.process_time() > SOFT_S:
            problems.add("cut")
            return
        try:
            lines = [clean(page.extract_text()).strip(), *_annotations(page)]
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 - whatever pypdf raises for a page costs only that page
            problems.add("partly")
            continue
        if any(lines):
            yield "\n".join([f"[page {number}]", *filter(None, lines)]) + "\n\n"


def _annotations(page: PageObject) -> Iterator[str]:
    """Yield what people wrote onto a page: the values of its form, and comments."""
    for one in page.annotations or ():
        note = one.get_object()
        if note.get("/Subtype") == "/Widget":
            field = note if "/T" in note or "/Parent" not in note else note["/Parent"]
            name, value = (str(note.get(key, field.get(key, ""))) for key in ("/T", "/V"))
            if value and value != "/Off":
                yield clean(f"[field {name}: {value.removeprefix('/')}]")
        elif words := str(note.get("/Contents", "")).strip():
            author = str(note.get("/T", ""))
            yield clean(f"[comment{f' by {author}' if author else ''}: {words}]")


def _title(reader: PdfReader) -> str:
    try:
        return clean(str((reader.metadata and reader.metadata.title) or ""))
    except (PdfReadError, ValueError, TypeError, AttributeError, RecursionError):
        return ""
