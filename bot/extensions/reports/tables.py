"""What these commands print: tables, text and progress by rich on a terminal, plain text through a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TextIO, TypeVar

from bot.host.terminal import PIPED_WIDTH, console, is_terminal

T = TypeVar("T")

FEW = 200
"""Items that are read before anybody misses a progress bar."""

WIDE = 105
"""Columns of a terminal that has room for a thread's id beside other things."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column. A cell that does not fit is wrapped, cut with an ellipsis, or ("whole") given its room."""

    title: str
    fit: Literal["wrap", "cut", "whole"] = "wrap"
    right: bool = False
    style: str = ""
    foot: str = ""
    on_terminal: bool = False
    """Left out through a pipe: decoration, such as a bar."""


def width() -> int:
    """Return how many columns there is room for."""
    return console().width if is_terminal() else PIPED_WIDTH


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], out: TextIO | None = None) -> None:
    """Print the rows below the columns' titles. A column with ``foot`` gets a last line."""
    if not is_terminal(out):
        _print_plain(columns, rows, out or sys.stdout)
        return
    from rich.table import Table
    from rich.text import Text

    feet = any(column.foot for column in columns)
    table = Table(box=None, pad_edge=False, show_footer=feet, padding=(0, 2, 0, 0), header_style="bold")
    for at, column in enumerate(columns):
        cells = [column.title, column.foot, *(row[at] for row in rows)]
        table.add_column(
            column.title,
            Text(column.foot),
            justify="right" if column.right else "left",
            style=column.style,
            no_wrap=column.fit != "wrap",
            min_width=max(map(len, cells)) if column.fit == "whole" else None,
            overflow="fold" if column.fit == "wrap" else "ellipsis",
        )
    for row in rows:
        table.add_row(*map(Text, row))
    console(out).print(table)


def _print_plain(columns: Sequence[Column], rows: Sequence[Sequence[str]], out: TextIO) -> None:
    """Print aligned columns, two spaces apart, a row a line."""
    from rich.cells import cell_len

    visible = [at for at, column in enumerate(columns) if not column.on_terminal]
    lines = [
        [columns[at].title for at in visible],
        *([" ".join(row[at].split()) for at in visible] for row in rows),
    ]
    if any(column.foot for column in columns):
        lines.append([columns[at].foot for at in visible])
    widths = [max(map(cell_len, cells)) for cells in zip(*lines, strict=True)]
    for line in lines:
        cells = []
        for at, cell, room in zip(visible, line, widths, strict=True):
            gap = " " * (room - cell_len(cell))
            cells.append(gap + cell if columns[at].right else cell + gap)
        out.write("  ".join(cells).rstrip() + "\n")


def print_texts(texts: Iterable[tuple[str, str, int]]) -> None:
    """Print texts one below the other, each with its style and its indent."""
    if not is_terminal():
        for text, _, indent in texts:
            sys.stdout.writelines((" " * indent + line).rstrip() + "\n" for line in text.split("\n"))
        return
    from rich.padding import Padding
    from rich.text import Text

    to = console()
    for text, style, indent in texts:
        to.print(Padding(Text(text, style, overflow="fold"), (0, 0, 0, indent)))


def progress(items: Sequence[T], what: str, few: int = FEW) -> Iterator[T]:
    """Yield the items; on a terminal, a bar shows how far it is with *few* or more of them."""
    if len(items) < few or not (is_terminal() and is_terminal(sys.stderr)):
        yield from items
        return
    from rich.progress import track

    yield from track(items, what, console=console(sys.stderr), transient=True)
