"""Wrong protocols, planted to see that the simulation is not blind. Never in the product.

The first nine are those that a delivery protocol is known to be got wrong by, or waits for the disk that are missing,
three are wrong uses of a disk, and the rest are ways to overspend, to wedge, to obey the wrong person, and to hide who answers.
Each is a context manager that puts the fault in and takes it out again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import threads.journal.journal
from bot.budget.accounts import Account, ReservedCall
from bot.budget.budgets import Budgets, Call, OverLimit, Policy, Reserve
from bot.budget.ledger import Ledger as SpendingLedger
from bot.llm.policies.queue import CallQueue
from bot.ports.model import Usage
from threads.actor.questions import Questions
from threads.actor.turn import ActorTurn
from threads.delivery import Delivery, Ending
from threads.errors import StoreUnavailable
from threads.journal.journal import FileJournal
from threads.journal.records import Intent, Ledger, PendingMessage, Received, Record, record_adapter
from threads.model import Answer, Incoming, ThreadId
from threads.store.checksummed_lines import scan, scrub
from threads.store.disk import Disk, File, temporary_of, write_all

Save = Callable[[], Awaitable[str]]


@contextmanager
def _instead(owner: object, **replacements: object) -> Iterator[None]:
    before = {name: getattr(owner, name) for name in replacements}
    for name, replacement in replacements.items():
        setattr(owner, name, replacement)
    try:
        yield
    finally:
        for name, original in before.items():
            setattr(owner, name, original)


@contextmanager
def _both(one: AbstractContextManager[None], other: AbstractContextManager[None]) -> Iterator[None]:
    with one, other:
        yield


def duplicate_acknowledged_early() -> AbstractContextManager[None]:
    """A duplicate is acknowledged while the first copy is still being written."""
    receive = FileJournal.receive

    async def hasty(self: FileJournal, incoming: Incoming, _: int | None = None) -> bool:
        return False if incoming.key in self._receiving else await receive(self, incoming)

    return _instead(FileJournal, receive=hasty)


def acknowledged_before_fsync() -> AbstractContextManager[None]:
    """A message is acknowledged when its record is written, not when it is durable."""

    async def hasty(self: FileJournal, incoming: Incoming, _: int | None = None) -> bool:
        if incoming.key in self._receiving or self.ledger.knows(incoming.key):
            return False
        asyncio.get_running_loop().create_task(write(self, incoming))
        return True

    async def write(self: FileJournal, incoming: Incoming) -> None:
        with suppress(StoreUnavailable):
            await self.append(Received.of(incoming))

    return _instead(FileJournal, receive=hasty)


def no_inbound_dedupe() -> AbstractContextManager[None]:
    """Every delivery of a message is a new message."""

    async def trusting(self: FileJournal, incoming: Incoming, _: int | None = None) -> bool:
        await self.append(Received.of(incoming))
        return True

    apply = Ledger.apply

    def forgetful(self: Ledger, record: Record) -> PendingMessage | None:
        if isinstance(record, Received):
            self.settled.pop(_key_of(record), None)
        return apply(self, record)

    return _both(_instead(FileJournal, receive=trusting), _instead(Ledger, apply=forgetful))


def no_outbox() -> AbstractContextManager[None]:
    """Nothing is written before the post: after a crash the answer is made again and posted blindly."""

    async def blind(
        self: Delivery,
        pending: PendingMessage,
        ending: Ending,
        also: Sequence[PendingMessage] = (),
        save: Save | None = None,
    ) -> None:
        if save is not None:
            await save()
        for other in also:
            await self.cover([other], ending.outcome, pending.received.message_id)
        if ending.by:
            await self.cover([pending], ending.outcome, ending.by)
            return
        received = pending.received
        pending.intent = Intent(
            thread_id=received.thread_id,
            message_id=received.message_id,
            text=scrub(ending.text),
            post=ending.post,
            outcome=ending.outcome,
            code=ending.code,
        )
        await self._finish(pending, self._post)

    return _instead(Delivery, settle=blind)


def effect_before_the_start() -> AbstractContextManager[None]:
    """A turn shows words and calls tools while its start is still on its way to the disk."""

    async def hasty(self: ActorTurn) -> None:
        for event in self._held:
            self._shared.delivery.show(self._pending, event)
        self._held.clear()

    return _instead(ActorTurn, begun=hasty)


def post_before_the_intent() -> AbstractContextManager[None]:
    """The answer is posted while its intent is still on its way to the disk."""
    settle = Delivery.settle

    async def hasty(
        self: Delivery,
        pending: PendingMessage,
        ending: Ending,
        also: Sequence[PendingMessage] = (),
        save: Save | None = None,
    ) -> None:
        if pending.intent is None and not ending.by:
            pending.intent = self._intent(pending, ending)
            self._journal.put(pending.intent)
            await self._finish(pending, self._post)
            await self.cover([*also], ending.outcome, pending.received.message_id)
        else:
            await settle(self, pending, ending, also, save)

    return _instead(Delivery, settle=hasty)


def post_before_the_checkpoint() -> AbstractContextManager[None]:
    """The answer is posted while the conversation that holds it is still on its way to the disk."""
    settle = Delivery.settle

    async def hasty(
        self: Delivery,
        pending: PendingMessage,
        ending: Ending,
        also: Sequence[PendingMessage] = (),
        save: Save | None = None,
    ) -> None:
        await settle(self, pending, ending, also)
        if save is not None:
            await save()

    return _instead(Delivery, settle=hasty)


def blind_repost() -> AbstractContextManager[None]:
    """The intent is on disk, but after a crash it is posted again without a look at what is out."""
    return _instead(Delivery, _reconcile=Delivery._post)


def torn_tail_kept() -> AbstractContextManager[None]:
    """A torn line stays at the end of the journal, and the next record sticks to it."""

    def careless(self: FileJournal) -> int:
        try:
            found = scan(self._disk.read(self._path))
        except FileNotFoundError:
            return 0
        for line in found.good:
            self.ledger.apply(record_adapter().validate_json(line))
        for pending in self.ledger.pending.values():
            pending.recovered = True
        self._file = self._disk.append(self._path)
        return 0

    return _instead(FileJournal, open=careless)


def fsync_tried_again() -> AbstractContextManager[None]:
    """After a failed fsync the same descriptor is fsynced again and believed (fsyncgate)."""

    def stubborn(self: FileJournal, data: bytes) -> None:
        if self._file is not None:
            self._file = _Stubborn(self._file)
        write(self, data)

    write = FileJournal._write
    return _instead(FileJournal, _write=stubborn)


class _Stubborn:
    def __init__(self, file: File) -> None:
        self._file = file._file if isinstance(file, _Stubborn) else file
        self.write, self.close = self._file.write, self._file.close

    def fsync(self) -> None:
        try:
            self._file.fsync()
        except OSError:
            self._file.fsync()


def renamed_without_fsync() -> AbstractContextManager[None]:
    """A file is replaced without making its content durable first."""

    def hasty(disk: Disk, path: Path, data: bytes) -> None:
        temporary = temporary_of(path)
        file = disk.create(temporary)
        write_all(file, data)
        file.close()
        disk.rename(temporary, path)
        disk.fsync_folder(path.parent)

    return _instead(threads.journal.journal, replace_file=hasty)


def reservation_not_awaited() -> AbstractContextManager[None]:
    """A call goes out while its reservation is still on its way to the disk."""

    async def hasty(self: SpendingLedger, call: Call, most: int, policy: Policy) -> int:
        if shortages := self.budgets.shortages(call, most, policy):
            raise OverLimit(shortages, most)
        self.put(record := Reserve(call=call, micros=most))
        return record.seq

    return _instead(SpendingLedger, reserve=hasty)


def reservations_of_the_dead_forgotten() -> AbstractContextManager[None]:
    """What a killed process had reserved is free again after the restart."""

    def forgetful(self: Budgets) -> None:
        for reserve in self.open.values():
            self._reserve(reserve.call, -reserve.micros)
        self.open.clear()

    return _instead(Budgets, lapse=forgetful)


def failures_cost_nothing() -> AbstractContextManager[None]:
    """A call that fails gives its reservation back, whatever the provider had counted by then."""
    commit = Account.commit

    def generous(self: Account, opened: ReservedCall, usage: Usage, cost: int | None, outcome: str) -> None:
        commit(self, opened, usage, cost if outcome == "ok" else 0, outcome)

    return _instead(Account, commit=generous)


def permit_leaked_on_cancel() -> AbstractContextManager[None]:
    """A call that is stopped keeps its place at the gate for ever."""
    return _instead(CallQueue, cancelled=lambda self, ticket: None)


def anybody_decides() -> AbstractContextManager[None]:
    """The first answer to a question counts, whoever gives it."""
    decide = Questions.decide

    def trusting(self: Questions, thread: ThreadId, question_id: str, answer: Answer) -> str:
        for asked in self._open.get(thread, {}).values():
            asked.question = replace(asked.question, may_answer=lambda _: True)
        return decide(self, thread, question_id, answer)

    return _instead(Questions, decide=trusting)


def silent_failover() -> AbstractContextManager[None]:
    """Another model answers and nobody is told."""
    return _instead(ActorTurn, note=lambda self, text: None)


def _key_of(record: Record) -> str:
    transport, workspace, channel, _ = record.thread_id.split(":", 3)
    return f"{transport}:{workspace}:{channel}:{record.message_id}"


LOST, DOUBLED = "never settled|damaged line", "posted twice|settled 2 times|settled twice"

OVERSPENT = "billed, .* allowed"

MUTANTS: dict[str, tuple[Callable[[], AbstractContextManager[None]], str]] = {
    "duplicate acknowledged early": (duplicate_acknowledged_early, LOST),
    "acknowledged before fsync": (acknowledged_before_fsync, LOST),
    "no inbound dedupe": (no_inbound_dedupe, DOUBLED),
    "no outbox": (no_outbox, DOUBLED),
    "effect before the start": (effect_before_the_start, "before its start is durable"),
    "post before the intent": (post_before_the_intent, "before its intent is durable"),
    "post before the checkpoint": (post_before_the_checkpoint, "before its answer is durable"),
    "blind repost": (blind_repost, DOUBLED),
    "torn tail kept": (torn_tail_kept, LOST),
    "fsync tried again": (fsync_tried_again, ""),
    "renamed without fsync": (renamed_without_fsync, ""),
    "reservation not awaited": (reservation_not_awaited, OVERSPENT),
    "reservations of the dead forgotten": (reservations_of_the_dead_forgotten, OVERSPENT),
    "failures cost nothing": (failures_cost_nothing, OVERSPENT),
    "permit leaked on cancel": (permit_leaked_on_cancel, "when all is done|never settled"),
    "anybody decides": (anybody_decides, "who may not decide"),
    "silent failover": (silent_failover, "without a word"),
}
"""Each wrong protocol with the broken promise that it must be caught by."""
