"""The cells of an Excel workbook as CSV, sheet by sheet: values, formulas without one, and comments."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import cast

from openpyxl import Workbook, load_workbook
from openpyxl.worksheet._read_only import ReadOnlyWorksheet
from openpyxl.worksheet.worksheet import Worksheet

from .office import beside_cells
from .result import SOFT_S, Extraction, text
from .text import clean

MAX_ROWS, MAX_COLUMNS = 50_000, 200
"""Of one sheet, with blank ones: a file of a few bytes may claim a million rows of 16,384."""


def workbook(data: bytes) -> Extraction:
    """Return a workbook's values; raises `Unreadable`, or any error of openpyxl for a broken one."""
    values, formulas = (
        load_workbook(io.BytesIO(data), read_only=True, data_only=known, keep_links=False)
        for known in (True, False)
    )
    problems: set[str] = set()
    parts = chain(_sheets(values, formulas, problems), beside_cells(data))
    extraction = text(parts, title=clean(str(values.properties.title or "")))
    return replace(extraction, problem="cut") if problems else extraction


def _sheets(values: Workbook, formulas: Workbook, problems: set[str]) -> Iterator[str]:
    """Yield the sheets as CSV; adds "cut" to *problems* if there is no time or room for all."""
    for known, written in zip(values.worksheets, formulas.worksheets, strict=True):
        yield f"## {' '.join(clean(known.title).split())}\n"
        rows = (_rows(sheet) for sheet in (known, written))
        for number, (row, formula_row) in enumerate(zip(*rows, strict=False), 1):
            if number > MAX_ROWS or time.process_time() > SOFT_S:
                problems.add("cut")
                break
            yield _line(
                [
                    formula if value is None else value
                    for value, formula in zip(row, formula_row, strict=False)
                ]
            )
        yield "\n"


def _rows(sheet: Worksheet) -> Iterator[tuple[object, ...]]:
    cast("ReadOnlyWorksheet", sheet).reset_dimensions()  # some programs write the size of the first cell
    return sheet.iter_rows(max_col=MAX_COLUMNS, values_only=True)


def _line(row: Sequence[object]) -> str:
    cells = ["" if cell is None else clean(str(cell)) for cell in row]
    while cells and not cells[-1]:
        cells.pop()
    if not cells:
        return ""
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(cells)
    return line.getvalue()
