"""Whether the bot is well, in words: what is wrong first, each with the page that tells more; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bot.ports.status import Spend, Status
from bot.store.reader import WorkerRow
from transports.web.look.turns import FAILED, DayOfTurns

LIMITS = {"day": "Today", "month": "This month", "schedule_day": "Scheduled messages today"}
"""What the limits are called."""

NEARLY = 0.8
"""The used share of a limit that is worth a word."""

MANY_FAIL = 0.2
"""The share of failed turns with which the bot is not well."""

LONG_S = 300.0
"""How long a message may be without an outcome before it is worth a word."""

LATE_S = 1.0
"""How late the event loop may be."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that is wrong, or with ``bad`` unset only worth a look. ``link`` tells more, "" if nothing does."""

    text: str
    link: str = ""
    bad: bool = True


def headline(status: Status | None, found: Sequence[Trouble]) -> tuple[str, str]:
    """Return in one sentence how the bot is, and its grade: good, warn or bad."""
    if any(one.bad for one in found):
        return "Not well", "bad"
    if status is None:
        return "Just started", "warn"
    if status.stopping:
        return "Stopping: no new turn begins", "warn"
    return ("Well, with something to look at", "warn") if found else ("All is well", "good")


def troubles(
    status: Status | None, today: DayOfTurns, limits: Sequence[Spend], workers: Sequence[WorkerRow], day: str
) -> list[Trouble]:
    """Return what is wrong, then what is worth a look. *today* are the turns of *day*."""
    found = [*_of_status(status), *_of_limits(limits), *_of_turns(today, day)]
    found += [
        Trouble(f"Worker {one.name} is gone", "#workers", bad=False) for one in workers if not one.alive
    ]
    return sorted(found, key=lambda one: not one.bad)


def _of_status(status: Status | None) -> Iterator[Trouble]:
    if status is None:
        return
    if not status.ready and not status.stopping:
        yield Trouble(
            "Not ready: it recovers the work before its start, or no transport or store answers",
            "#transports",
        )
    down = tuple(f"{one.name}{end}" for one in status.transports for end in (" is ", ": "))
    for text in status.troubles:
        yield Trouble(text, "#transports" if text.startswith(down) else "", bad=text.startswith(down))
    for circuit in status.circuits:
        if circuit.state != "closed":
            waiting = f"; {circuit.waiting} calls wait" if circuit.waiting else ""
            yield Trouble(
                f"The circuit of {circuit.title} is {circuit.state}: {circuit.why}{waiting}", "/look/models"
            )
    if status.oldest_pending_s > LONG_S:
        minutes = round(status.oldest_pending_s / 60)
        yield Trouble(f"A message has had no outcome for {minutes} minutes", "#queue", bad=False)
    if status.worst_lag_s > LATE_S:
        yield Trouble(
            f"The event loop was {status.worst_lag_s:.1f} s late in the last minute", "#bot", bad=False
        )


def _of_limits(limits: Sequence[Spend]) -> Iterator[Trouble]:
    for one in limits:
        share = used_share(one)
        name = LIMITS.get(one.scope, one.scope)
        if share is not None and share >= NEARLY:
            yield Trouble(f"{name}: {share:.0%} of the limit is used", "/look/money", bad=share >= 1)


def _of_turns(today: DayOfTurns, day: str) -> Iterator[Trouble]:
    if today.failed:
        many = today.failed >= MANY_FAIL * today.total
        text = f"{today.failed} of {today.total} turns failed today"
        yield Trouble(text, f"/look/turns?day={day}&outcome=any+failure", bad=many)


def used_share(one: Spend) -> float | None:
    """Return the used share of a limit, with what is set aside; None without a limit."""
    return None if one.limit is None else (one.spent + one.reserved) / one.limit if one.limit else 1.0


def grade(outcome: str) -> str:
    """Return how an outcome looks: good, warn or bad, or "" for what a person wanted."""
    grades = {"answered": "good", "merged": "good", "refused": "warn", "": "warn"}
    return "bad" if outcome in FAILED else grades.get(outcome, "")
