"""Settles messages: intent -> post -> posted -> settled. Each outcome is shown exactly once.

no intent            -> write the intent and the conversation side by side, and post once both are on disk
intent, not posted   -> ambiguous after a crash or a cancellation: look for the key before posting again. If the
                        platform cannot be searched, post with a visible "(this may be a repeat)". The same applies
                        if the journal was damaged, or has less than the conversation, and if another process had
                        begun the turn: the look sweeps what that left unfinished
posted, not settled  -> settle; nobody waits for that record
an answer too old    -> the intent of an honest note replaces its intent, and the message is `failed`. Age counts
                        from the intent. An answer that may be out already is not told so: it would have two outcomes
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol, TypeVar

import anyio

from . import wording
from .errors import Fenced, PostFailed, StoreUnavailable, TransportUnavailable, error_fields, retry_fields
from .journal.records import Intent, Ledger, PendingMessage, Settled
from .log import log_entries
from .model import (
    Asked,
    Choice,
    Outcome,
    Outgoing,
    OutgoingKind,
    QuestionClosed,
    ThreadId,
    TurnEvent,
    TurnSettled,
    UsageCounted,
    WallClock,
    Way,
)
from .ports import Store
from .store.checksummed_lines import scrub

log = logging.getLogger(__name__)

T = TypeVar("T")

LATE_POST_S = 3.0
"""Seconds after a process died in which its last post may still arrive. Look for it no earlier."""

FIND_TRIES = 3

SHOWN_WITHIN_S = 120.0
"""Outcomes of the last seconds before a crash are shown again. Signs are slow: Slack takes 20 a minute."""

LEFT_WITHIN_S = 900.0
"""Unfinished answers are looked for if their turn ended at most so many seconds before the crash."""


Post = Callable[[PendingMessage, Intent], Awaitable[str]]
"""Posts what an intent says, and returns the platform's id of it."""


@dataclass(frozen=True, slots=True)
class Ending:
    """The outcome of a message, and its text, or the message whose post covers it (``by``).

    ``ways`` are ways to go on, in addition to those of the ``code``.
    """

    outcome: Outcome
    text: str
    post: OutgoingKind = "reply"
    code: str = ""
    by: str = ""
    ways: tuple[Way, ...] = ()


class Outlet(Protocol):
    """The receiver of posts. See `transports.base.transport.Capabilities` for `finds`, `lands_late` and `asks`."""

    @property
    def finds(self) -> bool: ...

    @property
    def lands_late(self) -> bool: ...

    @property
    def asks(self) -> bool: ...

    async def post(self, outgoing: Outgoing) -> str:
        """Return the platform's id. Raises `PostFailed` when it gives the post up."""

    async def find(self, thread: ThreadId, key: str) -> str | None: ...

    def show(self, thread: ThreadId, message_id: str, event: TurnEvent) -> None: ...


class Delivery:
    """Settles messages. One per process. Only one task at a time handles a message.

    ``choices`` returns the buttons for an error's code, a message's id, and the error's own ways. An answer older
    than *max_age_s* is not posted any more.
    """

    def __init__(
        self,
        store: Store,
        *,
        outlet: Callable[[str], Outlet],
        mask: Callable[[str], str],
        choices: Callable[[str, str, Sequence[Way]], tuple[Choice, ...]],
        now: WallClock,
        max_age_s: float,
    ) -> None:
        self._now, self._max_age_s = now, max_age_s
        self._store, self._journal, self._mask = store, store.journal, mask
        self._outlet, self._choices = outlet, choices
        self._opened_at = anyio.current_time()

    async def settle(
        self,
        pending: PendingMessage,
        ending: Ending,
        also: Sequence[PendingMessage] = (),
        save: Callable[[PendingMessage], Awaitable[str]] | None = None,
    ) -> None:
        """Show the outcome and make it final. The same post covers *also*.

        *save* makes the conversation with an answer durable, and returns a note for above the text. Raises
        `StoreUnavailable`. Call it again then: nothing is posted twice.
        """
        ends = [other.settled(ending.outcome, by=pending.received.message_id) for other in also]
        if pending.intent is not None:
            await self.resume(pending)
        elif ending.by:
            await self.cover([pending], ending.outcome, ending.by)
        else:
            written = self._journal.put(self._intent(pending, ending), *ends)
            note = await save(pending) if save and ending.outcome == "answered" else ""
            await self._journal.durable(written)
            if note:
                pending.say_above(note)
            unsure = pending.may_be_out and self._outlet(pending.incoming.thread.transport).finds
            await self._finish(pending, self._reconcile if unsure else self._post)
        for other, end in zip(also, ends, strict=True):
            self._show_end(other, end)

    async def resume(self, pending: PendingMessage) -> None:
        """Finish a message whose intent is on disk, and which may have been posted."""
        await self._finish(pending, self._reconcile)

    async def insist(
        self, pending: PendingMessage, ending: Ending, also: Sequence[PendingMessage] = ()
    ) -> None:
        """Settle, and retry as long as the disk refuses. For messages without an actor."""
        with suppress(Fenced):  # the new owner settles it
            await retry_until_stored(lambda: self.settle(pending, ending, also))

    async def cover(self, covered: list[PendingMessage], outcome: Outcome, by: str) -> None:
        """Settle messages that the post for message *by* covers."""
        if not covered:
            return
        ends = [pending.settled(outcome, by=by) for pending in covered]
        await self._journal.append(*ends)
        for pending, end in zip(covered, ends, strict=True):
            self._show_end(pending, end)

    async def ask(
        self, pending: PendingMessage, question_id: str, text: str, choices: tuple[Choice, ...]
    ) -> bool:
        """Post a question to the people of the thread. Returns False if nobody could see or answer it."""
        thread, key = pending.incoming.thread, f"{pending.incoming.key}?{question_id}"
        outlet = self._outlet(thread.transport)
        if not outlet.asks:
            return False
        incoming = pending.incoming
        question = Outgoing(
            thread,
            key,
            self._mask(scrub(text)),
            "notice",
            incoming.id,
            choices,
            incoming.author.id,
            pending.reference,
            incoming.reply_address,
        )
        try:
            # The question itself has no intent, so it may have been posted if the turn had begun.
            if not (pending.may_be_out and outlet.finds and await self._look(outlet, pending, key)):
                await outlet.post(question)
        except PostFailed as error:
            log.warning("question.dropped: %s", error, extra={**_ids(pending), **error_fields(error)})
            return False
        return True

    def close_question(self, pending: PendingMessage, text: str, closed: QuestionClosed) -> None:
        """Begin to write a question and its decision, for the thread's log."""
        pending.asked = (*pending.asked, Asked(self._mask(scrub(text)), closed))
        if pending.started:
            self._journal.put(replace(pending.started, asked=pending.asked))

    def show(self, pending: PendingMessage, event: TurnEvent) -> None:
        thread = pending.incoming.thread
        pending.spent = event if isinstance(event, UsageCounted) else pending.spent
        self._outlet(thread.transport).show(thread, pending.received.message_id, event)

    def _intent(self, pending: PendingMessage, ending: Ending) -> Intent:
        missed = tuple(self._journal.ledger.undelivered.get(pending.received.thread_id, ()))
        text = f"{wording.undelivered(len(missed))}\n\n{ending.text}" if missed else ending.text
        return Intent(
            thread_id=pending.received.thread_id,
            message_id=pending.received.message_id,
            text=self._mask(scrub(text)),
            post=ending.post,
            outcome=ending.outcome,
            code=ending.code,
            ways=ending.ways,
            mentions=missed,
        )

    async def _finish(self, pending: PendingMessage, post: Post) -> None:
        if (intent := pending.intent) is None:  # the thread was lost and came back, with another object
            raise Fenced(thread_id=pending.received.thread_id)
        if not pending.platform_id and not pending.dropped:
            try:
                pending.platform_id = await post(pending, intent)
            except PostFailed as error:
                await self._give_up(pending, intent, error)
        if pending.dropped:
            end = pending.settled("undelivered")
            await self._journal.append(end)  # the next post of the thread mentions it
        else:
            end = pending.settled((pending.intent or intent).outcome)
            self._journal.carry(pending.posted(), end)
        self._show_end(pending, end)

    async def _give_up(self, pending: PendingMessage, intent: Intent, error: PostFailed) -> None:
        """Tell that an answer is too old, if it is; drop anything else that could not be posted."""
        try:
            if error.maybe_posted or not self._too_old(intent):
                raise error
            pending.platform_id = await self._post_note(pending, intent)
        except PostFailed as last:
            log.warning("post.dropped: %s", last, extra={**_ids(pending), **error_fields(last)})
            pending.dropped = True

    def _too_old(self, intent: Intent) -> bool:
        age = self._now() - datetime.fromisoformat(intent.at)
        answers = intent.post == "reply" and intent.outcome == "answered"
        return answers and age.total_seconds() >= self._max_age_s

    async def _post_note(self, pending: PendingMessage, intent: Intent) -> str:
        """Post that an answer is too old. Its intent is durable before, so that the answer never follows it."""
        error = TransportUnavailable("an answer was not posted in time")
        fields = {**_ids(pending), **error_fields(error)}
        log.warning("post.expired: the answer of %s is too old to be posted", intent.at, extra=fields)
        text = wording.too_old(datetime.fromisoformat(intent.at), pending.reference)
        note = self._intent(pending, Ending("failed", text, "error", error.code))
        await retry_until_stored(lambda: self._journal.append(note))
        return await self._post(pending, note)

    async def _post(self, pending: PendingMessage, intent: Intent, *, mark: str = "") -> str:
        incoming, text = pending.incoming, f"{intent.text}\n\n{mark}" if mark else intent.text
        choices = self._choices(intent.code, incoming.id, intent.ways)
        ids = incoming.author.id, pending.reference, incoming.reply_address
        expired, about = bool(mark) and self._too_old(intent), pending.received.text
        outgoing = Outgoing(
            incoming.thread, incoming.key, text, intent.post, incoming.id, choices, *ids, expired, about
        )
        return await self._outlet(incoming.thread.transport).post(outgoing)

    async def _reconcile(self, pending: PendingMessage, intent: Intent) -> str:
        outlet = self._outlet(pending.incoming.thread.transport)
        if not outlet.finds:
            if outlet.lands_late:
                await self._wait_for_late_posts(pending)
            return await self._post(pending, intent, mark=wording.MAYBE_REPEAT)
        for tried, pause in zip(range(1, FIND_TRIES + 1), retry_pauses(), strict=False):
            try:
                found = await self._look(outlet, pending, pending.incoming.key)
            except PostFailed as error:
                again = retry_fields(error, tried + 1, pause) if tried < FIND_TRIES else {}
                log.warning("post.lookup_failed: %s", error, extra={**_ids(pending), **again})
                await anyio.sleep(pause)
            else:
                late = self._post_note if self._too_old(intent) else self._post
                return found or await late(pending, intent)
        return await self._post(pending, intent, mark=wording.MAYBE_REPEAT)

    async def _look(self, outlet: Outlet, pending: PendingMessage, key: str) -> str | None:
        if outlet.lands_late:
            await self._wait_for_late_posts(pending)
        return await outlet.find(pending.incoming.thread, key)

    async def _wait_for_late_posts(self, pending: PendingMessage) -> None:
        await anyio.sleep_until(max(self._opened_at, pending.taken_at) + LATE_POST_S)

    def repair(self) -> None:
        """Show and log the outcomes that a killed process settled but may not have shown or logged."""
        ledger, missing = self._journal.ledger, dict[ThreadId, dict[int, tuple[PendingMessage, Settled]]]()
        for seq, (pending, end) in ledger.unlogged.items():
            missing.setdefault(pending.incoming.thread, {})[seq] = pending, end
        for end in _last(ledger):
            thread, again = (
                ThreadId.parse(end.thread_id),
                TurnSettled(end.outcome, True, end.interrupted, shown=end.shown),
            )
            self._outlet(thread.transport).show(thread, end.message_id, again)
        for thread, ends in missing.items():
            lines = {end.message_id: log_entries(pending, end) for pending, end in ends.values()}
            self._store.history.repair(thread, lines, partial(ledger.log_holds, *ends))

    def write_log(self, pending: PendingMessage, end: Settled) -> None:
        """Write a message's outcome, which is durable, into its thread's log."""
        log.info("turn.settled: %s", end.outcome, extra=_ids(pending))
        written = partial(self._journal.ledger.log_holds, end.seq)
        self._store.history.put(pending.incoming.thread, log_entries(pending, end), written)

    def _show_end(self, pending: PendingMessage, end: Settled) -> None:
        self.show(pending, pending.ended(end))


def _ids(pending: PendingMessage) -> dict[str, str]:
    ids = {"thread_id": pending.received.thread_id, "message_id": pending.received.message_id}
    return {**ids, "correlation_id": pending.reference} if pending.reference else ids


def _last(ledger: Ledger) -> list[Settled]:
    """Return the outcomes settled shortly before the newest one, newest first: old ones are likely shown already.

    Interrupted, stopped and undelivered turns may leave more to remove, so older ones of these are included.
    """
    recent = [ledger.settled[key] for key, _ in ledger.recent]
    try:
        newest = datetime.fromisoformat(max(end.at for end in recent))
    except ValueError:  # there is none, or somebody edited the line
        return []
    since, long_since = (
        (newest - timedelta(seconds=within_s)).isoformat(timespec="milliseconds")
        for within_s in (SHOWN_WITHIN_S, LEFT_WITHIN_S)
    )
    newest_first = {end.seq: end for end in reversed(recent) if end.at >= since}
    cut = [end for end in ledger.settled.values() if end.interrupted and end.at >= long_since]
    return [*newest_first.values(), *(end for end in reversed(cut) if end.seq not in newest_first)]


async def retry_until_stored(work: Callable[[], Awaitable[T]]) -> T:
    """Do the work, and retry as long as the store refuses. Returns what the work returns."""
    for tried, pause in enumerate(retry_pauses(), 1):
        try:
            return await work()
        except StoreUnavailable as error:
            log.warning("store.retry: %s", error, extra=retry_fields(error, tried + 1, pause))
            await anyio.sleep(pause)
    raise AssertionError  # the pauses never end


def retry_pauses() -> Iterator[float]:
    """Return the seconds between retries: 2, 4, 6, then 30 without end."""
    yield from (2.0, 4.0, 6.0)
    while True:
        yield 30.0
