"""The cells of an Excel workbook as CSV, sheet by sheet, with what lies on them: comments, links, shapes, charts."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from openpyxl import Workbook, load_workbook
from openpyxl.worksheet._reader import FORMULA_TAG, WorkSheetParser

from bot.extensions.documents.problems import LeftOut

from .package import Package, attribute
from .result import SOFT_S, Extraction, text
from .slides import drawn_text
from .text import clean

MAX_ROWS, MAX_COLUMNS = 50_000, 200
"""Of one sheet, with blank ones: a file of a few bytes may claim a million rows of 16,384."""


class _Parser(WorkSheetParser):
    """Gives the formula of a cell that has no value, as programs write it that do not calculate.

    A formula that cells share is written in the first one alone.
    """

    def parse_cell(self, element: Any) -> dict[str, Any]:
        cell: dict[str, Any] = super().parse_cell(element)
        formula = element.find(FORMULA_TAG)
        if formula is not None and (cell["value"] is None or (formula.get("t") == "shared" and formula.text)):
            written: Any = self.parse_formula(element)  # type: ignore[no-untyped-call]
            if cell["value"] is None:
                cell["value"] = getattr(written, "text", None) or written
        return cell


def workbook(data: bytes, package: Package) -> Extraction:
    """Return a workbook's values; raises `Unreadable`, or any error of openpyxl for a broken one."""
    book = load_workbook(io.BytesIO(data), read_only=True, data_only=True, keep_links=False)
    left_out = set[LeftOut]()
    title = clean(str(book.properties.title or ""))
    return text(_sheets(book, package, left_out), title=title, left_out=left_out)


def _sheets(book: Workbook, package: Package, left_out: set[LeftOut]) -> Iterator[str]:
    for sheet in book.worksheets:
        hidden = "" if sheet.sheet_state == "visible" else " (hidden)"
        yield f"## {' '.join(clean(sheet.title).split())}{hidden}\n"
        one: Any = sheet  # a sheet that is read only, whose own reader drops either formulas or values
        part = one._worksheet_path.lstrip("/")  # noqa: SLF001
        yield from _cells(one, package.targets(part), left_out)
        yield from _on_cells(package, part, left_out)
        yield "\n"


def _cells(sheet: Any, targets: Mapping[str, str], left_out: set[LeftOut]) -> Iterator[str]:
    """Yield the rows as CSV, as far as there are time and room for them, and then the links of cells."""
    book = sheet.parent
    with sheet._get_source() as source:  # noqa: SLF001
        parser = _Parser(
            source,
            sheet._shared_strings,  # noqa: SLF001
            data_only=True,
            epoch=book.epoch,
            date_formats=book._date_formats,  # noqa: SLF001
            timedelta_formats=book._timedelta_formats,  # noqa: SLF001
        )
        for number, cells in parser.parse():
            if number > MAX_ROWS or time.process_time() > SOFT_S:
                left_out.add("rest")
                return
            shown = {cell["column"]: clean(str(cell["value"])) for cell in cells if cell["value"] is not None}
            if any(column > MAX_COLUMNS for column in shown):
                left_out.add("rest")
            last = min(max(shown, default=0), MAX_COLUMNS)
            yield _line([shown.get(column, "") for column in range(1, last + 1)])
        for link in parser.hyperlinks.hyperlink:
            if ":" in (address := targets.get(link.id or "", "")):
                yield f"[link on {clean(link.ref)}: {clean(address)}]\n"


def _line(row: Sequence[str]) -> str:
    if not any(row):
        return ""
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(row)
    return line.getvalue()


def _on_cells(package: Package, part: str, left_out: set[LeftOut]) -> Iterator[str]:
    """Yield the comments on a sheet's cells, and the words of its shapes, pictures and charts."""
    for name in package.linked(part, "comments"):
        walk = drawn_text(package, name, left_out)
        for comment in package.elements(name, "{*}comment"):
            yield f"[comment on {attribute(comment, 'ref')}: {walk.line(comment)}]\n"
    for name in package.linked(part, "drawing"):
        walk = drawn_text(package, name, left_out)
        yield from (f"{walk.line(drawn)}\n" for drawn in package.children(name) if walk.line(drawn))
