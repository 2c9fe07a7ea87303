"""What was spent, told from the ledger's files; reads only, and so works beside a running bot."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bot.accounts import usd
from bot.budgets import Commit, Reserve, dollars
from bot.ledger import names_in, parts, record_of
from bot.trace import plain
from threads.lines import intact

By = Literal["day", "user", "thread", "model"]
DAYS = 30
BAR = 16
PIPED_WIDTH = 400


@dataclass(slots=True)
class Line:
    """What was spent under one name. ``unpriced`` calls have no known cost; ``open`` ones count at their most."""

    name: str
    calls: int = 0
    prompt: int = 0
    cached: int = 0
    output: int = 0
    micros: int = 0
    unpriced: int = 0
    open: int = 0

    def add(self, record: Reserve | Commit) -> None:
        self.calls += 1
        self.micros += record.micros or 0
        match record:
            case Commit():
                self.prompt += record.usage.prompt
                self.cached += record.usage.cache_read
                self.output += record.usage.output
                self.unpriced += record.micros is None
            case Reserve():
                self.open += 1

    @property
    def cached_share(self) -> float:
        return self.cached / self.prompt if self.prompt else 0.0


@dataclass(slots=True)
class Report:
    """The lines of a period, with their sum. ``damaged`` lines of the ledger could not be read."""

    by: By
    since: str
    until: str | None
    lines: list[Line] = field(default_factory=list)
    total: Line = field(default_factory=lambda: Line("total"))
    damaged: int = 0
    files: int = 0


Days = tuple[str, str | None]
"""The first day and the last one, UTC, ISO 8601; None is open."""


def period(since: datetime | None, month: datetime | None, now: datetime) -> Days:
    """Return a month's days, or all from one on, by default the one 30 days ago."""
    if month is not None:
        return f"{month:%Y-%m-01}", f"{month:%Y-%m-31}"
    first = since or now - timedelta(days=DAYS)
    return f"{first:%Y-%m-%d}", None


def report(data: Path, by: By, days: Days) -> Report:
    """Return what was spent on these days.

    Raises OSError, and `threads.errors.NewerSchema` when a newer version wrote the ledger.
    """
    since, until = days
    made = Report(by, since, until)
    lines: dict[str, Line] = {}
    for record in _ended(_records(data / "usage", since[:7], made)):
        if since <= record.call.day and (until is None or record.call.day <= until):
            name = _name(record, by)
            lines.setdefault(name, Line(name)).add(record)
            made.total.add(record)
    made.lines = sorted(
        lines.values(), key=lambda line: line.name if by == "day" else (-line.micros, line.name)
    )
    return made


def _records(folder: Path, month: str, made: Report) -> Iterator[Reserve | Commit]:
    """Return each call's records once; a call never stands in a file older than its month."""
    seen: set[tuple[int, str]] = set()
    found = parts(names_in(folder))
    made.files = len(found)
    for part in found:
        if part.month < month:
            continue
        for line in _lines(folder / part.name):
            record = record_of(line) if intact(line) else None
            made.damaged += record is None
            if isinstance(record, Reserve | Commit) and (record.seq, record.at) not in seen:
                seen.add((record.seq, record.at))
                yield record


def _lines(path: Path) -> Iterator[bytes]:
    """Return a file's lines, one at a time, without their newlines; one without is being written."""
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield line[:-1]


def _ended(records: Iterable[Reserve | Commit]) -> Iterator[Reserve | Commit]:
    """Return every commit, and the reservations that have none."""
    open_: dict[int, Reserve] = {}
    for record in records:
        match record:
            case Reserve():
                open_[record.seq] = record
            case Commit():
                open_.pop(record.reserve, None)
                yield record
    yield from open_.values()


def _name(record: Reserve | Commit, by: By) -> str:
    match by:
        case "day":
            return record.call.day
        case "user":
            return record.call.user
        case "thread":
            return record.call.thread_id
        case "model":
            return record.call.model


def as_json(made: Report) -> str:
    lines = [{made.by: line.name, **_numbers(line)} for line in made.lines]
    whole = {
        "by": made.by,
        "since": made.since,
        "until": made.until,
        "lines": lines,
        "total": _numbers(made.total),
        "damaged_lines": made.damaged,
    }
    return json.dumps(whole, indent=2)


def _numbers(line: Line) -> dict[str, int | float]:
    return {
        "calls": line.calls,
        "prompt_tokens": line.prompt,
        "cached_tokens": line.cached,
        "cached_share": round(line.cached_share, 4),
        "output_tokens": line.output,
        "usd": dollars(line.micros),
        "calls_without_price": line.unpriced,
        "calls_not_ended": line.open,
    }


def show(made: Report, out: TextIO, *, width: int | None = None) -> None:
    """Print the report: with a bar chart and colours to a terminal, in plain columns to anything else."""
    console = Console(file=out, highlight=False, width=width)
    if not console.is_terminal and width is None:
        console = Console(file=out, highlight=False, width=PIPED_WIDTH, color_system=None)
    if not made.lines:
        console.print(_nothing(made))
    else:
        console.print(_table(made, console))
    for remark in _remarks(made):
        console.print(remark)


def _nothing(made: Report) -> str:
    if not made.files:
        return "Nothing has been spent yet."
    return f"Nothing was spent from {made.since} to {made.until or 'now'}."


def _table(made: Report, console: Console) -> Table:
    table = Table(box=None, pad_edge=False, show_footer=True, padding=(0, 2, 0, 0))
    total = made.total
    table.add_column(made.by.capitalize(), "Total", overflow="fold", style="bold" if made.by == "day" else "")
    for title, foot in zip(("Calls", "Prompt", "Cached", "Output"), _counts(total), strict=True):
        table.add_column(title, foot, justify="right", no_wrap=True)
    table.add_column("Cost", usd(total.micros), justify="right", no_wrap=True)
    if console.is_terminal:
        table.add_column("", no_wrap=True)
    most = max(line.micros for line in made.lines)
    for line in made.lines:
        cells = [*map(Text, (plain(line.name) or "-", *_counts(line), usd(line.micros)))]
        if console.is_terminal:
            cells.append(Text(_bar(line.micros, most, console), "cyan"))
        table.add_row(*cells)
    return table


def _counts(line: Line) -> tuple[str, str, str, str]:
    return f"{line.calls:,}", _short(line.prompt), f"{line.cached_share:.0%}", _short(line.output)


def _short(count: int) -> str:
    if count < 10_000:
        return f"{count:,}"
    return f"{count / 1000:,.0f}k" if count < 10_000_000 else f"{count / 1_000_000:,.1f}M"


def _bar(value: int, most: int, console: Console) -> str:
    full = "#" if console.options.ascii_only else "█"
    return full * max(round(BAR * value / most), 1) if value else ""


def _remarks(made: Report) -> Iterator[str]:
    total = made.total
    if total.open:
        yield f"{_count(total.open, 'call')} not ended: the most that can cost is counted."
    if total.unpriced:
        yield f"{_count(total.unpriced, 'call')} with no known price: not in the cost."
    if made.damaged:
        yield f"{_count(made.damaged, 'line')} of the ledger damaged: not counted."


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
