"""The cells of an Excel workbook as CSV, sheet by sheet: values, not formulas."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Iterator
from dataclasses import replace

from openpyxl import Workbook, load_workbook

from .result import SOFT_S, Extraction, text
from .text import clean

MAX_ROWS, MAX_COLUMNS = 50_000, 200
"""Of one sheet, with blank ones: a file of a few bytes may claim a million rows of 16,384."""


def workbook(data: bytes) -> Extraction:
    """Return a workbook's values; raises `Unreadable`, or any error of openpyxl for a broken one."""
    book = load_workbook(io.BytesIO(data), read_only=True, data_only=True, keep_links=False)
    problems: set[str] = set()
    extraction = text(_sheets(book, problems), title=clean(str(book.properties.title or "")))
    return replace(extraction, problem="cut") if problems else extraction


def _sheets(book: Workbook, problems: set[str]) -> Iterator[str]:
    """Yield the sheets as CSV; adds "cut" to *problems* if there is no time or room for all."""
    for sheet in book.worksheets:
        yield f"## {' '.join(clean(sheet.title).split())}\n"
        for number, row in enumerate(sheet.iter_rows(max_col=MAX_COLUMNS, values_only=True), 1):
            if number > MAX_ROWS or time.process_time() > SOFT_S:
                problems.add("cut")
                break
            yield _line(row)
        yield "\n"


def _line(row: tuple[object, ...]) -> str:
    cells = ["" if cell is None else clean(str(cell)) for cell in row]
    while cells and not cells[-1]:
        cells.pop()
    if not cells:
        return ""
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(cells)
    return line.getvalue()
