"""Wrong protocols, planted to see that the simulation is not blind. Never in the product.

The first nine are known mistakes of delivery protocols, and missing waits for the disk;
three are wrong uses of a disk; the rest overspend, hang, obey the wrong person, or hide who answers.
Each is a context manager that puts the fault in and takes it out again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import threads.journal.journal
from bot.budget.accounts import Account, ReservedCall
from bot.budget.budgets import Budgets, Call, OverLimit, Policy, Reserve
from bot.budget.ledger import Ledger as SpendingLedger
from bot.llm.policies.queue import CallQueue
from bot.ports.model import Usage
from tests.explorer.mutants import MUTANTS as explorer
from threads.actor.questions import Questions
from threads.actor.turn import ActorTurn
from threads.delivery import Delivery, Ending
from threads.errors import StoreUnavailable
from threads.journal.journal import FileJournal
from threads.journal.records import Intent, Ledger, PendingMessage, Received, Record, record_adapter
from threads.model import Answer, Incoming, ThreadId
from threads.store.checksummed_lines import scan, scrub
from threads.store.disk import Disk, temporary_of, write_all

Plant = AbstractContextManager[object]
Save = Callable[[], Awaitable[str]]


def acknowledged_before_fsync() -> Plant:
    """A message is acknowledged when its record is written, not when it is durable."""

    async def hasty(self: FileJournal, incoming: Incoming, _: int | None = None) -> bool:
        if incoming.key in self._receiving or self.ledger.knows(incoming.key):
            return False
        asyncio.get_running_loop().create_task(write(self, incoming))
        return True

    async def write(self: FileJournal, incoming: Incoming) -> None:
        with suppress(StoreUnavailable):
            await self.append(Received.of(incoming))

    return patch.multiple(FileJournal, receive=hasty)


@contextmanager
def no_inbound_dedupe() -> Iterator[None]:
    """Every delivery of a message is a new message."""

    async def trusting(self: FileJournal, incoming: Incoming, _: int | None = None) -> bool:
        await self.append(Received.of(incoming))
        return True

    apply = Ledger.apply

    def forgetful(self: Ledger, record: Record) -> PendingMessage | None:
        if isinstance(record, Received):
            self.settled.pop(_key_of(record), None)
        return apply(self, record)

    with patch.multiple(FileJournal, receive=trusting), patch.multiple(Ledger, apply=forgetful):
        yield


def no_outbox() -> Plant:
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

    return patch.multiple(Delivery, settle=blind)


def effect_before_the_start() -> Plant:
    """A turn shows words and calls tools while its start is still on its way to the disk."""

    async def hasty(self: ActorTurn) -> None:
        for event in self._held:
            self._shared.delivery.show(self._pending, event)
        self._held.clear()

    return patch.multiple(ActorTurn, begun=hasty)


def post_before_the_intent() -> Plant:
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

    return patch.multiple(Delivery, settle=hasty)


def post_before_the_checkpoint() -> Plant:
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

    return patch.multiple(Delivery, settle=hasty)


def blind_repost() -> Plant:
    """The intent is on disk, but after a crash it is posted again without a look at what is out."""
    return patch.multiple(Delivery, _reconcile=Delivery._post)


def torn_tail_kept() -> Plant:
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

    return patch.multiple(FileJournal, open=careless)


def renamed_without_fsync() -> Plant:
    """A file is replaced without making its content durable first."""

    def hasty(disk: Disk, path: Path, data: bytes) -> None:
        temporary = temporary_of(path)
        file = disk.create(temporary)
        write_all(file, data)
        file.close()
        disk.rename(temporary, path)
        disk.fsync_folder(path.parent)

    return patch.multiple(threads.journal.journal, replace_file=hasty)


def reservation_not_awaited() -> Plant:
    """A call goes out while its reservation is still on its way to the disk."""

    async def hasty(self: SpendingLedger, call: Call, most: int, policy: Policy) -> int:
        if shortages := self.budgets.shortages(call, most, policy):
            raise OverLimit(shortages, most)
        self.put(record := Reserve(call=call, micros=most))
        return record.seq

    return patch.multiple(SpendingLedger, reserve=hasty)


def reservations_of_the_dead_forgotten() -> Plant:
    """What a killed process had reserved is free again after the restart."""

    def forgetful(self: Budgets) -> None:
        for reserve in self.open.values():
            self._reserve(reserve.call, -reserve.micros)
        self.open.clear()

    return patch.multiple(Budgets, lapse=forgetful)


def failures_cost_nothing() -> Plant:
    """A call that fails gives its reservation back, whatever the provider had counted by then."""
    commit = Account.commit

    def generous(self: Account, opened: ReservedCall, usage: Usage, cost: int | None, outcome: str) -> None:
        commit(self, opened, usage, cost if outcome == "ok" else 0, outcome)

    return patch.multiple(Account, commit=generous)


def permit_leaked_on_cancel() -> Plant:
    """A call that is stopped keeps its place at the gate for ever."""
    return patch.multiple(CallQueue, cancelled=lambda self, ticket: None)


def anybody_decides() -> Plant:
    """The first answer to a question counts, whoever gives it."""
    decide = Questions.decide

    def trusting(self: Questions, thread: ThreadId, question_id: str, answer: Answer) -> str:
        for asked in self._open.get(thread, {}).values():
            asked.question = replace(asked.question, may_answer=lambda _: True)
        return decide(self, thread, question_id, answer)

    return patch.multiple(Questions, decide=trusting)


def silent_failover() -> Plant:
    """Another model answers and nobody is told."""
    return patch.multiple(ActorTurn, note=lambda self, text: None)


def late_answers() -> Plant:
    """An answer is posted however old it is."""
    return patch.multiple(Delivery, _too_old=lambda self, intent: False)


def _key_of(record: Record) -> str:
    transport, workspace, channel, _ = record.thread_id.split(":", 3)
    return f"{transport}:{workspace}:{channel}:{record.message_id}"


LOST, DOUBLED = "never settled|damaged line", "posted twice|settled 2 times|settled twice"

OVERSPENT = "billed, .* allowed"

MUTANTS: dict[str, tuple[Callable[[], AbstractContextManager[object]], str]] = {
    "duplicate acknowledged early": (
        explorer["a duplicate acknowledged while the first is written"][1],
        LOST,
    ),
    "acknowledged before fsync": (acknowledged_before_fsync, LOST),
    "no inbound dedupe": (no_inbound_dedupe, DOUBLED),
    "no outbox": (no_outbox, DOUBLED),
    "effect before the start": (effect_before_the_start, "before its start is durable"),
    "post before the intent": (post_before_the_intent, "before its intent is durable"),
    "post before the checkpoint": (post_before_the_checkpoint, "before its answer is durable"),
    "blind repost": (blind_repost, DOUBLED),
    "torn tail kept": (torn_tail_kept, LOST),
    "fsync tried again": (explorer["a failed fsync tried again"][1], ""),
    "renamed without fsync": (renamed_without_fsync, ""),
    "reservation not awaited": (reservation_not_awaited, OVERSPENT),
    "reservations of the dead forgotten": (reservations_of_the_dead_forgotten, OVERSPENT),
    "failures cost nothing": (failures_cost_nothing, OVERSPENT),
    "permit leaked on cancel": (permit_leaked_on_cancel, "when all is done|never settled"),
    "anybody decides": (anybody_decides, "who may not decide"),
    "silent failover": (silent_failover, "without a word"),
    "late answers": (late_answers, "posted too late"),
}
"""Each wrong protocol with the broken promise that it must be caught by."""
