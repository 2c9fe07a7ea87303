"""The spending report, from the ledger. It only reads, so it works while the bot runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from bot.budget.budgets import Commit, Reserve, record_adapter
from bot.ports.status import Spend
from bot.reports.budget_state import ended
from bot.reports.line_reader import Damage, records
from bot.store.reader import Reader

By = Literal["day", "user", "thread", "model"]
DAYS = 30

Over = Callable[[Sequence[Iterable[bytes]]], Iterable[Iterable[bytes]]]


@dataclass(slots=True)
class Line:
    """Spending under one name. ``unpriced`` calls have no known cost; ``open`` ones count as their maximum."""

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
    """The lines of a period, with their sum. ``damaged`` counts the unreadable lines of the ledger."""

    by: By
    since: str
    until: str | None
    lines: list[Line] = field(default_factory=list)
    total: Line = field(default_factory=lambda: Line("total"))
    damaged: int = 0
    files: int = 0
    limits: list[Spend] = field(default_factory=list)
    """Current spending under the limits of the settings, whatever the period."""


Days = tuple[str, str | None]
"""The first and the last day (UTC, ISO 8601); None for no last day."""


def period(since: str | None, month: datetime | None, now: datetime) -> Days:
    """Return the days of *month*, or all days from *since* on, by default the last 30."""
    if month is not None:
        return f"{month:%Y-%m-01}", f"{month:%Y-%m-31}"
    return since[:10] if since else f"{now - timedelta(days=DAYS):%Y-%m-%d}", None


def report(reader: Reader, by: By, days: Days, over: Over = iter) -> Report:
    """Return the spending of these days; see `reports`."""
    return reports(reader, (by,), days, over)[0]


def reports(reader: Reader, groups: Sequence[By], days: Days, over: Over = iter) -> list[Report]:
    """Return the spending of these days, grouped in each of these ways, from one reading of the ledger.

    *over* iterates over the parts of the ledger, and may show progress. Raises OSError, and
    `threads.errors.NewerSchema` when a newer version wrote the ledger.
    """
    since, until = days
    parts, damage = reader.spending(since[:7]), Damage()
    total = Line("total")
    grouped: dict[By, dict[str, Line]] = {by: {} for by in groups}
    for record in ended(_calls(over(parts), damage)):
        if since <= record.call.day and (until is None or record.call.day <= until):
            total.add(record)
            for by, lines in grouped.items():
                name = str(getattr(record.call, "thread_id" if by == "thread" else by))
                lines.setdefault(name, Line(name)).add(record)
    files = len(reader.spending())
    return [
        Report(by, since, until, _sorted(by, lines), total, damage.lines, files)
        for by, lines in grouped.items()
    ]


def _sorted(by: By, lines: Mapping[str, Line]) -> list[Line]:
    return sorted(lines.values(), key=lambda line: line.name if by == "day" else (-line.micros, line.name))


def _calls(parts: Iterable[Iterable[bytes]], damage: Damage) -> Iterator[Reserve | Commit]:
    """Return each call's records once; a call never stands in a part older than its month."""
    seen: set[tuple[int, str]] = set()
    for part in parts:
        for record in records(part, record_adapter(), damage):
            if isinstance(record, Reserve | Commit) and (record.seq, record.at) not in seen:
                seen.add((record.seq, record.at))
                yield record
