"""The last turns, from the logs of the threads that changed last, and the titles of threads.

A turn is a message from its arrival to its outcome, so its time has all waiting in it: for a place, and for a person
who was asked. Commands are no turns. What was read of a thread is kept until the thread changes.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import attrgetter

from cachetools import LRUCache

from bot.reports.line_reader import Damage
from bot.reports.safe_text import line
from bot.reports.thread import entries
from bot.store.reader import Reader, Thread
from threads.log import LogEntry
from threads.model import UsageCounted
from transports.shared.buttons import is_control
from transports.shared.first_message import first_message

MOST_TURNS = 5_000
MOST_THREADS = 500
MOST_OF_ONE = 200
"""Turns of one thread."""

WORDS = 120
"""Characters of a message or a title."""

SEARCHED = 4_000
"""Characters of a message that are searched for secrets before it is cut."""

FAILED = frozenset({"failed", "dead_letter", "undelivered"})
"""The outcomes of which somebody should know why."""

ANY_FAILURE = "any failure"
FIELDS = ("day", "outcome", "code", "model", "thread", "author")
"""By what turns can be chosen."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One message, from ``received_at`` to ``settled_at`` (UTC, ISO 8601). ``text`` is its first words."""

    thread: str
    message_id: str
    author: str
    text: str
    received_at: str
    settled_at: str
    outcome: str
    code: str = ""
    spent: UsageCounted | None = None

    @property
    def day(self) -> str:
        """The UTC day on which it ended."""
        return self.settled_at[:10]

    @property
    def model(self) -> str:
        return self.spent.model if self.spent else ""

    @property
    def seconds(self) -> float:
        return seconds_between(self.settled_at, self.received_at)

    def matches(self, wanted: Mapping[str, str]) -> bool:
        """Return whether it has these values of `FIELDS`; a blank one matches everything."""
        return all(
            not value or getattr(self, name) == value or (value == ANY_FAILURE and self.outcome in FAILED)
            for name, value in wanted.items()
        )


@dataclass(slots=True)
class DayOfTurns:
    """The turns that ended on one day, in numbers. ``usd`` has what is known of their cost."""

    outcomes: Counter[str] = field(default_factory=Counter)
    failures: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How many failed, by outcome and code."""
    tokens: int = 0
    usd: float = 0.0
    waited: list[float] = field(default_factory=list)
    """The seconds that each answer took."""

    def add(self, turn: Turn) -> None:
        self.outcomes[turn.outcome] += 1
        if turn.outcome in FAILED:
            self.failures[turn.outcome, turn.code] += 1
        if turn.outcome == "answered":
            self.waited.append(turn.seconds)
        if turn.spent:
            self.tokens += turn.spent.tokens
            self.usd += turn.spent.cost_usd or 0.0

    @property
    def total(self) -> int:
        return self.outcomes.total()

    @property
    def failed(self) -> int:
        return self.failures.total()

    def took(self, share: float) -> float | None:
        """Return the time within which this share of the answers came; None without any."""
        waited = sorted(self.waited)
        return waited[max(0, math.ceil(share * len(waited)) - 1)] if waited else None


@dataclass(frozen=True, slots=True)
class Recent:
    """Turns, newest first, and what they come to.

    ``left_out`` threads were not read: turns before ``whole_since`` (UTC, ISO 8601), when the first of these changed
    last, may be missing.
    """

    turns: Sequence[Turn] = ()
    days: Mapping[str, DayOfTurns] = field(default_factory=dict)
    left_out: int = 0
    whole_since: str = ""


def seconds_between(end: str, began: str) -> float:
    """Return the seconds from one instant to another (ISO 8601), 0 if the clock ran backwards."""
    return max(0.0, (datetime.fromisoformat(end) - datetime.fromisoformat(began)).total_seconds())


def by_day(turns: Iterable[Turn]) -> dict[str, DayOfTurns]:
    days = dict[str, DayOfTurns]()
    for turn in turns:
        days.setdefault(turn.day, DayOfTurns()).add(turn)
    return days


class Turns:
    """Reads turns and titles; *mask* hides secrets. All methods do file work, from any thread, and raise OSError."""

    def __init__(self, mask: Callable[[str], str]) -> None:
        self._mask = mask
        self._kept: LRUCache[str, tuple[float, list[Turn]]] = LRUCache(2 * MOST_THREADS)
        self._titles: LRUCache[str, str] = LRUCache(MOST_TURNS)
        self._reading = threading.Lock()

    def forget(self, thread: str) -> None:
        """Drop what is remembered of a thread."""
        with self._reading:
            self._kept.pop(thread, None)
            self._titles.pop(thread, None)

    def recent(self, reader: Reader, since: datetime) -> Recent:
        """Return the turns that ended *since* then, of the threads that changed last."""
        start = since.isoformat(timespec="milliseconds")
        changed = [one for one in reader.threads() if one.changed_at >= since.timestamp()]
        found, read = list[Turn](), 0
        for thread in changed[:MOST_THREADS]:
            read += 1
            found += [turn for turn in self.of_thread(reader, thread) if turn.settled_at >= start]
            if len(found) >= MOST_TURNS:
                break
        found.sort(key=attrgetter("settled_at"), reverse=True)
        left_out = changed[read:]
        whole_since = datetime.fromtimestamp(left_out[0].changed_at, UTC).isoformat() if left_out else ""
        return Recent(found, by_day(found), len(left_out), whole_since)

    def of_thread(self, reader: Reader, thread: Thread) -> list[Turn]:
        """Return the last turns of one thread, in the order of its log."""
        with self._reading:
            changed_at, turns = self._kept.get(thread.name, (0.0, []))
            if changed_at != thread.changed_at or not changed_at:
                log = [*entries(reader, thread, Damage(), last=MOST_OF_ONE)]
                turns = self._turns(thread.name, log)
                self._kept[thread.name] = thread.changed_at, turns
                if sum(one.kind == "message" for one in log) < MOST_OF_ONE:
                    self._note_title(thread, log)
            return turns

    def titles(self, open_reader: Callable[[], Reader], names: Iterable[str]) -> dict[str, str]:
        """Return the titles of the threads that have one. The store is opened only for those that are not known."""
        wanted = {*names}
        with self._reading:
            if missing := {name for name in wanted if name and name not in self._titles}:
                with closing(open_reader()) as reader:
                    for thread in [one for name in missing for one in reader.find(name) if one.name == name]:
                        self._note_title(thread, entries(reader, thread, Damage()))
            return {name: self._titles[name] for name in wanted if name in self._titles}

    def _note_title(self, thread: Thread, begin: Iterable[LogEntry]) -> None:
        if first := first_message(begin):
            self._titles[thread.name] = self._first_words(first.text)

    def _turns(self, thread: str, log: Iterable[LogEntry]) -> list[Turn]:
        said, found = dict[str, LogEntry](), list[Turn]()
        for entry in log:
            if entry.kind == "message" and not is_control(entry.text):
                said[entry.message_id] = entry
            elif entry.kind == "settled" and (message := said.pop(entry.message_id, None)):
                ids = thread, entry.message_id, message.author, self._first_words(message.text)
                found.append(Turn(*ids, message.at, entry.at, entry.outcome, entry.code, entry.spent))
        return found

    def _first_words(self, text: str) -> str:
        return line(self._mask(text[:SEARCHED]), WORDS)
