"""The cells of an Excel workbook as CSV, sheet by sheet: values, not formulas."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from openpyxl import load_workbook

from .result import SOFT_S, Extraction, text
from .text import clean

MAX_ROWS, MAX_COLUMNS = 50_000, 200
"""Of one sheet, blank ones included: a file of a few bytes may claim a million rows of 16,384."""


@dataclass(slots=True)
class _Sheets:
    """The sheets as text; ``late`` is when there was no time or room for all of them."""

    book: Any
    late: bool = False

    def __iter__(self) -> Iterator[str]:
        for sheet in self.book.worksheets:
            yield f"## {' '.join(clean(sheet.title).split())}\n"
            for number, row in enumerate(sheet.iter_rows(max_col=MAX_COLUMNS, values_only=True), 1):
                if number > MAX_ROWS or time.process_time() > SOFT_S:
                    self.late = True
                    break
                yield _line(row)
            yield "\n"


def workbook(data: bytes) -> Extraction:
    """Return a workbook's values; raises `Unreadable`, or whatever openpyxl raises on a broken one."""
    book = load_workbook(io.BytesIO(data), read_only=True, data_only=True, keep_links=False)
    sheets = _Sheets(book)
    said = text(sheets, title=clean(str(book.properties.title or "")))
    return replace(said, problem="cut") if sheets.late else said


def _line(row: tuple[object, ...]) -> str:
    cells = ["" if cell is None else clean(str(cell)) for cell in row]
    while cells and not cells[-1]:
        cells.pop()
    if not cells:
        return ""
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(cells)
    return line.getvalue()
