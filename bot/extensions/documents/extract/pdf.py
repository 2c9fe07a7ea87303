"""The text of a PDF, page by page."""

from __future__ import annotations

import io
import logging
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pypdf import PageObject, PdfReader
from pypdf.errors import PdfReadError
from pypdf.generic import DictionaryObject, PdfObject

from bot.extensions.documents.problems import LeftOut

from .result import SOFT_S, Extraction, Unreadable, text
from .text import clean

MAX_PAGES = 500

_UNREADABLE = re.compile("[\x00-\x08\x0e-\x1f\ufffd\ue000-\uf8ff]")
_MOST_UNREADABLE = 0.1
"""The largest share of characters that mean nothing, on a page whose fonts say what their letters are."""


_HIDDEN = 2 | 32
"""The flags of an annotation that no page shows."""

_COMBO = 1 << 17
"""The flag of a list that shows only what is chosen."""

_LEAST = 100
"""Pixels of a side of what counts as a picture: smaller ones are lines and ornaments."""


def pdf(data: bytes) -> Extraction:
    """Return a PDF's text; raises `Unreadable`, or any error of pypdf for a broken one."""
    logging.disable()
    reader = PdfReader(io.BytesIO(data))
    if reader.is_encrypted and not reader.decrypt(""):
        raise Unreadable("password")
    left_out = set[LeftOut]()
    try:
        extraction = text(_parts(reader, left_out), title=_title(reader), left_out=left_out)
    except Unreadable:
        raise Unreadable(
            "damaged" if "pages" in left_out else "late" if "rest" in left_out else "scanned"
        ) from None
    return replace(extraction, body=extraction.body.rstrip())


def _parts(reader: PdfReader, left_out: set[LeftOut]) -> Iterator[str]:
    for number, page in enumerate(reader.pages, 1):
        if number > MAX_PAGES or time.process_time() > SOFT_S:
            left_out.add("rest")
            break
        lines: list[str] = []
        try:
            for line in _page(page, left_out):
                lines += [line] if line else []  # each as it comes: what is broken costs only itself
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 - whatever pypdf raises for a page costs only the rest of that page
            left_out.add("pages")
        if lines:
            yield "\n".join([f"[page {number}]", *lines]) + "\n\n"
    for name in _embedded(reader):
        left_out.add("embedded")
        yield f"[embedded file: {clean(name)}]\n"


def _page(page: PageObject, left_out: set[LeftOut]) -> Iterator[str]:
    words = page.extract_text()
    yield clean(words).strip()
    if len(_UNREADABLE.findall(words)) > _MOST_UNREADABLE * len(words):
        left_out.add("characters")
    if any(_pictures(page)):
        left_out.add("pictures" if words.strip() else "scans")
    yield from _annotations(page, words)


def _pictures(page: PageObject) -> Iterator[bool]:
    """Yield True for each picture on a page."""
    for one in _held(_held(page, "/Resources"), "/XObject").values():
        drawn = one.get_object()
        sides = (drawn.get("/Width", 0), drawn.get("/Height", 0))
        yield drawn.get("/Subtype") == "/Image" and min(sides) >= _LEAST


def _annotations(page: PageObject, words: str) -> Iterator[str]:
    """Yield what lies on a page with these words: the values of its form, comments, and where its links lead."""
    for one in page.annotations or ():
        note = one.get_object()
        if int(note.get("/F", 0)) & _HIDDEN:
            continue
        match note.get("/Subtype"):
            case "/Widget":
                yield _field(note)
            case "/Link":
                address = str(_held(note, "/A").get("/URI", ""))
                yield clean(f"[link: {address}]") if address and address not in words else ""
            case _ if content := str(note.get("/Contents", "")).strip():
                author = str(note.get("/T", ""))
                yield clean(f"[comment{f' by {author}' if author else ''}: {content}]")


def _field(widget: DictionaryObject) -> str:
    """Return the name of a form's field and what it shows: of a list all of its entries, the chosen ones first."""
    field = widget if "/T" in widget else _held(widget, "/Parent")
    name, value = ((widget if key in widget else field).get(key, "") for key in ("/T", "/V"))
    if widget.get("/AS", value) == "/Off":
        return ""
    value = value.get_object() if isinstance(value, PdfObject) else value
    options = [_option(one.get_object()) for one in _held(widget if "/Opt" in widget else field, "/Opt")]
    named = dict(options)
    chosen = [named.get(str(one), str(one)) for one in (value if isinstance(value, list) else [value])]
    shown = ", ".join(filter(None, chosen)).removeprefix("/")
    if options and not int(field.get("/Ff", 0)) & _COMBO:
        shown = f"{shown or 'none'} (of {', '.join(named.values())})"
    return clean(f"[field {name}: {shown}]") if shown not in ("", "Off", "None") else ""


def _option(option: PdfObject) -> tuple[str, str]:
    """Return the value of an entry and its words."""
    if isinstance(option, list) and len(option) > 1:
        return str(option[0]), str(option[1])
    return str(option), str(option)


def _held(holder: Mapping[str, Any], key: str) -> Any:
    """Return a dictionary or a list that is in another one, an empty dictionary if there is none."""
    if key not in holder:
        return {}
    return holder[key]  # this follows a reference, which `get` does not


def _embedded(reader: PdfReader) -> Iterator[str]:
    try:
        yield from list(reader.attachments)
    except (PdfReadError, ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return


def _title(reader: PdfReader) -> str:
    try:
        return clean(str((reader.metadata and reader.metadata.title) or ""))
    except (PdfReadError, ValueError, TypeError, AttributeError, RecursionError):
        return ""
