"""How a command shows rows and long work: rich on a terminal; through a pipe plain columns, no colour, no progress.

Cells are people's words made harmless (`bot.admin.terminal.safe_text.plain`): nothing in them is read as markup.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TextIO, TypeVar

if TYPE_CHECKING:
    from rich.console import Console

T = TypeVar("T")

FEW = 200
"""So many things are looked at before anybody misses a progress bar."""

WIDE = 105
"""Columns of a terminal that has room for a thread's id beside other things."""

PIPED_WIDTH = 100_000
"""Nothing that goes through a pipe is wrapped."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column. What does not fit a terminal is wrapped, cut with an ellipsis, or (``whole``) given its room."""

    title: str
    fit: Literal["wrap", "cut", "whole"] = "wrap"
    right: bool = False
    style: str = ""
    foot: str = ""
    on_terminal: bool = False
    """Only decoration, such as a bar: left out through a pipe."""


def console(out: TextIO | None = None, *, width: int | None = None) -> Console:
    """Return where to print: it knows a terminal, its width and NO_COLOR."""
    from rich.console import Console  # noqa: PLC0415 - who prints JSON need not wait for it

    out = out or sys.stdout
    made = Console(file=out, highlight=False, markup=False, emoji=False, width=width)
    if made.is_terminal or width is not None:
        return made
    return Console(file=out, highlight=False, markup=False, emoji=False, width=PIPED_WIDTH, color_system=None)


def is_terminal(out: TextIO | None = None) -> bool:
    with suppress(ValueError):  # a closed file is none
        return (out or sys.stdout).isatty()
    return False


def width() -> int:
    """Return how many columns there is room for."""
    return console().width if is_terminal() else PIPED_WIDTH


def show(columns: Sequence[Column], rows: Sequence[Sequence[str]], out: TextIO | None = None) -> None:
    """Print the rows below the columns' titles; a column with ``foot`` gets a last line."""
    to = console(out)
    if not to.is_terminal:
        _columns(columns, rows, out or sys.stdout)
        return
    from rich.table import Table  # noqa: PLC0415 - as above
    from rich.text import Text  # noqa: PLC0415 - as above

    feet = any(column.foot for column in columns)
    table = Table(box=None, pad_edge=False, show_footer=feet, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(
            column.title,
            Text(column.foot),
            justify="right" if column.right else "left",
            style=column.style,
            no_wrap=column.fit != "wrap",
            min_width=len(max(cells, key=len)) if (cells := _whole(column, columns, rows)) else None,
            overflow="fold" if column.fit == "wrap" else "ellipsis",
        )
    for row in rows:
        table.add_row(*map(Text, row))
    to.print(table)


def show_texts(texts: Iterable[tuple[str, str, int]]) -> None:
    """Print texts one below the other, each with a style and by how much it is set in."""
    if not is_terminal():
        for text, _, indent in texts:
            gap = " " * indent
            sys.stdout.writelines((gap + line).rstrip() + "\n" for line in text.split("\n"))
        return
    from rich.padding import Padding  # noqa: PLC0415 - as above
    from rich.text import Text  # noqa: PLC0415 - as above

    to = console()
    for text, style, indent in texts:
        to.print(Padding(Text(text, style, overflow="fold"), (0, 0, 0, indent)))


def _whole(column: Column, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[str]:
    at = columns.index(column)
    return [column.title, column.foot, *(row[at] for row in rows)] if column.fit == "whole" else []


def _columns(columns: Sequence[Column], rows: Sequence[Sequence[str]], out: TextIO) -> None:
    """Print aligned columns, two spaces apart, a row a line."""
    from rich.cells import cell_len  # noqa: PLC0415 - as above

    kept = [at for at, column in enumerate(columns) if not column.on_terminal]
    lines = [[columns[at].title for at in kept], *([_one_line(row[at]) for at in kept] for row in rows)]
    if any(column.foot for column in columns):
        lines.append([columns[at].foot for at in kept])
    widths = [max(map(cell_len, cells)) for cells in zip(*lines, strict=True)]
    for line in lines:
        cells = []
        for at, cell, width in zip(kept, line, widths, strict=True):
            gap = " " * (width - cell_len(cell))
            cells.append(gap + cell if columns[at].right else cell + gap)
        out.write("  ".join(cells).rstrip() + "\n")


def _one_line(text: str) -> str:
    return " ".join(text.split())


def progress(items: Sequence[T], what: str, few: int = FEW) -> Iterator[T]:
    """Return the items one by one, with a bar that goes away again when many are looked at on a terminal."""
    if len(items) < few or not (is_terminal() and is_terminal(sys.stderr)):
        yield from items
        return
    from rich.console import Console  # noqa: PLC0415 - as above
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: PLC0415 - as above

    columns = TextColumn(what), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield from bar.track(items)
