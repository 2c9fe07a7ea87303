"""All that is explored: which scenarios, on which disks, under which faults, and with which bytes rotten."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from unittest import mock

from threads.journal import journal
from threads.journal.records import Record

from .explore import Explorer, Figures, S
from .faults import Kind, NthFails, under
from .model import ModelDisk
from .scenarios import EMPTY, JOURNAL, JournalScenario, life, two_messages
from .threadfiles import ContextScenario, LogScenario, conversation, history


@dataclass(frozen=True, slots=True)
class Case:
    """One exploration, and the pains it takes."""

    name: str
    run: Callable[[Explorer], Awaitable[None]]
    explorer: Callable[[], Explorer] = Explorer


def cases() -> Iterator[Case]:
    for ordered in (False, True):
        kind = "ordered" if ordered else "weak"
        fresh = partial(ModelDisk.holding, EMPTY, ordered=ordered)
        short = partial(_short, fresh)
        yield Case(f"journal, {kind}", partial(_plain, life, JournalScenario, fresh), partial(Explorer, 12))
        yield Case(
            f"journal, short writes, {kind}", partial(_plain, two_messages, JournalScenario, short), _sparser
        )
        yield Case(f"journal, growing, {kind}", partial(_growing, fresh), _sparser)
        yield Case(
            f"context, {kind}", partial(_plain, conversation, ContextScenario, fresh), partial(Explorer, 12)
        )
        yield Case(f"log, {kind}", partial(_plain, history, LogScenario, fresh), partial(Explorer, 3, 1, 150))
        yield Case(
            f"journal, n-th fails, {kind}", partial(_faulty, two_messages, JournalScenario, fresh), _sparsest
        )
        chat = partial(conversation, short=True)
        if not ordered:  # ten times the states of the others, and weak semantics hold all of the ordered ones
            yield Case(
                f"context, n-th fails, {kind}", partial(_faulty, chat, ContextScenario, fresh), _sparsest
            )
    yield Case("journal, rot", _rot)


def _sparser() -> Explorer:
    return Explorer(6, 1, 60)


def _sparsest() -> Explorer:
    return Explorer(2, 1, 100)


def _short(fresh: Callable[[], ModelDisk]) -> ModelDisk:
    disk = fresh()
    disk.longest_write = 120
    return disk


async def _plain(
    play: Callable[[ModelDisk, S], Awaitable[None]],
    begin: Callable[[], S],
    disk: Callable[[], ModelDisk],
    explorer: Explorer,
) -> None:
    await explorer.explore(play, begin, disk())


async def _growing(disk: Callable[[], ModelDisk], explorer: Explorer) -> None:
    with mock.patch.object(journal, "COMPACT_ABOVE", 700):
        await explorer.explore(life, JournalScenario, disk())


async def _faulty(
    play: Callable[[ModelDisk, S], Awaitable[None]],
    begin: Callable[[], S],
    disk: Callable[[], ModelDisk],
    explorer: Explorer,
) -> None:
    """Crash everywhere in scenarios whose n-th operation fails, for every n."""
    kinds: tuple[Kind, ...] = ("io", "full")
    for kind in kinds:
        faults = NthFails(0, kind)
        while faults.count >= faults.n:
            faults = NthFails(faults.n + 1, kind)

            async def stumbling(on: ModelDisk, scenario: S, faults: NthFails = faults) -> None:
                await under(faults, on, lambda: play(on, scenario))

            await explorer.explore(stumbling, begin, disk())


async def _rot(explorer: Explorer) -> None:
    """Flip every byte of a journal, in several ways: at most the lines it touches are lost, and kept aside."""
    disk = ModelDisk.holding(EMPTY)
    scenario = JournalScenario()
    await life(disk, scenario)
    data = disk.read(JOURNAL)
    records: tuple[Record, ...] = tuple(record for step in scenario.steps for record in step.records)
    lost = [(*records[:n], *records[n + size :]) for size in (0, 1, 2) for n in range(len(records))]
    spoilt = JournalScenario(before=lost, opened=1)
    for position, byte in enumerate(data):
        for other in {byte ^ 0x01, byte ^ 0x80, 0x0A} - {byte}:
            flipped = data[:position] + bytes([other]) + data[position + 1 :]
            disk = ModelDisk.holding({**EMPTY, str(JOURNAL): flipped})
            await explorer.one(spoilt, disk, 0, power=True, deep=False)
    for end in range(len(data)):
        zeroed = data[:end].ljust(len(data), b"\0")
        kept = data.count(b"\n", 0, end)
        scenario = JournalScenario(before=[records[:kept]], opened=1)
        await explorer.one(
            scenario, ModelDisk.holding({**EMPTY, str(JOURNAL): zeroed}), 0, power=True, deep=False
        )


async def run_all(report: Callable[[str, Figures], None], *, only: str = "") -> Figures:
    """Explore everything whose name holds *only*; raises `Violation` at the first broken promise."""
    total = Figures()
    for case in cases():
        if only in case.name:
            explorer = case.explorer()
            await case.run(explorer)
            found = explorer.figures
            report(case.name, found)
            total = Figures(
                total.points + found.points, total.first + found.first, total.second + found.second
            )
    return total
