"""Scenarios: what the storage code is asked to do, and what it must give back after a crash at any moment.

A scenario keeps what was promised (a call returned) and what was asked (a call was made) with the number of disk
operations done by then. `Scenario.recover` runs the real recovery on a disk and raises `Violation` when a promise is broken
or something was made up; it then goes on working, and returns the scenario that the next crash is judged by.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain, combinations, count
from pathlib import Path
from typing import ParamSpec, Protocol, TypeVar

import anyio

from threads.background import background_tasks
from threads.errors import StoreUnavailable
from threads.journal.journal import FileJournal
from threads.journal.ports import NullTaker
from threads.journal.records import Intent, Ledger, PendingMessage, Posted, Received, Record, Settled, Started
from threads.model import Author, Incoming, Outcome, ThreadId

from .model import Image, ModelDisk

P = ParamSpec("P")
T = TypeVar("T")

ROOT = Path("/d")
JOURNAL = ROOT / "journal.jsonl"
EMPTY: Image = {"/d": None}
THREAD = ThreadId("fake", "W", "C", "1")


class Violation(AssertionError):
    """A promise was broken."""


def demand(holds: bool, what: str, *facts: object) -> None:
    if not holds:
        raise Violation(f"{what}: " + " | ".join(repr(fact)[:600] for fact in facts))


async def inline(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    return function(*args, **kwargs)


def clock() -> Callable[[], datetime]:
    ticks = count()
    return lambda: datetime(2026, 11, 21, 10, tzinfo=UTC) + timedelta(milliseconds=next(ticks))


class Scenario(Protocol):
    """What was promised and asked up to each operation, and how to judge a disk by it."""

    def stage(self, at: int) -> Hashable:
        """Return a value that differs when what may be found differs."""

    async def judge(self, disk: ModelDisk, at: int, *, power: bool) -> object:
        """Recover on *disk*, found after a crash at operation *at*; raises `Violation`.

        *power* says that the machine stopped, not only the process.
        """

    async def recover(self, disk: ModelDisk, at: int, *, power: bool) -> Scenario:
        """`judge`, go on working there, and return the scenario that the next crash is judged by."""


def incoming(name: str, text: str = "") -> Incoming:
    return Incoming(name, THREAD, Author("U1", "ann"), text or f"text of {name} \u2028 \N{SNOWMAN}", "")


def received(message: Incoming) -> Received:
    return Received(
        thread_id=str(message.thread), message_id=message.id, author=message.author, text=message.text
    )


def pending(name: str) -> PendingMessage:
    return PendingMessage(received(incoming(name)), platform_id=f"p-{name}")


def intent(name: str) -> Intent:
    return Intent(
        thread_id=str(THREAD), message_id=name, text=f"answer to {name}", post="reply", outcome="answered"
    )


Facts = tuple[tuple[tuple[str, ...], ...], frozenset[tuple[str, str, str]], frozenset[str]]


def facts(ledger: Ledger) -> Facts:
    """Return what a ledger says, without the numbers and instants that the journal stamps on."""
    return (
        tuple(
            (key, o.received.text, str(o.attempts), o.intent.text if o.intent else "", o.platform_id)
            for key, o in ledger.pending.items()
        ),
        frozenset((key, end.outcome, end.by) for key, end in ledger.settled.items()),
        frozenset(chain.from_iterable(ledger.undelivered.values())),
    )


def folded(records: Sequence[Record]) -> Facts:
    ledger = Ledger()
    for record in records:
        ledger.apply(record)
    return facts(ledger)


def subsets(records: Sequence[Record]) -> Iterator[tuple[Record, ...]]:
    return chain.from_iterable(combinations(records, n) for n in range(len(records) + 1))


@dataclass(slots=True, kw_only=True)
class Step:
    """Something asked for at one operation and, unless the disk refused, promised at another."""

    asked: int
    done: int | None = None

    def keep(self, at: int) -> None:
        """Note a promise; the first one counts."""
        self.done = at if self.done is None else min(self.done, at)


@dataclass(slots=True, kw_only=True)
class Appended(Step):
    records: tuple[Record, ...]


def reached(steps: Iterable[Step], at: int) -> tuple[int, int]:
    """Return how many steps were asked for and how many were done by operation *at*."""
    steps = list(steps)
    return (
        sum(step.asked <= at for step in steps),
        sum(step.done is not None and step.done <= at for step in steps),
    )


@dataclass(slots=True)
class JournalScenario:
    """The journal: every record promised is there in order, nothing else, and damage is kept aside."""

    steps: list[Appended] = field(default_factory=list)
    before: list[tuple[Record, ...]] = field(default_factory=lambda: [()])
    """What the journal may hold at the start, before anything of this scenario; one of them, once it was `opened`."""
    opened: int = 0
    opened_with: tuple[Record, ...] = ()
    _facts: dict[int, dict[Facts, tuple[Record, ...]]] = field(default_factory=dict)

    async def ask(self, disk: ModelDisk, journal: FileJournal, *records: Record) -> None:
        """Append, or receive when it is one received record; a refusing disk is noted and passed over."""
        step = Appended(records=records, asked=len(disk.ops))
        self.steps.append(step)
        try:
            match records:
                case (Received() as record,):
                    message = PendingMessage(record).incoming
                    demand(
                        await journal.receive(message), "a new message was taken for a duplicate", message.id
                    )
                case _:
                    await journal.append(*records)
        except StoreUnavailable:
            return
        step.keep(len(disk.ops))

    async def again(self, disk: ModelDisk, journal: FileJournal) -> None:
        """Deliver the message asked for last once more; when that returns, the message is promised too."""
        step = self.steps[-1]
        (record,) = step.records
        assert isinstance(record, Received)
        try:
            demand(not await journal.receive(PendingMessage(record).incoming), "a duplicate was taken as new")
        except StoreUnavailable:
            return
        step.keep(len(disk.ops))

    def stage(self, at: int) -> Hashable:
        return (at >= self.opened, *reached(self.steps, at))

    def allowed(self, at: int) -> list[tuple[Record, ...]]:
        """Return what the journal may add up to: all that was promised, and any of what was asked since."""
        if at < self.opened:
            return self.before
        kept: tuple[Record, ...] = self.opened_with
        asked: tuple[Record, ...] = ()
        for step in self.steps:
            if step.done is not None and step.done <= at:
                kept, asked = (*kept, *step.records), ()
            elif step.asked <= at:
                asked = (*asked, *step.records)
        return [(*kept, *some) for some in subsets(asked)]

    async def judge(self, disk: ModelDisk, at: int, *, power: bool) -> tuple[FileJournal, tuple[Record, ...]]:
        """Return the journal opened, and the records it holds."""
        found = disk.seen().get(str(JOURNAL)) or b""
        journal = FileJournal(disk, JOURNAL, offload=inline, now=clock())
        journal.open()
        if at not in self._facts:
            self._facts[at] = {folded(records): records for records in self.allowed(at)}
        got = facts(journal.ledger)
        records = self._facts[at].get(got)
        demand(records is not None, "the journal adds up to nothing allowed", got, *self._facts[at])
        assert records is not None
        kept_aside(found, disk, JOURNAL)
        return journal, records

    async def recover(self, disk: ModelDisk, at: int, *, power: bool) -> JournalScenario:
        journal, records = await self.judge(disk, at, power=power)
        demand(
            folded(list(journal.ledger.records())) == facts(journal.ledger),
            "what a compaction writes adds up to something else",
            facts(journal.ledger),
            folded(list(journal.ledger.records())),
        )
        scenario = JournalScenario(before=self.allowed(at), opened=len(disk.ops), opened_with=records)
        name = f"after-{at}"
        async with running(journal):
            for key, waiting in list(journal.ledger.pending.items()):
                if waiting.started is None:
                    demand(not await journal.receive(waiting.incoming), "a duplicate was taken as new", key)
            await scenario.ask(disk, journal, received(incoming(name)))
            await scenario.ask(disk, journal, started(name, 1), intent(name))
        demand(all(step.done is not None for step in scenario.steps), "a write fails on a healthy disk")
        demand(
            facts(journal.ledger) == folded(scenario.allowed(len(disk.ops))[0]),
            "memory is not what was promised",
        )
        return scenario


def started(name: str, attempt: int) -> Started:
    return Started(thread_id=str(THREAD), message_id=name, attempt=attempt, correlation_id="c0ffee00")


def posted(name: str) -> Posted:
    return pending(name).posted()


def settled(name: str, outcome: Outcome = "answered") -> Settled:
    return pending(name).settled(outcome)


def sound(line: bytes) -> bool:
    """Say whether a line carries its own checksum; written apart from `threads.store.checksummed_lines` on purpose."""
    body, comma, tail = line.rpartition(b',"crc":"')
    return bool(comma) and tail == b'%08x"}' % zlib.crc32(body)


def kept_aside(found: bytes, disk: ModelDisk, path: Path) -> None:
    """Demand that every damaged line of *found* is in the sidecar of *path*."""
    *whole, torn = found.split(b"\n")
    broken = [line for line in whole if line and not sound(line)] + ([torn] if torn else [])
    if broken:
        sidecar = disk.seen().get(f"{path}.broken") or b""
        for part in broken:
            demand(part in sidecar, "damaged bytes are gone", part, sidecar)


@asynccontextmanager
async def running(journal: FileJournal) -> AsyncIterator[None]:
    async with background_tasks() as tasks:
        tasks.start_soon(journal.run, NullTaker())
        yield


async def life(disk: ModelDisk, scenario: JournalScenario) -> None:
    """A few messages' whole lives: a group commit, a redelivery, an undelivered reply that is mentioned later."""
    journal = FileJournal(disk, JOURNAL, offload=inline, now=clock())
    journal.open()
    async with running(journal):
        await scenario.ask(disk, journal, received(incoming("a")))
        await scenario.ask(disk, journal, started("a", 1))
        async with anyio.create_task_group() as together:
            for name in ("b", "c"):
                together.start_soon(scenario.ask, disk, journal, received(incoming(name)))
            together.start_soon(scenario.again, disk, journal)
        await scenario.ask(disk, journal, intent("a"))
        await scenario.ask(disk, journal, settled("a", "undelivered"))
        await scenario.ask(disk, journal, started("b", 1), intent("b"))
        await scenario.ask(disk, journal, posted("b"), settled("b"))
        await scenario.ask(disk, journal, received(incoming("d")))


async def two_messages(disk: ModelDisk, scenario: JournalScenario) -> None:
    """The shortest life that is worth a fault at each operation."""
    journal = FileJournal(disk, JOURNAL, offload=inline, now=clock())
    journal.open()
    async with running(journal):
        await scenario.ask(disk, journal, received(incoming("a")))
        await scenario.ask(disk, journal, started("a", 1), intent("a"))
        await scenario.ask(disk, journal, received(incoming("b")))
        await scenario.ask(disk, journal, settled("a"))
