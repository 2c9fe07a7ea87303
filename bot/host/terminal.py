"""Where commands print: by rich on a terminal, plain text through a pipe.

Text is made harmless before it comes here (`bot.reports.safe_text`); none of it is read as markup. A library that
draws is imported only where there is a terminal to draw on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Literal, TextIO

if TYPE_CHECKING:
    from rich.console import Console

PIPED_WIDTH = 100_000
"""Nothing that goes through a pipe is wrapped."""


MARKS: Mapping[str, tuple[str, str]] = {
    "ok": ("✓", "green"),
    "warn": ("!", "yellow"),
    "fail": ("✗", "red"),
    "fix": ("→", "bold"),
    "": (" ", ""),
}
"""The mark and the colour of a line that `init`, `doctor` or `status` prints, by its state."""


def console(out: TextIO | None = None, *, quiet: bool = False) -> Console:
    """Return where to print: it knows a terminal, its width and NO_COLOR."""
    from rich.console import Console

    visible = is_terminal(out)
    return Console(
        file=out or sys.stdout,
        force_terminal=visible,
        width=None if visible else PIPED_WIDTH,
        no_color=None if visible else True,
        highlight=False,
        markup=False,
        emoji=False,
        quiet=quiet,
    )


def is_terminal(out: TextIO | None = None) -> bool:
    with suppress(ValueError):  # a closed file
        return (out or sys.stdout).isatty()
    return False


@contextmanager
def progress_bar(
    what: str, total: int | None, unit: Literal["bytes", "lines"], *, quiet: bool = False
) -> Iterator[Callable[[int], None]]:
    """Give a function that advances a bar; without a terminal nothing is shown."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    count = DownloadColumn() if unit == "bytes" else TextColumn("{task.completed:,.0f} lines")
    columns = TextColumn(what), BarColumn(), count, TimeRemainingColumn()
    hidden = quiet or not is_terminal(sys.stderr)
    with Progress(*columns, console=console(sys.stderr), transient=True, disable=hidden) as bar:
        yield partial(bar.advance, bar.add_task(what, total=total))
