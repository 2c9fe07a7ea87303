"""From an ending to a settled message: intent -> post -> posted -> settled, each outcome shown exactly once.

no intent            -> write the intent, post: nothing can be out before it is on disk
intent, not posted   -> ambiguous (a crash, or a cut): look for the key before posting again; if the platform
                        cannot be asked, post with a visible "(this may be a repeat)"; the same where the journal
                        was damaged, or says less than the conversation
posted, not settled  -> settle
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol, TypeVar

import anyio

from . import wording
from .errors import PostFailed, StoreUnavailable, retry_fields
from .journal.journal import Journal
from .journal.records import Intent, Ledger, Owed, Settled
from .log import Log, told
from .model import Choice, Outcome, Outgoing, OutgoingKind, ThreadId, TurnEvent, TurnSettled, Way
from .store.checksummed_lines import scrub

log = logging.getLogger(__name__)

T = TypeVar("T")

LATE_POST_S = 3.0
"""A post may still land after the process that sent it died: look no earlier than this after the start."""

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
    """Settles messages. One per process; each message is in the hands of one task at a time."""

    def __init__(
        self,
        journal: Journal,
        history: Log,
        *,
        outlet: Callable[[str], Outlet],
        folder: Callable[[ThreadId], Path],
        now: Callable[[], datetime],
        mask: Callable[[str], str] = str,
    ) -> None:
        self._journal, self._history, self._now, self._mask = journal, history, now, mask
        self._outlet, self._folder = outlet, folder
        self._look_from = anyio.current_time() + LATE_POST_S

    async def settle(self, owed: Owed, ending: Ending, also: Sequence[Owed] = ()) -> None:
        """Show the ending and make it final, for *also* too, which the same post speaks for.

        Raises `StoreUnavailable`; call again then, nothing is posted twice.
        """
        ends = [other.settled(ending.outcome, by=owed.received.message_id) for other in also]
        if owed.intent is not None:
            await self.resume(owed)
        elif ending.by:
            await self.cover([owed], ending.outcome, ending.by)
        else:
            await self._journal.append(self._intent(owed, ending), *ends)
            unsure = owed.received.unsure and self._outlet(owed.incoming.thread.transport).finds
            await self._finish(owed, self._reconcile if unsure else self._post)
        for other, end in zip(also, ends, strict=True):
            await self._conclude(other, end)

    async def resume(self, owed: Owed) -> None:
        """Finish a message whose intent is on disk and whose post may or may not be out."""
        await self._finish(owed, self._reconcile)

    async def insist(self, owed: Owed, ending: Ending, also: Sequence[Owed] = ()) -> None:
        """Settle, however long the disk refuses; for endings that no actor looks after."""
        await patiently(lambda: self.settle(owed, ending, also))

    async def cover(self, covered: list[Owed], outcome: Outcome, by: str) -> None:
        """Settle messages that the post for message *by* speaks for."""
        if not covered:
            return
        ends = [owed.settled(outcome, by=by) for owed in covered]
        await self._journal.append(*ends)
        for owed, end in zip(covered, ends, strict=True):
            await self._conclude(owed, end)

    async def ask(self, owed: Owed, question_id: str, text: str, choices: tuple[Choice, ...]) -> bool:
        """Post a question to the people of the thread; False when nobody there could see or answer it."""
        thread, key = owed.incoming.thread, f"{owed.incoming.key}?{question_id}"
        outlet = self._outlet(thread.transport)
        if not outlet.asks:
            return False
        ids = {"reply_to": owed.incoming.id, "to": owed.incoming.author.id, "correlation_id": owed.reference}
        question = Outgoing(thread, key, self._mask(scrub(text)), "notice", choices=choices, **ids)
        try:
            # The question itself has no intent: it may be out wherever the turn had begun.
            began = owed.interrupted or owed.received.unsure
            if not (began and outlet.finds and await self._look(outlet, thread, key)):
                await outlet.post(question)
        except PostFailed as error:
            log.warning("question.dropped: %s", error, extra={**_ids(owed), "code": error.code})
            return False
        return True

    def show(self, owed: Owed, event: TurnEvent) -> None:
        thread = owed.incoming.thread
        self._outlet(thread.transport).show(thread, owed.received.message_id, event)

    def _intent(self, owed: Owed, ending: Ending) -> Intent:
        missed = tuple(self._journal.ledger.undelivered.get(owed.received.thread_id, ()))
        text = f"{wording.undelivered(len(missed))}\n\n{ending.text}" if missed else ending.text
        return Intent(
            thread_id=owed.received.thread_id,
            message_id=owed.received.message_id,
            text=self._mask(scrub(text)),
            post=ending.post,
            outcome=ending.outcome,
            code=ending.code,
            ways=ending.ways,
            mentions=missed,
        )

    async def _finish(self, owed: Owed, post: Callable[[Owed, Intent], Awaitable[str]]) -> None:
        intent = owed.intent
        assert intent is not None
        if not owed.platform_id and not owed.dropped:
            try:
                owed.platform_id = await post(owed, intent)
            except PostFailed as error:
                log.warning("post.dropped: %s", error, extra={**_ids(owed), "code": error.code})
                owed.dropped = True
        posted = [owed.posted()] if owed.platform_id else []
        end = owed.settled("undelivered" if owed.dropped else intent.outcome)
        await self._journal.append(*posted, end)
        await self._conclude(owed, end)

    async def _post(self, owed: Owed, intent: Intent, *, mark: str = "") -> str:
        asked, text = owed.incoming, f"{intent.text}\n\n{mark}" if mark else intent.text
        choices = wording.choices(intent.code, asked.id, intent.ways)
        ids = asked.author.id, owed.reference
        outgoing = Outgoing(asked.thread, asked.key, text, intent.post, asked.id, choices, *ids)
        return await self._outlet(asked.thread.transport).post(outgoing)

    async def _reconcile(self, owed: Owed, intent: Intent) -> str:
        outlet = self._outlet(owed.incoming.thread.transport)
        if not outlet.finds:
            if outlet.lands_late:
                await anyio.sleep_until(self._look_from)
            return await self._post(owed, intent, mark=wording.MAYBE_REPEAT)
        for tried, pause in zip(range(1, FIND_TRIES + 1), patience(), strict=False):
            try:
                found = await self._look(outlet, owed.incoming.thread, owed.incoming.key)
            except PostFailed as error:
                again = retry_fields(error.code, tried + 1, pause) if tried < FIND_TRIES else {}
                log.warning("post.lookup_failed: %s", error, extra={**_ids(owed), **again})
                await anyio.sleep(pause)
            else:
                return found or await self._post(owed, intent)
        return await self._post(owed, intent, mark=wording.MAYBE_REPEAT)

    async def _look(self, outlet: Outlet, thread: ThreadId, key: str) -> str | None:
        if outlet.lands_late:
            await anyio.sleep_until(self._look_from)
        return await outlet.find(thread, key)

    async def mend(self) -> None:
        """Show, and write into the logs, what a killed process settled but may no longer have shown and written."""
        ledger, missing = self._journal.ledger, dict[Path, dict[int, tuple[Owed, Settled]]]()
        for seq, (owed, end) in ledger.unlogged.items():
            missing.setdefault(self._folder(owed.incoming.thread), {})[seq] = owed, end
        for end in _last(ledger):
            thread, again = ThreadId.parse(end.thread_id), TurnSettled(end.outcome, True, end.interrupted)
            self._outlet(thread.transport).show(thread, end.message_id, again)
        for folder, ends in missing.items():
            lines = {end.message_id: told(owed, end, end.at) for owed, end in ends.values()}
            if await self._history.mend(folder, lines):
                ledger.log_holds(*ends)

    async def _conclude(self, owed: Owed, end: Settled) -> None:
        log.info("turn.settled: %s", end.outcome, extra=_ids(owed))
        at = self._now().isoformat(timespec="milliseconds")
        if await self._history.append(self._folder(owed.incoming.thread), told(owed, end, at)):
            self._journal.ledger.log_holds(end.seq)
        self.show(owed, TurnSettled(end.outcome, again=owed.recovered, interrupted=owed.interrupted))


def _ids(owed: Owed) -> dict[str, str]:
    received = owed.received
    ids = {"thread_id": received.thread_id, "message_id": received.message_id}
    return {**ids, "correlation_id": owed.reference} if owed.reference else ids


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


async def patiently(work: Callable[[], Awaitable[T]]) -> T:
    """Do the work, again and again while the disk refuses it."""
    for tried, pause in enumerate(patience(), 1):
        try:
            return await work()
        except StoreUnavailable as error:
            log.warning("store.retry: %s", error, extra=retry_fields(error.code, tried + 1, pause))
            await anyio.sleep(pause)
    raise AssertionError  # patience has no end


def patience() -> Iterator[float]:
    """Return the waits, in seconds, while something refuses: 2, 4, 6, then 30 for as long as it takes."""
    yield from (2.0, 4.0, 6.0)
    while True:
        yield 30.0
