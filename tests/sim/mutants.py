"""Wrong protocols, planted to see that the simulation is not blind. Never in the product.

The first nine are known mistakes of delivery protocols, and missing waits for the disk;
three are wrong uses of a disk; others overspend, hang, obey the wrong person, or hide who answers; the last
break what a playbook promises.
Each is a context manager that puts the fault in and takes it out again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import bot.extensions.playbooks.player
import bot.extensions.playbooks.plays
import threads.journal.journal
from bot.budget.accounts import Account, ReservedCall
from bot.budget.budgets import Budgets, Call, Commit, OverLimit, Pace, Policy, Reserve
from bot.budget.ledger import Ledger as SpendingLedger
from bot.extensions.playbooks import transitions
from bot.extensions.playbooks.player import Player, Spending, new_run
from bot.extensions.playbooks.run_state import Failure, Run, Sign
from bot.extensions.playbooks.runs import Runs
from bot.llm.policies.queue import CallQueue
from bot.ports.model import Usage
from bot.schedules.store import Schedule, Schedules
from tests.crash.retention import FORGETTING_WRONGLY
from tests.explorer.mutants import MUTANTS as explorer
from threads.actor.actor import Actor
from threads.actor.questions import Questions
from threads.actor.turn import ActorTurn
from threads.delivery import Delivery, Ending
from threads.errors import StoreUnavailable
from threads.journal.journal import FileJournal
from threads.journal.records import Intent, Ledger, PendingMessage, Received, Record, record_adapter
from threads.model import Incoming, ThreadId, Turn
from threads.store.checksummed_lines import scan, scrub
from threads.store.disk import Disk, temporary_of, write_all

from .page import Page

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


def deletes_before_the_turn_only() -> Plant:
    """The delete of a message that is being answered changes nothing."""
    give_back = Actor._give_back

    def late(self: Actor, key: str) -> ActorTurn | None:
        return None if self.current and self.current.begun else give_back(self, key)

    return patch.multiple(Actor, _give_back=late)


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

    async def hasty(
        self: SpendingLedger, call: Call, most: int, policy: Policy, pace: Pace | None = None
    ) -> int:
        if shortages := self.budgets.shortages(call, most, policy):
            raise OverLimit(shortages, most)
        self.put(record := Reserve(call=call, micros=most))
        return record.seq

    return patch.multiple(SpendingLedger, reserve=hasty)


def reservations_of_the_dead_forgotten() -> Plant:
    """What a killed process had reserved is free again after the restart."""

    def forgetful(self: Budgets, _: datetime) -> list[Commit]:
        for reserve in self.open.values():
            self._reserve(reserve.call, -reserve.micros)
        self.open.clear()
        return []

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

    def trusting(self: Questions, thread: ThreadId, *which: Any) -> str:
        for asked in self._open.get(thread, {}).values():
            asked.question = replace(asked.question, may_answer=lambda _: True)
        return decide(self, thread, *which)

    return patch.multiple(Questions, decide=trusting)


def silent_failover() -> Plant:
    """Another model answers and nobody is told."""
    return patch.multiple(ActorTurn, note=lambda self, text: None)


def late_answers() -> Plant:
    """An answer is posted however old it is."""
    return patch.multiple(Delivery, _too_old=lambda self, intent: False)


def page_without_keys() -> Plant:
    """The page shows a post that comes again below the one that it shows already."""
    return patch.multiple(Page, place_of=lambda self, key: None)


def border_not_awaited() -> Plant:
    """A run goes on in the next stage while that border is still on its way to the disk."""
    save = Runs.save

    async def hasty(self: Runs, run: Run, carried_out: str = "") -> Run:
        asyncio.get_running_loop().create_task(save(self, run, carried_out))
        return run

    return patch.multiple(Runs, save=hasty)


def run_begun_anew() -> Plant:
    """After a restart a playbook is played from its first stage on."""
    begin = Player._begin

    async def forgetful(self: Player, turn: Turn) -> Run | str:
        run = self.runs.of(turn.incoming.thread)
        if run is None or run.message_id != turn.incoming.id or run.state != "running":
            return await begin(self, turn)
        await self.runs.drop(turn.incoming.thread)
        return await self.runs.take_up(new_run(turn, run.playbook, run.words))

    return patch.multiple(Player, _begin=forgetful)


def visits_without_a_bound() -> Plant:
    """A stage may be entered as often as others lead to it."""
    return patch.object(transitions, "_may_enter", lambda run, target: True)


def attempts_without_a_bound() -> Plant:
    """A failed attempt is followed by another one, whatever the playbook says."""

    def stubborn(run: Run, failure: Failure, errors: tuple[Failure, ...] = ()) -> Run:
        if failure.type in transitions.FINAL or run.attempt > 5:
            return transitions.failed(run, failure, errors)
        return run.model_copy(update={"attempt": run.attempt + 1})

    return patch.object(bot.extensions.playbooks.player, "failed", stubborn)


def returns_without_a_bound() -> Plant:
    """What cannot be done is tried again later for ever."""
    end = transitions._end

    def patient(run: Run, sign: Sign, *rest: Any) -> Run:
        later = run.current.unrecoverable == "retry-later" and run.returns < 6
        more = {"returns": run.returns + 1} if later and sign == "failed" else {}
        return end(run.model_copy(update=more), "parked" if more else sign, *rest)

    return patch.object(transitions, "_end", patient)


def parked_for_ever() -> Plant:
    """A parked run says when it goes on, and nothing brings it back."""

    async def idle(self: Schedules, new: Schedule) -> Schedule:
        return new

    return patch.multiple(Schedules, add=idle)


def money_anew_in_each_turn() -> Plant:
    """A run that comes back may spend the money of the whole playbook again, and each stage that of those before."""

    async def poor(ledger: object, key: str) -> Spending:
        return Spending()

    return patch.object(bot.extensions.playbooks.plays, "spending_of", poor)


def money_of_a_stage_ignored() -> Plant:
    """Only the limits of the whole playbook count."""

    def most(self: Run) -> float | None:
        return None if self.playbook.limits.usd is None else self.playbook.limits.usd - self.before_usd

    return patch.object(Run, "most_usd", property(most))


def left_in_the_middle() -> Plant:
    """A turn ends after a border, though its run has a stage to play."""
    attempt = Player._attempt

    async def lazy(self: Player, turn: Turn, run: Run) -> Run:
        following = await attempt(self, turn, run)
        return following.model_copy(update={"state": "done"}) if following.entries > 2 else following

    return patch.multiple(Player, _attempt=lazy)


@contextmanager
def forgetting_wrongly(name: str) -> Iterator[None]:
    """As in the crash runs: see `tests.crash.retention`."""
    with ExitStack() as stack:
        for one in FORGETTING_WRONGLY[name]:
            stack.enter_context(one)
        yield


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
    "deletes before the turn only": (deletes_before_the_turn_only, "after its delete"),
    "page without keys": (page_without_keys, DOUBLED),
    "late answers": (late_answers, "posted too late"),
    "border not awaited": (border_not_awaited, "is on disk"),
    "run begun anew": (run_begun_anew, "acts after"),
    "visits without a bound": (visits_without_a_bound, "visits of|was entered"),
    "attempts without a bound": (attempts_without_a_bound, ": attempt "),
    "returns without a bound": (returns_without_a_bound, "parked . times|came again"),
    "parked for ever": (parked_for_ever, "never comes again"),
    "money anew in each turn": (money_anew_in_each_turn, "billed for a playbook"),
    "money of a stage ignored": (money_of_a_stage_ignored, "billed for a playbook"),
    "takes what is owed": (partial(forgetting_wrongly, "greedy"), ": taken, "),
    "forgets ids": (partial(forgetting_wrongly, "amnesiac"), DOUBLED),
    "texts kept": (lambda: patch.multiple(Ledger, forget_texts=lambda *_: None), "was forgotten"),
    "left in the middle": (left_in_the_middle, "answered, and its playbook is|on disk, and"),
}
"""Each wrong protocol with the broken promise that it must be caught by."""
