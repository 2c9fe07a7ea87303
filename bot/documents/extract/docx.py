"""The text of a Word document: its paragraphs and tables in their order, headings and lists marked."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

from docx import Document
from docx.table import Table
from docx.text.paragraph import Paragraph

from .result import Extraction, text
from .text import clean

_HEADING = re.compile(r"Heading ([1-6])")


def document(data: bytes) -> Extraction:
    """Return a document's text; raises `Unreadable`, or whatever python-docx raises on a broken one."""
    opened = Document(io.BytesIO(data))
    parts = (
        _paragraph(item) if isinstance(item, Paragraph) else _table(item)
        for item in opened.iter_inner_content()
    )
    return text((clean(part) for part in parts if part), title=clean(opened.core_properties.title))


def _paragraph(paragraph: Paragraph) -> str:
    if not (words := paragraph.text.strip()):
        return ""
    style = str(paragraph.style.name) if paragraph.style and paragraph.style.name else ""
    if heading := _HEADING.fullmatch(style):
        return f"{'#' * int(heading[1])} {words}\n\n"
    return f"- {words}\n" if style.startswith("List") else f"{words}\n\n"


def _table(table: Table) -> str:
    return "\n".join(_rows(table)) + "\n\n"


def _rows(table: Table) -> Iterator[str]:
    for row in table.rows:
        yield "| " + " | ".join(" ".join(cell.text.split()) for cell in row.cells) + " |"
