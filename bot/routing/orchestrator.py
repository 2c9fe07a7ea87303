"""Routes events from a transport to a thread's mailbox, and resumes work after a restart.

`receive` makes an event durable. `route` then decides where it goes, synchronously and in the journal's order. An
exception in `route` is a bug that ends the process. The journal has the pending messages, and the next start serves
them.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Literal, TypeVar, assert_never

from anyio.abc import TaskGroup

from bot import wording
from bot.ports.errors import CapabilityMissing
from bot.routing.admission import Admission
from bot.routing.commands import Command, Controls, command_of, obey, parse, retried, take_typed
from bot.routing.rate_limit import RateLimiter
from bot.routing.thread_tasks import ThreadTasks
from threads.actor.recovery import Plan
from threads.actor.registry import Registry
from threads.delivery import Delivery, Ending, retry_until_stored
from threads.errors import Fenced, MailboxFull
from threads.journal.records import PendingMessage, Received
from threads.model import (
    Deleted,
    Edited,
    Feedback,
    FollowUp,
    Inbound,
    Incoming,
    Outcome,
    StopRequest,
    ThreadId,
    Way,
)
from threads.ports import Journal
from threads.store.checksummed_lines import scrub
from threads.wording import NOT_YOURS

log = logging.getLogger(__name__)

Said = TypeVar("Said", Incoming, Edited)

RETRIED = ("failed", "dead_letter")
"""Outcomes that /retry can repeat."""

SharedEnding = Callable[[int], Ending]
"""Returns the ending that so many messages of a thread share."""


def _full(count: int) -> Ending:
    return Ending("refused", wording.refused(count), "notice")


def _too_fast(count: int) -> Ending:
    return Ending("refused", wording.too_fast(count), "notice")


def _scrubbed(event: Said) -> Said:
    return replace(event, text=scrub(event.text), quoted=scrub(event.quoted))


def _too_old(count: int) -> Ending:
    return Ending("failed", wording.stale(count), "notice")


def _cut_off(count: int) -> Ending:
    return Ending("failed", wording.cut_off(count), "notice")


class Orchestrator:
    def __init__(
        self,
        tasks: TaskGroup,
        *,
        journal: Journal,
        registry: Registry,
        delivery: Delivery,
        admission: Admission,
        rates: RateLimiter,
        controls: Controls,
        on_feedback: Callable[[Feedback], Awaitable[None]],
    ) -> None:
        self._journal, self._registry, self._delivery = journal, registry, delivery
        self._thread_tasks = ThreadTasks(tasks)
        self._admission, self._rates = admission, rates
        self._controls, self._on_feedback = controls, on_feedback
        self._sharing: dict[tuple[ThreadId, SharedEnding], list[PendingMessage]] = {}

    async def receive(self, event: Inbound) -> Outcome | None:
        """Receive one event, as a `threads.model.Sink`. Raises `StoreUnavailable` if it cannot be stored."""
        match event:
            case Incoming():
                admitted = await self._admission.admits(event)
                if admitted and not await self._journal.receive(_scrubbed(event), self._limit(event)):
                    return await self._journal.outcome(event.key)
            case Edited() | Deleted():
                event = _scrubbed(event) if isinstance(event, Edited) else event
                if not await self._journal.forward(event):
                    try:
                        await self.change(event)
                    except Fenced:  # another process took the thread over meanwhile
                        await self._journal.forward(event)
            case Feedback():
                if self._admission.allowed(event):
                    await self._on_feedback(event)
            case _:
                assert_never(event)
        return None

    async def change(self, event: FollowUp) -> None:
        """Edit a message whose turn has not started, withdraw one, or stop a thread. Raises `StoreUnavailable`."""
        match event:
            case Edited():
                await self._journal.amend(event)
            case Deleted():
                await self._registry.withdraw(event)
            case StopRequest():
                await self._registry.stop_here(event)
            case _:
                assert_never(event)

    def route(self, pending: PendingMessage) -> None:
        """Send a durable message to its thread. Never waits."""
        incoming, command = pending.incoming, self._controls.command_of(pending)
        if not (pending.is_over or self._admission.allowed(incoming)):
            self._end_together([pending], Ending("refused", wording.NOT_ALLOWED, "refusal"))
        elif incoming.stale:
            self._share(pending, _too_old)
        elif command and not pending.is_over and self._controls.is_control(command, incoming):
            self._thread_tasks.start(incoming.thread, self._obey, command, pending)
        elif not self._rates.allows(pending):
            self._share(pending, _too_fast)
        elif command and command.name == "retry" and (ending := self._take_up(pending, command.words)):
            self._end_together([pending], ending)
        else:
            if command:
                pending.incoming = self._controls.as_turn(pending.incoming)
            try:
                self._registry.tell(pending)
            except MailboxFull:
                self._share(pending, _full)

    def recover(self, found: Plan) -> None:
        """Resume the work of another process: an earlier one on this machine, or a worker that is gone."""
        for pending in found.serve:
            self.route(pending)
        for stale in found.stale.values():
            self._end_together(stale, _too_old(len(stale)))
        for cut in found.cut.values():
            self._end_together(cut, _cut_off(len(cut)))
        for pending in found.damaged:
            self._end_together([pending], Ending("failed", wording.DAMAGED, "notice"))
        if found.elsewhere:
            log.warning(
                "recovery.elsewhere: %d wait for a start that serves their transport", len(found.elsewhere)
            )
        if found.serve or found.stale or found.cut:
            log.info(
                "recovery.planned: %d to serve, %d threads with stale messages",
                len(found.serve),
                len(found.stale | found.cut),
            )

    def release(self, thread: ThreadId) -> None:
        """End all work about a thread, because another worker serves it now. Messages get no outcome here."""
        self._registry.release(thread)
        self._thread_tasks.release(thread)
        self._sharing = {note: pending for note, pending in self._sharing.items() if note[0] != thread}

    def _limit(self, incoming: Incoming) -> int | None:
        """Return how many messages a minute the author may send, or None if this one does not count."""
        command = command_of(incoming)
        is_free = incoming.stale or (command is not None and self._controls.is_control(command, incoming))
        return None if is_free else self._rates.limit_of(incoming.author.id)

    async def _obey(self, command: Command, pending: PendingMessage) -> None:
        """Carry out a command once. If its reply is on disk after a crash, only the reply is posted."""
        if not command.typed:
            await self._take_answer(pending)
            return
        text, code = "", ""
        if pending.intent is None:
            try:
                text = await retry_until_stored(lambda: obey(command, pending, self._controls))
            except CapabilityMissing as error:
                text, code = error.friendly, error.code
            except Fenced:
                return  # the new owner of the thread carries it out
        outcome: Outcome = "refused" if text == NOT_YOURS else "answered"
        await self._delivery.insist(pending, Ending(outcome, text, "notice", code))

    async def _take_answer(self, pending: PendingMessage) -> None:
        """Give an answer to its question. If that is not open any more, the message is like any other."""
        try:
            asked_by, reply = await take_typed(pending, self._controls)
            if asked_by or reply:
                ending = Ending("merged" if asked_by else "answered", reply, "notice", by=asked_by)
                await self._delivery.insist(pending, ending)
            else:
                self._registry.tell(pending)
        except MailboxFull:
            self._share(pending, _full)
        except Fenced:
            return  # the new owner of the thread takes it

    def _take_up(self, pending: PendingMessage, words: str) -> Ending | None:
        """Replace "/retry" by the failed message. Returns an ending if that is not possible.

        Without an id it is the last failed message of the thread. It runs with the rights of its author, whoever
        retries it. Only its author or an admin may name a way to go on.
        """
        ending = self._repeat_failed(pending, words)
        return None if pending.intent else ending  # what it came to before a restart stands, in its place

    def _repeat_failed(self, pending: PendingMessage, words: str) -> Ending | None:
        message_id, *ways = retried(words)
        if message_id and self._taken_up(pending, message_id):
            return Ending("answered", wording.ALREADY_RETRIED, "notice")
        for received in self._failures(pending.received.thread_id):
            if message_id and received.message_id != message_id:
                continue
            again = parse(received.text)
            if again is None or again.name != "retry":
                return self._serve_again(pending, received, ways)
            message_id, *more = retried(again.words)
            ways += more
        return Ending("answered", wording.NOTHING_TO_RETRY, "notice")

    def _failures(self, thread_id: str) -> Iterator[Received]:
        """Yield the failed messages of a thread, newest first. Includes one whose post is not finished."""
        ledger = self._journal.ledger
        ending = ((pending, pending.intent) for pending in reversed(ledger.pending.values()))
        ended = ((pending, ledger.settled.get(key)) for key, pending in reversed(ledger.recent))
        for pending, end in chain(ending, ended):
            if pending.received.thread_id == thread_id and end and end.outcome in RETRIED:
                yield pending.received

    def _serve_again(self, pending: PendingMessage, failed: Received, ways: Sequence[Way]) -> Ending | None:
        without = "without-files" in ways
        files = () if without else failed.files
        first: Way | Literal[""] = next((way for way in ways if way != "without-files"), "")
        if ways and not self._controls.decides(pending.incoming.author.id, failed.author.id):
            return Ending("refused", NOT_YOURS, "notice")
        again = replace(
            pending.incoming,
            author=failed.author,
            text=failed.text,
            quoted=failed.quoted,
            files=files,
            first=first,
            without_files=without,
            replaces=failed.replaces,
        )
        if not self._admission.allowed(again):
            return Ending("refused", wording.NOT_ALLOWED, "refusal")
        pending.incoming = again
        return None

    def _taken_up(self, pending: PendingMessage, message_id: str) -> bool:
        """Return whether an earlier /retry of the same message waits, runs or has answered it."""
        ledger = self._journal.ledger
        ended = (
            other
            for key, other in ledger.recent
            if (end := ledger.settled.get(key))
            and (end.outcome == "merged" or (end.outcome == "answered" and other.started))
        )
        under_way = (other for other in ledger.pending.values() if other.incoming.text != other.received.text)
        return any(
            other.received.thread_id == pending.received.thread_id
            and other.received.seq < pending.received.seq
            and (command := command_of(other.received.incoming)) is not None
            and command.name == "retry"
            and retried(command.words)[0] == message_id
            for other in (*under_way, *ended)
        )

    def _share(self, pending: PendingMessage, ending: SharedEnding) -> None:
        """End a message without a turn. Messages that arrive while such a note is being posted share the next one."""
        note = pending.incoming.thread, ending
        if note in self._sharing:
            self._sharing[note].append(pending)
        else:
            self._sharing[note] = [pending]
            self._thread_tasks.start(pending.incoming.thread, self._end_all, note)

    async def _end_all(self, note: tuple[ThreadId, SharedEnding]) -> None:
        while pending := self._sharing[note]:
            self._sharing[note] = []
            await self._delivery.insist(pending[-1], note[1](len(pending)), pending[:-1])
        del self._sharing[note]

    def _end_together(self, pending: list[PendingMessage], ending: Ending) -> None:
        """End several messages of a thread with one post, which answers the last of them."""
        thread = pending[-1].incoming.thread
        self._thread_tasks.start(thread, self._delivery.insist, pending[-1], ending, pending[:-1])
