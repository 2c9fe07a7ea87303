"""The limits on spending: the records of the ledger, their sums, and whether one more call fits.

Amounts are whole micro-dollars, costs rounded up and limits down, so that no sum is too low. A limit
holds for one key of a scope: one turn, one thread, one person's day, the day of all scheduled messages, the day of
all that one of the settings' own scopes covers, one day, one month. Days are UTC days, and a call belongs to the day
on which it began.

| from             | event                                               | to                                    |
| running          | spending reaches ``warning_threshold`` of a limit   | warning: said once for that limit     |
| running, warning | hard: the most a call can cost does not fit         | paused: the call does not go out      |
| running, warning | soft: spending passes a limit                       | passed: said once, nothing is refused |
| any              | a person grants an amount                           | running, up to the new limit          |
| paused           | a person declines, or nobody answers                | cancelled: the turn ends              |

`Budgets` is the fold of records in the order of their ``seq``: the same on a running bot and after a restart.
"""

from __future__ import annotations

import math
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, cached_property
from itertools import islice
from types import MappingProxyType
from typing import Annotated, Literal, NamedTuple, assert_never, get_args

from pydantic import Field, TypeAdapter

from bot.budget.money import MICRO, dollars, micros
from bot.config.settings import Budget
from bot.ports.errors import BudgetExceeded
from bot.ports.model import Usage
from threads.scheduled_messages import due_of
from threads.store.checksummed_lines import SCHEMA_VERSION

Scope = Literal["turn", "thread", "user_day", "schedule_day", "scope_day", "day", "month"]
Key = tuple[Scope, str]
Level = Literal["", "warning", "passed"]
LEVELS: tuple[Level, ...] = ("", "warning", "passed")

KEPT_DAYS = 180
KEPT_USER_DAYS = 8
KEPT_MONTHS = 3
KEPT_TURNS = 10_000
"""How much of the past a new file of the ledger carries over. Days are counted from the records, not by the clock, so
that a clock that jumps makes no spending forgotten. A thread is forgotten when nothing was charged to it on the last
`KEPT_DAYS` days with a charge: after half a year of silence its limit begins anew. A turn is forgotten as a person's
day is, and beyond so many turns before that: a start reads all of them. A question waits for a week at most."""

ROWS = 500
"""Totals on one line: encoding it takes a worker about a millisecond, in which no other thread runs."""

MOST_GRANTED_USD = 1000
_AMOUNT = re.compile(r"\$?(\d{1,4}(?:\.\d{1,6})?)", re.ASCII)


def parse_grant(words: str) -> int | None:
    """Return the amount a person wrote, in micro-dollars; None unless it is above 0 and at most 1000 dollars."""
    found = _AMOUNT.fullmatch(words.strip())
    amount = micros(float(found[1])) if found else 0
    return amount if 0 < amount <= MOST_GRANTED_USD * MICRO else None


@dataclass(frozen=True)
class Call:
    """Who and what one model call is for. ``day`` is the UTC day it began on, ``model`` is ``provider/model``.

    ``scopes`` are the scopes of the settings whose own limit it counts against, such as "slack:T1:C1".
    """

    thread_id: str
    user: str
    turn: str
    model: str
    day: str
    scopes: tuple[str, ...] = ()

    @cached_property
    def keys(self) -> tuple[Key, ...]:
        """Every limit it counts against."""
        message_id = self.turn.rpartition(":")[2]  # a turn is named by its message's key
        scheduled: tuple[Key, ...] = (("schedule_day", self.day),) if due_of(message_id) else ()
        return (
            ("turn", self.turn),
            ("thread", self.thread_id),
            ("user_day", f"{self.day} {self.user}"),
            *scheduled,
            *(("scope_day", f"{self.day} {scope}") for scope in self.scopes),
            ("day", self.day),
            ("month", self.day[:7]),
        )


@dataclass(slots=True, kw_only=True)
class _Record:
    """The ledger sets ``seq`` and ``at`` when it adds a record."""

    seq: int = 0
    at: str = ""
    v: int = SCHEMA_VERSION


@dataclass(frozen=True, slots=True)
class Pace:
    """How a call's cost grows, in micro-dollars: ``at_once`` for its prompt, then up to ``per_s`` each second."""

    at_once: int
    per_s: int


TOKENS_PER_SECOND = 500
"""The assumed speed of output that nobody saw. The fastest that Anthropic, OpenAI and Google served in 2026 wrote
some 200 a second (medians of artificialanalysis.ai; kunalganglani.com/blog/llm-api-latency-benchmarks-2026). Special
hardware is faster: what such a host wrote unseen can be counted too low."""

IN_FLIGHT_S = 1.0
"""Seconds for which a provider may write on after its client is gone."""

ENDED = "lifecycle_failure"
"""The outcome of a call whose process ended."""


@dataclass(slots=True, kw_only=True)
class Reserve(_Record):
    """The most that a call about to go out can cost. Until its `Commit` it counts in full.

    Without a ``pace`` its cost may come all at once.
    """

    call: Call
    micros: int
    pace: Pace | None = None
    kind: Literal["reserve"] = "reserve"


@dataclass(slots=True, kw_only=True)
class Commit(_Record):
    """The cost of a call; ``reserve`` is the seq of its reservation, 0 if it needed none.

    ``micros`` is None if the price is unknown. ``outcome`` is "ok" or the code of an error.
    """

    call: Call
    usage: Usage
    micros: int | None
    outcome: str = "ok"
    reserve: int = 0
    kind: Literal["commit"] = "commit"


@dataclass(slots=True, kw_only=True)
class Grant(_Record):
    """A person raised one limit."""

    scope: Scope
    key: str
    micros: int
    by: str
    kind: Literal["grant"] = "grant"


@dataclass(slots=True, kw_only=True)
class Warned(_Record):
    scope: Scope
    key: str
    level: Level
    kind: Literal["warned"] = "warned"


Row = tuple[Scope, str, int, int, int, int, int, Level, str]
"""A `Total` on disk, without what is reserved: scope, key, spent, granted, prompt, cached, output, warned, day."""


@dataclass(slots=True, kw_only=True)
class Carried(_Record):
    """A line of a file's head: all that counts of the records up to and with ``seq``, so that no older file is read.

    The head is ``lines`` long, and this is the one at ``place``, from 0; the last one has what is ``open``.
    Lines with such a ``seq`` that come after the head are there for the report only.
    """

    rows: list[Row]
    open: list[Reserve]
    place: int = 0
    lines: int = 1
    kind: Literal["carried"] = "carried"


Record = Reserve | Commit | Grant | Warned | Carried


@cache
def record_adapter() -> TypeAdapter[Record]:
    """Return the validator of the ledger's lines, built on first use."""
    return TypeAdapter(Annotated[Record, Field(discriminator="kind")])


class Total(NamedTuple):
    """One key's account: micro-dollars and tokens.

    ``warned`` is the last warning, ``day`` the day of the call charged last.
    """

    spent: int = 0
    granted: int = 0
    prompt: int = 0
    cached: int = 0
    output: int = 0
    warned: Level = ""
    day: str = ""
    reserved: int = 0

    @property
    def used(self) -> int:
        return self.spent + self.reserved


NOTHING = Total()


def scope_of(name: str) -> str:
    """Return the scope of the settings that a "scope_day" is about."""
    return name.partition(" ")[2]


def _whole(usd: float) -> int:
    return math.floor(round(usd * MICRO, 6))


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings' limits, in micro-dollars; a scope that is not named has none.

    ``day_limits`` has the limits per day of the settings' own scopes.
    """

    hard: bool
    warning_threshold: float
    limits: Mapping[Scope, int]
    day_limits: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, budget: Budget, day_limits: Mapping[str, float] = MappingProxyType({})) -> Policy:
        limits = ((scope, getattr(budget.limit_usd, scope, None)) for scope in get_args(Scope))
        whole = {scope: _whole(usd) for scope, usd in limits if usd is not None}
        days = {name: _whole(usd) for name, usd in day_limits.items()}
        return cls(budget.mode == "hard", budget.warning_threshold, whole, days)

    def limit(self, key: Key) -> int | None:
        """Return the limit of a key, before what was granted; None if it has none."""
        scope, name = key
        return self.day_limits.get(scope_of(name)) if scope == "scope_day" else self.limits.get(scope)

    @property
    def binding(self) -> bool:
        """Whether a call can be refused at all."""
        return self.hard and bool(self.limits or self.day_limits)


@dataclass(frozen=True, slots=True)
class Shortage:
    """One limit that a call does not fit under, and by how many micro-dollars."""

    key: Key
    limit: int
    used: int
    missing: int


class OverLimit(BudgetExceeded):
    """A hard budget refuses a call; ``shortages`` are the limits that a person can raise."""

    def __init__(self, shortages: Sequence[Shortage], most: int) -> None:
        reasons = "; ".join(
            f"{scope} {name}: {dollars(short.used):.6f} of {dollars(short.limit):.6f} USD used"
            for short in shortages
            for scope, name in [short.key]
        )
        super().__init__(
            f"a call of up to {dollars(most):.6f} USD does not fit: {reasons}",
            scopes=[short.key[0] for short in shortages],
            needed_usd=dollars(most),
        )
        self.shortages = tuple(shortages)


@dataclass(slots=True)
class Budgets:
    """The sums of the ledger's records; totals are in the order in which they were last charged."""

    totals: dict[Key, Total] = field(default_factory=dict)
    open: dict[int, Reserve] = field(default_factory=dict)
    seq: int = 0

    def limit(self, key: Key, policy: Policy) -> int | None:
        limit = policy.limit(key)
        return None if limit is None else limit + self.total(key).granted

    def total(self, key: Key) -> Total:
        """Return a key's total; an empty one if it has none."""
        return self.totals.get(key, NOTHING)

    def shortages(self, call: Call, most: int, policy: Policy) -> list[Shortage]:
        """Return the limits that a call of at most *most* does not fit under; what costs nothing fits."""
        if not policy.hard or not most:
            return []
        found = []
        for key in call.keys:
            limit, used = self.limit(key, policy), self.total(key).used
            if limit is not None and used + most > limit:
                found.append(Shortage(key, limit, used, used + most - limit))
        return found

    def due(self, call: Call, policy: Policy) -> list[tuple[Key, Level]]:
        """Return the limits for which a warning is due, with its level."""
        found = []
        for key in call.keys:
            limit, total = self.limit(key, policy), self.total(key)
            if limit is None:
                continue
            level = _level(total.spent, limit, policy)
            if LEVELS.index(level) > LEVELS.index(total.warned):
                found.append((key, level))
        return found

    def apply(self, record: Record) -> None:
        """Add a record; one whose ``seq`` was counted already changes nothing."""
        if isinstance(record, Carried):
            self._take_over(record)
            return
        if record.seq <= self.seq:
            return
        self.seq = record.seq
        match record:
            case Reserve():
                self.open[record.seq] = record
                self._reserve(record.call, record.micros)
            case Commit():
                if (reserve := self.open.pop(record.reserve, None)) is not None:
                    self._reserve(reserve.call, -reserve.micros)
                self._spend(record.call, record.micros or 0, record.usage)
            case Grant():
                total = self.total(key := (record.scope, record.key))
                self._put(key, total._replace(granted=total.granted + record.micros, warned=""))
            case Warned():
                total = self.total(key := (record.scope, record.key))
                self._put(key, total._replace(warned=record.level))
            case _:
                assert_never(record)

    def lapse(self, now: datetime) -> list[Commit]:
        """Charge the open reservations of a process that has ended, and return the records of that.

        The calls may have gone on until *now*, however early they ended.
        """
        ended = [
            Commit(
                seq=self.seq + n,
                at=now.isoformat(timespec="milliseconds"),
                call=reserve.call,
                usage=Usage(),
                micros=most_spent(reserve, now),
                outcome=ENDED,
                reserve=reserve.seq,
            )
            for n, reserve in enumerate(self.open.values(), 1)
        ]
        for record in ended:
            self.apply(record)
        return ended

    def snapshot(self) -> Budgets:
        """Return a copy that later records do not change."""
        return Budgets(dict(self.totals), dict(self.open), self.seq)

    def carry(self) -> Iterator[Carried]:
        """Yield the lines of a head that adds up to the same."""
        totals, lines = iter(self.totals.items()), max(1, math.ceil(len(self.totals) / ROWS))
        for place in range(lines):
            rows = [(*key, *total[:-1]) for key, total in islice(totals, ROWS)]
            still = list(self.open.values()) if place == lines - 1 else []
            yield Carried(seq=self.seq, rows=rows, open=still, place=place, lines=lines)

    def forget(self) -> dict[Key, Total]:
        """Drop the totals of long ago, and return them."""
        names: dict[Scope, list[str]] = {scope: [] for scope in get_args(Scope)}
        for scope, name in self.totals:
            names[scope].append(name)
        days, user_days = {"", *names["day"][-KEPT_DAYS:]}, {"", *names["day"][-KEPT_USER_DAYS:]}
        kept: dict[Scope, Container[str]] = {
            "turn": {n for n in names["turn"][-KEPT_TURNS:] if self.totals["turn", n].day in user_days},
            "thread": {name for name in names["thread"] if self.totals["thread", name].day in days},
            "user_day": {name for name in names["user_day"] if name[:10] in user_days},
            "schedule_day": user_days,
            "scope_day": {name for name in names["scope_day"] if name[:10] in user_days},
            "day": days,
            "month": set(names["month"][-KEPT_MONTHS:]),
        }
        past = {
            key: total
            for key, total in self.totals.items()
            if not total.reserved and key[1] not in kept[key[0]]
        }
        self.drop(past)
        return past

    def drop(self, past: Mapping[Key, Total]) -> None:
        """Drop these totals, except those that have changed since."""
        for key, total in past.items():
            if self.totals.get(key) is total:
                del self.totals[key]

    def _take_over(self, carried: Carried) -> None:
        if carried.place == 0:
            self.totals, self.open = {}, {}
        self.seq = carried.seq
        for scope, name, spent, granted, prompt, cached, output, warned, day in carried.rows:
            self.totals[scope, name] = Total(spent, granted, prompt, cached, output, warned, day)
        for reserve in carried.open:
            self.open[reserve.seq] = reserve
            self._reserve(reserve.call, reserve.micros)

    def _reserve(self, call: Call, amount: int) -> None:
        for key in call.keys:
            total = self.total(key)
            self.totals[key] = Total(*total[:-1], total.reserved + amount)

    def _spend(self, call: Call, amount: int, usage: Usage) -> None:
        prompt, cached, output = usage.prompt, usage.cache_read, usage.output
        for key in call.keys:
            t = self.total(key)
            sums = t.spent + amount, t.granted, t.prompt + prompt, t.cached + cached, t.output + output
            self._put(key, Total(*sums, t.warned, call.day, t.reserved))

    def _put(self, key: Key, total: Total) -> None:
        """Replace a key's total and make it the last in the order."""
        self.totals.pop(key, None)
        self.totals[key] = total


def most_spent(reserve: Reserve, now: datetime) -> int:
    """Return the most that a call without an end can have cost until *now*, in micro-dollars."""
    seconds = (now - datetime.fromisoformat(reserve.at)).total_seconds() if reserve.at else -1.0
    if reserve.pace is None or seconds < 0:  # A clock that went back says nothing.
        return reserve.micros
    return min(reserve.micros, reserve.pace.at_once + math.ceil((seconds + IN_FLIGHT_S) * reserve.pace.per_s))


def _level(spent: int, limit: int, policy: Policy) -> Level:
    if not policy.hard and spent > limit:
        return "passed"
    return "warning" if spent and spent >= policy.warning_threshold * limit else ""
