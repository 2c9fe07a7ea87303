"""A Jupyter notebook: its texts, its code and what the code printed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from bot.extensions.documents.problems import LeftOut

from .result import Extraction, Unreadable, text
from .text import clean

_FORMS = ("text/markdown", "text/plain", "text/latex", "text/html", "application/json")
"""The forms of an output that are text, the best one first."""


def notebook(data: bytes) -> Extraction:
    """Return a notebook's text; raises `Unreadable` if it is none."""
    try:
        found = json.loads(data)
        cells = found["cells"] if "cells" in found else found["worksheets"][0]["cells"]  # before version 4
    except (ValueError, LookupError, TypeError, RecursionError):
        raise Unreadable("damaged") from None
    left_out = set[LeftOut]()
    words = (clean(words) + "\n\n" for cell in cells for words in _cell(cell, left_out) if words.strip())
    return text(words, left_out=left_out)


def _cell(cell: Any, left_out: set[LeftOut]) -> Iterator[str]:
    source = _joined(cell.get("source", cell.get("input", "")))
    if cell.get("cell_type") != "code":
        if cell.get("attachments"):
            left_out.add("pictures")
        yield f"{'#' * int(cell.get('level', 1))} {source}" if cell.get("cell_type") == "heading" else source
        return
    yield f"```\n{source}\n```" if source.strip() else ""
    for output in cell.get("outputs", ()):
        held = output.get("data", {})
        if any(form.startswith("image/") for form in held) or output.get("png"):
            left_out.add("pictures")
        text_form = next((held[form] for form in _FORMS if form in held), "")
        printed = output.get("text") or text_form or output.get("traceback", "")
        lines = [f"{line}\n" for line in printed] if "traceback" in output else printed
        yield f"[output]\n{_joined(lines) or '[picture]'}"


def _joined(lines: Any) -> str:
    return "".join(lines) if isinstance(lines, list) else str(lines)
