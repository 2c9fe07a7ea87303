"""The status of the running bot for people: a few lines that are read at a glance."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from rich.filesize import decimal

from bot.budget.money import usd
from bot.host.status_client import span
from bot.host.terminal import MARKS
from bot.ports.status import UP, CircuitStatus, Spend, Status, TransportStatus
from bot.reports.safe_text import flat

if TYPE_CHECKING:
    from rich.console import RenderableType

    from bot.store.reader import WorkerRow

State = Literal["ok", "warn", "fail", ""]

SLOW_S = 0.25
QUIET_S = 60.0
BAR = 12
LARGEST = 5
"""Tables whose sizes are told."""
SCOPES = {"day": "today", "month": "this month", "schedule_day": "schedules today"}


@dataclass(frozen=True, slots=True)
class Line:
    """``label`` is blank on further lines of the same; ``bar`` is the share of a limit, None for no limit."""

    label: str
    text: str
    state: State = ""
    bar: float | None = None


def headline(status: Status) -> Line:
    if status.stopping:
        return Line("threadfast", "stopping: ends running turns, starts no new ones", "warn")
    if not status.ready:
        return Line("threadfast", "not ready: no transport is connected", "fail")
    if status.troubles:
        return Line("threadfast", "ready, with trouble", "warn")
    return Line("threadfast", "ready", "ok")


def lines(status: Status, mask: Callable[[str], str] = str) -> list[Line]:
    """Return all lines, the most important first."""
    return [Line(line.label, flat(mask(line.text)), line.state, line.bar) for line in _lines(status)]


def _lines(status: Status) -> Iterator[Line]:
    yield headline(status)
    began = f"{datetime.fromisoformat(status.started_at):%Y-%m-%d %H:%M} UTC"
    yield Line("up", f"{span(status.uptime_s)}, since {began}; pid {status.pid}, version {status.version}")
    yield Line("model", status.model)
    yield from _group("servers", (Line("", server) for server in status.servers))
    yield Line("data", status.data)
    yield from _group("transports", map(_transport, status.transports))
    yield from _group("circuits", map(_circuit, status.circuits))
    yield from _group("messages", _messages(status))
    yield from _group("spent", map(_spend, status.spend))
    lag = f"{_ms(status.lag_s)} late, {_ms(status.worst_lag_s)} at worst in the last minute"
    yield Line("event loop", lag, "warn" if status.worst_lag_s >= SLOW_S else "ok")
    held = f"{status.threads} thread{'' if status.threads == 1 else 's'} in memory"
    memory = f"{status.rss_bytes / 1e6:.0f} MB, {status.open_files} open files, " if status.rss_bytes else ""
    yield Line("memory", memory + held)
    yield from (Line(name, fact) for name, fact in status.facts.items())
    yield from _group("trouble", (Line("", trouble, "warn") for trouble in status.troubles))


def shared_lines(workers: Sequence[WorkerRow], tables: Sequence[tuple[str, int]]) -> list[Line]:
    """Return a line for each worker that shares the database, and one with the sizes of its tables."""
    sizes = ", ".join(f"{name} {decimal(size)}" for name, size in tables[:LARGEST])
    rows = _group("workers", map(_worker, workers)) if workers else [Line("workers", "none", "fail")]
    return [*rows, Line("tables", sizes, "ok")]


def _worker(one: WorkerRow) -> Line:
    owned = f"{one.threads:,} thread{'' if one.threads == 1 else 's'}"
    owned += f", {one.connections} connection{'' if one.connections == 1 else 's'}"
    text = f"{one.name}, version {one.version}, {owned}, last beat {span(one.last_beat_s)} ago"
    return Line("", flat(text if one.alive else f"{text}: dead"), "ok" if one.alive else "fail")


def _group(label: str, found: Iterator[Line]) -> Iterator[Line]:
    for at, line in enumerate(found):
        yield Line("" if at else label, line.text, line.state, line.bar)


def _transport(one: TransportStatus) -> Line:
    trouble = f"; {one.trouble}" if one.trouble else ""
    text = f"{one.name} {one.state}{_last_sign(one.silent_s)}{trouble}"
    if one.state not in UP:
        return Line("", text, "fail" if one.state in ("disconnected", "stopped") else "warn")
    return Line("", text, "warn" if trouble or (one.silent_s or 0) > QUIET_S else "ok")


def _last_sign(silent_s: float | None) -> str:
    if silent_s is None:
        return ""
    return f", last sign {span(silent_s)} ago" if silent_s >= 1 else ", last sign just now"


def _circuit(one: CircuitStatus) -> Line:
    waiting = f"; {one.waiting} calls wait" if one.waiting else ""
    text = f"{one.title} {one.state}{f': {one.why}' if one.why else ''}{waiting}"
    return Line("", text, "ok" if one.state == "closed" else "fail" if one.state == "open" else "warn")


def _messages(status: Status) -> Iterator[Line]:
    if not (status.pending or status.running):
        yield Line("", "0 running, nothing pending")
        return
    yield Line(
        "", f"{status.running} running, {status.queued} wait for a slot, {status.waiting} behind those"
    )
    yield Line("", f"{status.pending} pending, the oldest for {span(status.oldest_pending_s)}")


def _spend(one: Spend) -> Line:
    held = f" and {_usd(one.reserved)} held for calls" if one.reserved else ""
    name = SCOPES.get(one.scope, f"today in {one.scope}")
    if not one.limit:
        return Line("", f"{_usd(one.spent)} {name}{held}, no limit")
    share = (one.spent + one.reserved) / one.limit
    state: State = "fail" if share >= 1 else "warn" if share >= 0.8 else ""
    return Line("", f"{_usd(one.spent)} {name}{held}, of {_usd(one.limit)}", state, min(1.0, share))


def on_terminal(found: list[Line]) -> RenderableType:
    """Return the lines for a terminal of any width."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 1))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for line in found:
        mark, colour = MARKS[line.state]
        text = Text(line.text, colour if line.state in ("warn", "fail") else "")
        if line.bar is not None:
            full = round(line.bar * BAR)
            text.append(f"  {'█' * full}{'░' * (BAR - full)} {line.bar:.0%}", colour or "dim")
        grid.add_row(line.label, Text(mark, colour), text)
    return Group("", grid, "")


def through_pipe(found: list[Line]) -> str:
    width = max(len(line.label) for line in found)
    return "\n".join(f"{line.label:{width}}  {line.text}".rstrip() for line in found)


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"


def _usd(amount: float) -> str:
    return usd(round(amount * 1_000_000))
