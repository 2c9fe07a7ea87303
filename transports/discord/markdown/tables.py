"""Tables, which Discord lacks: columns in a code block, or a list if they are too wide; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import wcwidth

from transports.base.text import is_delimiter
from transports.discord.markdown.inline import ZERO_WIDTH, prose, words

WIDEST = 72
"""Columns of a fixed-width font; a phone wraps at about half."""

MOST_IN_BLOCK = 1_700
"""Characters of one block; a longer table continues in another block, with its header."""

_BREAK = re.compile(r"<br[ \t]*/?>", re.IGNORECASE)
_CELL = re.compile(r"\|((?:[^|\\`<]++|<[^<>|\n]++\|[^<>|\n]++>|<|\\.|`[^`]*+`|[\\`])*+)")
_GAP = "  "

Side = Literal["left", "center", "right"]
_ALIGN = {"left": wcwidth.ljust, "center": wcwidth.center, "right": wcwidth.rjust}


@dataclass(frozen=True, slots=True)
class _Table:
    """Cells as they are written; every row has as many as the header."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    sides: Sequence[Side]


def begins(header: str, delimiter: str) -> bool:
    """Return whether a table begins with these lines, given without quote marks and indentation."""
    return is_delimiter(delimiter) and len(_cells(header)) == len(_cells(delimiter))


def render_table(lines: Sequence[str]) -> list[str]:
    """Return the table of these lines, the header and delimiter first, in Discord's form."""
    header, delimiter, *rows = (_cells(line) for line in lines)
    table = _Table(header, [_fitted(row, len(header)) for row in rows], [_side(cell) for cell in delimiter])
    return _as_code(table) or _as_list(table)


def _cells(line: str) -> list[str]:
    """Return the cells of a row; an escaped pipe, or one in code, does not separate cells."""
    line = line.strip(" \t")
    found: list[str] = _CELL.findall(line if line.startswith("|") else f"|{line}")
    cells = [_BREAK.sub(" ", cell).replace(r"\|", "|").strip(" \t") for cell in found]
    return cells[:-1] if len(cells) > 1 and not cells[-1] and line.endswith("|") else cells


def _fitted(row: list[str], columns: int) -> list[str]:
    """Return a row with so many columns; the last one holds the excess."""
    kept = [*row[: columns - 1], " | ".join(row[columns - 1 :])]
    return kept + [""] * (columns - len(kept))


def _side(mark: str) -> Side:
    return ("center" if mark.startswith(":") else "right") if mark.endswith(":") else "left"


def _as_code(table: _Table) -> list[str]:
    """Return the table in columns; nothing if it is too wide."""
    cells = [[_cell(cell) for cell in row] for row in (table.header, *table.rows)]
    widths = [max(1, *map(wcwidth.width, column)) for column in zip(*cells, strict=True)]
    if sum(widths) + len(_GAP) * (len(widths) - 1) > WIDEST:
        return []
    header, *rows = (_line(row, widths, table.sides) for row in cells)
    head = [header, _GAP.join("-" * wide for wide in widths)]
    return [line for block in _blocks(head, rows) for line in ("```", *head, *block, "```", "")][:-1]


def _blocks(head: Sequence[str], rows: Sequence[str]) -> Iterator[list[str]]:
    block: list[str] = []
    used = room = sum(len(line) + 1 for line in head)
    for row in rows:
        if block and used + len(row) + 1 > MOST_IN_BLOCK:
            yield block
            block, used = [], room
        block.append(row)
        used += len(row) + 1
    yield block


def _cell(text: str) -> str:
    return re.sub("`{3,}", lambda ticks: ZERO_WIDTH.join(ticks[0]), " ".join(words(text).split()))


def _line(row: Sequence[str], widths: Sequence[int], sides: Sequence[Side]) -> str:
    cells = (_ALIGN[side](cell, wide) for cell, wide, side in zip(row, widths, sides, strict=True))
    return _GAP.join(cells).rstrip()


def _as_list(table: _Table) -> list[str]:
    """Return a list of the rows: the first cell as its title, the others below, each with its column's name."""
    title, *names = (f"{prose(_one_line(name))}: " if name else "" for name in table.header)
    lines: list[str] = []
    for row in table.rows or [[""] * (1 + len(names))]:
        first, *others = (_one_line(cell) for cell in row)
        lines.append(f"- {title}{prose(first, bold=True) or '…'}")
        lines += [f"  - {name}{prose(cell)}" for name, cell in zip(names, others, strict=True) if cell]
    return lines


def _one_line(text: str) -> str:
    return " ".join(text.split())
