"""Closing the gaps that `transports.shared.backfill.marks` knows of, on any platform.

First new conversations are looked for. Then every channel with a gap is read from its mark on, and its messages are
handed over, oldest first, as if they came live; the journal drops what it knows. Only the marks say what is missing,
and `Marks.due` says after each channel which is next: a link that comes back restarts nothing. The platform's
`HistoryReader` does the reading, and says what a refusal means:

gone      no such channel, not in it     -> the channel is not followed any more
unread    a right, no such method, ...   -> the gap is closed unread, and logged
moment    may be one of the moment       -> tried again from the mark, `MOST_TRIES` in all, then as above
a bug     of ours                        -> the same
token     not good any more              -> mark and gap stay; the transport ends
unavailable, rate limited, disk refused  -> mark and gap stay; tried again after a pause
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Literal, Protocol

import anyio

from threads.errors import BotError, PostFailed, StoreUnavailable, TransportRejected, retry_fields
from threads.model import ThreadId
from transports.shared.backfill.marks import UNKNOWN, Marks
from transports.shared.backfill.message_time import NEVER

log = logging.getLogger(__name__)

AT_ONCE = 4
"""Channels that are read at once: one with many threads would hold up the rest."""

PAUSES_S = (5.0, 15.0, 60.0, 300.0)
"""Waits before an unreadable channel is tried again; the last one repeats."""

ELSEWHERE_S = 2.0
"""How often a channel is looked at that another process reads."""

MOST_TRIES = 3
"""How often a channel is tried whose refusal may be temporary."""

ACTIVE_WITHIN_S = 7 * 24 * 3600.0
MOST_ACTIVE = 500
"""The bot's own threads that are read after a gap: those of the last week, at most so many."""

Recent = Callable[[float, int], Awaitable[Sequence[ThreadId]]]
"""Returns our threads that changed within so many seconds, newest first, at most so many."""

Verdict = Literal["gone", "unread", "moment", "token"]
End = Literal["done", "failed", "elsewhere"]
"""How an attempt to close a gap ended: another process may be at it."""


class HistoryReader(Protocol):
    """Reads a platform's history. Both raise `threads.errors.PostFailed`, or `StoreUnavailable` from the sink."""

    async def look(self) -> None:
        """Follow conversations that began meanwhile (`Marks.start`)."""

    async def read(self, channel: str, gap: int, /) -> str:
        """Hand over what was missed in a channel, oldest first, and return the time up to which it was read."""

    def verdict(self, refused: TransportRejected) -> Verdict:
        """Say what a refusal of one of those means."""


class CatchUp:
    def __init__(self, marks: Marks, reader: HistoryReader) -> None:
        self._marks, self._reader = marks, reader
        self._running = False
        self._news, self._choosing = anyio.Event(), anyio.Lock()
        self._reading: set[str] = set()
        self._failures: dict[str, tuple[int, float]] = {}
        """How often in a row a channel could not be read, and when it is tried again."""
        self._reported: set[tuple[str, str]] = set()
        self._tries: dict[str, int] = {}

    def missed(self) -> None:
        """Note that messages may have been missed anywhere until now. The caller has to start `run`."""
        self._marks.gap()
        self.hurry()

    def hurry(self) -> None:
        """Read the missing messages now, also where that failed before: the cause is gone."""
        self._failures = {channel: (failures, 0.0) for channel, (failures, _) in self._failures.items()}
        self._wake()

    async def run(self, *, gap: bool = True) -> None:
        """Close every gap, also those reported meanwhile, and return.

        With *gap* this begins with `missed`. A channel that cannot be read is tried again until it can. This may be
        cancelled at any time.
        """
        if gap:
            self.missed()
        self._wake()
        if self._running:
            return
        self._running = True
        try:
            while self._due():
                async with anyio.create_task_group() as readers:
                    for _ in range(AT_ONCE):
                        readers.start_soon(self._read)
        finally:
            self._running = False

    def _due(self) -> list[str]:
        return [UNKNOWN] * bool(self._marks.gap_of(UNKNOWN)) + self._marks.due()

    async def _read(self) -> None:
        """Read one channel after another, until none is due."""
        while True:
            async with self._choosing:  # or every idle reader would sort the due channels at each change
                if (channel := await self._next()) is None:
                    return
                self._reading.add(channel)
            try:
                end = await self._attempt(channel)
            finally:
                self._reading.discard(channel)
            failures, _ = self._failures.pop(channel, (0, 0.0))
            if end == "failed":
                self._failures[channel] = failures + 1, anyio.current_time() + _pause(failures)
            elif end == "elsewhere":
                self._failures[channel] = failures, anyio.current_time() + ELSEWHERE_S
            self._wake()

    async def _next(self) -> str | None:
        """Return the next channel, as soon as one is ready; None if none is due any more."""
        while due := self._due():
            # A look for new conversations may close gaps and open others: no channel is read until it is done.
            free = [] if UNKNOWN in self._reading else [each for each in due if each not in self._reading]
            now = anyio.current_time()
            waits = {channel: self._failures.get(channel, (0, now))[1] - now for channel in free}
            if ready := [channel for channel, wait in waits.items() if wait <= 0]:
                return ready[0]
            with anyio.move_on_after(min(waits.values(), default=math.inf)):
                await self._news.wait()
        return None

    def _wake(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    async def _attempt(self, channel: str) -> End:
        """Close one gap, or say why it has to be tried again. One channel's failure does not hold up others."""
        gap, where = self._marks.gap_of(channel), channel or "conversations that began meanwhile"
        try:
            if gap and not await self._close(channel, gap):
                return "elsewhere"
        except TransportRejected as refused:
            if (verdict := self._reader.verdict(refused)) == "token":
                return "failed"
            if verdict == "moment" and self._try_again(channel):
                log.warning(
                    "catch_up.refused: what was missed in %s is refused, trying again: %s",
                    where,
                    refused,
                    extra=self._again(channel, refused),
                )
                return "failed"
            self._report(where, refused)
            if channel and verdict == "gone":
                self._marks.drop(channel)
            await self._give_up(channel, gap)
        except (PostFailed, StoreUnavailable) as error:
            log.warning(
                "catch_up.waits: what was missed in %s cannot be taken in now, trying again: %s",
                where,
                error,
                extra=self._again(channel, error),
            )
            return "failed"
        except Exception:  # the boundary of a transport: a bug costs what one channel missed, not the bot
            log.exception("catch_up.failed: what was missed in %s cannot be taken in", where)
            if self._try_again(channel):
                return "failed"
            await self._give_up(channel, gap)
        self._tries.pop(channel, None)
        return "done"

    async def _close(self, channel: str, gap: int) -> bool:
        """Close a gap, reading the channel unless another process has; return False while another does."""
        upto: str | None = NEVER
        if not channel:
            await self._reader.look()
        elif (upto := await self._marks.claim(channel)) == "":
            upto = await self._reader.read(channel, gap)
            await self._marks.finish(channel, upto)
        if upto is None:
            return False
        self._marks.close(channel, gap, upto)
        return True

    async def _give_up(self, channel: str, gap: int) -> None:
        self._marks.close(channel, gap)
        # Others try for themselves once this process claims it again, or is gone.
        with suppress(StoreUnavailable):
            await self._marks.finish(channel, NEVER)

    def _again(self, channel: str, error: BotError) -> dict[str, object]:
        failures, _ = self._failures.get(channel, (0, 0.0))
        return retry_fields(error, failures + 2, _pause(failures))

    def _try_again(self, channel: str) -> bool:
        self._tries[channel] = self._tries.get(channel, 0) + 1
        return self._tries[channel] < MOST_TRIES

    def _report(self, where: str, refused: TransportRejected) -> None:
        report = where, str(refused)
        if report not in self._reported:
            self._reported.add(report)
            log.warning("catch_up.given_up: what was missed in %s stays unread: %s", where, refused)


def _pause(failures: int) -> float:
    """Return how long a channel waits after so many failures in a row and one more, in seconds."""
    return PAUSES_S[min(failures, len(PAUSES_S) - 1)]
