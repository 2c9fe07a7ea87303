"""A Jupyter notebook: its texts, its code and what the code printed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from .result import Extraction, Unreadable, text
from .text import clean


def notebook(data: bytes) -> Extraction:
    """Return a notebook's text; raises `Unreadable` if it is none."""
    try:
        cells = json.loads(data)["cells"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Unreadable("damaged") from None
    return text(clean(words) + "\n\n" for cell in cells for words in _cell(cell) if words.strip())


def _cell(cell: Any) -> Iterator[str]:
    source = _joined(cell.get("source", ""))
    if cell.get("cell_type") != "code":
        yield source
        return
    yield f"```\n{source}\n```" if source.strip() else ""
    for output in cell.get("outputs", ()):
        held = output.get("data", {})
        printed = (
            output.get("text")
            or held.get("text/markdown")
            or held.get("text/plain")
            or output.get("traceback", "")
        )
        yield f"[output]\n{_joined(printed)}"


def _joined(lines: Any) -> str:
    return "".join(lines) if isinstance(lines, list) else str(lines)
