"""From an ending to a settled message: intent -> post -> posted -> settled, each outcome shown exactly once.

no intent            -> write the intent and the conversation side by side, and post once both are on disk
intent, not posted   -> ambiguous (a crash, or a cut): look for the key before posting again; if the platform
                        cannot be asked, post with a visible "(this may be a repeat)"; the same where the journal
                        was damaged, or says less than the conversation
posted, not settled  -> settle; nobody waits for that to be on disk
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol, TypeVar

import anyio

from . import wording
from .errors import Fenced, PostFailed, StoreUnavailable, retry_fields
from .journal.records import Intent, Ledger, PendingMessage, Settled
from .log import log_entries
from .model import Choice, Outcome, Outgoing, OutgoingKind, ThreadId, TurnEvent, TurnSettled, Way
from .store.checksummed_lines import scrub
from .stores import Store

log = logging.getLogger(__name__)

T = TypeVar("T")

LATE_POST_S = 3.0
"""A post may still land after the process that sent it died: look no earlier than this afterwards."""

FIND_TRIES = 3

SHOWN_WITHIN_S = 120.0
"""What ended so shortly before a death may look unfinished: signs go at the platform's pace, in Slack 20 a minute."""

LEFT_WITHIN_S = 900.0
"""What an interrupted turn had begun to show is looked for after a death that came so shortly after its end."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a message ends, and the text that shows it, or the message whose post shows it too (``by``).

    ``ways`` are how its person may go on, besides what the ``code`` stands for.
    """

    outcome: Outcome
    text: str
    post: OutgoingKind = "reply"
    code: str = ""
    by: str = ""
    ways: tuple[Way, ...] = ()


class Outlet(Protocol):
    """Where posts go. See `transports.base.transport.Capabilities` for `finds`, `lands_late` and `asks`."""

    @property
    def finds(self) -> bool: ...

    @property
    def lands_late(self) -> bool: ...

    @property
    def asks(self) -> bool: ...

    async def post(self, outgoing: Outgoing) -> str:
        """Return the platform's id; raises `PostFailed` when the post is given up."""
        ...

    async def find(self, thread: ThreadId, key: str) -> str | None: ...

    def show(self, thread: ThreadId, message_id: str, event: TurnEvent) -> None: ...


class Delivery:
    """Settles messages. One per process; each message is in the hands of one task at a time.

    ``choices`` returns the ways to go on from an error's code, a message's id, and the error's own ways.
    """

    def __init__(
        self,
        store: Store,
        *,
        outlet: Callable[[str], Outlet],
        mask: Callable[[str], str],
        choices: Callable[[str, str, Sequence[Way]], tuple[Choice, ...]],
    ) -> None:
        self._store, self._journal, self._mask = store, store.journal, mask
        self._outlet, self._choices = outlet, choices
        self._opened_at = anyio.current_time()

    async def settle(
        self,
        pending: PendingMessage,
        ending: Ending,
        also: Sequence[PendingMessage] = (),
        save: Callable[[], Awaitable[str]] | None = None,
    ) -> None:
        """Show the ending and make it final, for *also* too, which the same post speaks for.

        *save* makes the conversation durable; what it returns is said above the text. Raises `StoreUnavailable`; call
        again then, nothing is posted twice.
        """
        ends = [other.settled(ending.outcome, by=pending.received.message_id) for other in also]
        if pending.intent is not None:
            await self.resume(pending)
        elif ending.by:
            await self.cover([pending], ending.outcome, ending.by)
        else:
            written = self._journal.put(self._intent(pending, ending), *ends)
            note = await save() if save else ""
            await self._journal.durable(written)
            if note:
                pending.say_above(note)
            unsure = pending.received.unsure and self._outlet(pending.incoming.thread.transport).finds
            await self._finish(pending, self._reconcile if unsure else self._post)
        for other, end in zip(also, ends, strict=True):
            self._show_end(other, end)

    async def resume(self, pending: PendingMessage) -> None:
        """Finish a message whose intent is on disk and whose post may or may not be out."""
        await self._finish(pending, self._reconcile)

    async def insist(
        self, pending: PendingMessage, ending: Ending, also: Sequence[PendingMessage] = ()
    ) -> None:
        """Settle, however long the disk refuses; for endings without an actor."""
        with suppress(Fenced):  # the new owner ends it
            await retry_until_stored(lambda: self.settle(pending, ending, also))

    async def cover(self, covered: list[PendingMessage], outcome: Outcome, by: str) -> None:
        """Settle messages that the post for message *by* speaks for."""
        if not covered:
            return
        ends = [pending.settled(outcome, by=by) for pending in covered]
        await self._journal.append(*ends)
        for pending, end in zip(covered, ends, strict=True):
            self._show_end(pending, end)

    async def ask(
        self, pending: PendingMessage, question_id: str, text: str, choices: tuple[Choice, ...]
    ) -> bool:
        """Post a question to the people of the thread; False when nobody there could see or answer it."""
        thread, key = pending.incoming.thread, f"{pending.incoming.key}?{question_id}"
        outlet = self._outlet(thread.transport)
        if not outlet.asks:
            return False
        ids = {
            "reply_to": pending.incoming.id,
            "to": pending.incoming.author.id,
            "correlation_id": pending.reference,
            "reply_address": pending.incoming.reply_address,
        }
        question = Outgoing(thread, key, self._mask(scrub(text)), "notice", choices=choices, **ids)
        try:
            # The question itself has no intent: it may be out wherever the turn had begun.
            began = pending.interrupted or pending.received.unsure
            if not (began and outlet.finds and await self._look(outlet, pending, key)):
                await outlet.post(question)
        except PostFailed as error:
            log.warning("question.dropped: %s", error, extra={**_ids(pending), "code": error.code})
            return False
        return True

    def show(self, pending: PendingMessage, event: TurnEvent) -> None:
        thread = pending.incoming.thread
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

    async def _finish(
        self, pending: PendingMessage, post: Callable[[PendingMessage, Intent], Awaitable[str]]
    ) -> None:
        if (intent := pending.intent) is None:  # the thread was lost and came back: another object has it
            raise Fenced(thread_id=pending.received.thread_id)
        if not pending.platform_id and not pending.dropped:
            try:
                pending.platform_id = await post(pending, intent)
            except PostFailed as error:
                log.warning("post.dropped: %s", error, extra={**_ids(pending), "code": error.code})
                pending.dropped = True
        if pending.dropped:
            end = pending.settled("undelivered")
            await self._journal.append(end)  # the next post of the thread speaks of it
        else:
            end = pending.settled(intent.outcome)
            self._journal.carry(pending.posted(), end)
        self._show_end(pending, end)

    async def _post(self, pending: PendingMessage, intent: Intent, *, mark: str = "") -> str:
        asked, text = pending.incoming, f"{intent.text}\n\n{mark}" if mark else intent.text
        choices = self._choices(intent.code, asked.id, intent.ways)
        ids = asked.author.id, pending.reference, asked.reply_address
        outgoing = Outgoing(asked.thread, asked.key, text, intent.post, asked.id, choices, *ids)
        return await self._outlet(asked.thread.transport).post(outgoing)

    async def _reconcile(self, pending: PendingMessage, intent: Intent) -> str:
        outlet = self._outlet(pending.incoming.thread.transport)
        if not outlet.finds:
            if outlet.lands_late:
                await self._let_late_posts_land(pending)
            return await self._post(pending, intent, mark=wording.MAYBE_REPEAT)
        for tried, pause in zip(range(1, FIND_TRIES + 1), retry_pauses(), strict=False):
            try:
                found = await self._look(outlet, pending, pending.incoming.key)
            except PostFailed as error:
                again = retry_fields(error.code, tried + 1, pause) if tried < FIND_TRIES else {}
                log.warning("post.lookup_failed: %s", error, extra={**_ids(pending), **again})
                await anyio.sleep(pause)
            else:
                return found or await self._post(pending, intent)
        return await self._post(pending, intent, mark=wording.MAYBE_REPEAT)

    async def _look(self, outlet: Outlet, pending: PendingMessage, key: str) -> str | None:
        if outlet.lands_late:
            await self._let_late_posts_land(pending)
        return await outlet.find(pending.incoming.thread, key)

    async def _let_late_posts_land(self, pending: PendingMessage) -> None:
        await anyio.sleep_until(max(self._opened_at, pending.taken_at) + LATE_POST_S)

    def repair(self) -> None:
        """Show, and write into the logs, what a killed process settled but may no longer have shown and written."""
        ledger, missing = self._journal.ledger, dict[ThreadId, dict[int, tuple[PendingMessage, Settled]]]()
        for seq, (pending, end) in ledger.unlogged.items():
            missing.setdefault(pending.incoming.thread, {})[seq] = pending, end
        for end in _last(ledger):
            thread, again = ThreadId.parse(end.thread_id), TurnSettled(end.outcome, True, end.interrupted)
            self._outlet(thread.transport).show(thread, end.message_id, again)
        for thread, ends in missing.items():
            lines = {end.message_id: log_entries(pending, end) for pending, end in ends.values()}
            self._store.history.repair(thread, lines, partial(ledger.log_holds, *ends))

    def write_log(self, pending: PendingMessage, end: Settled) -> None:
        """Write into the thread's log how a message ended, once that is durable."""
        log.info("turn.settled: %s", end.outcome, extra=_ids(pending))
        written = partial(self._journal.ledger.log_holds, end.seq)
        self._store.history.put(pending.incoming.thread, log_entries(pending, end), written)

    def _show_end(self, pending: PendingMessage, end: Settled) -> None:
        self.show(pending, TurnSettled(end.outcome, pending.recovered, pending.interrupted, pending.code))


def _ids(pending: PendingMessage) -> dict[str, str]:
    received = pending.received
    ids = {"thread_id": received.thread_id, "message_id": received.message_id}
    return {**ids, "correlation_id": pending.reference} if pending.reference else ids


def _last(ledger: Ledger) -> list[Settled]:
    """Return what was settled shortly before the newest was, that first: the oldest are the likeliest to be shown.

    Of turns that were interrupted, stopped or undelivered more may be left to take away, and for longer.
    """
    ended = [ledger.settled[key] for key, _ in ledger.recent]
    try:
        newest = datetime.fromisoformat(max(end.at for end in ended))
    except ValueError:  # there is none, or its line was made by hand
        return []
    since, long_since = (
        (newest - timedelta(seconds=within_s)).isoformat(timespec="milliseconds")
        for within_s in (SHOWN_WITHIN_S, LEFT_WITHIN_S)
    )
    shown = {end.seq: end for end in reversed(ended) if end.at >= since}
    left = [end for end in ledger.settled.values() if end.interrupted and end.at >= long_since]
    return [*shown.values(), *(end for end in reversed(left) if end.seq not in shown)]


async def retry_until_stored(work: Callable[[], Awaitable[T]]) -> T:
    """Do the work; retry while the disk refuses."""
    for tried, pause in enumerate(retry_pauses(), 1):
        try:
            return await work()
        except StoreUnavailable as error:
            log.warning("store.retry: %s", error, extra=retry_fields(error.code, tried + 1, pause))
            await anyio.sleep(pause)
    raise AssertionError  # the pauses never end


def retry_pauses() -> Iterator[float]:
    """Return the seconds between retries: 2, 4, 6, then 30 without end."""
    yield from (2.0, 4.0, 6.0)
    while True:
        yield 30.0
