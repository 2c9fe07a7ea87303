"""Reading what was said while nobody listened: Socket Mode has no replay.

`run` goes through every channel with a gap. In each it reads the history back to the mark, then the replies of the
threads that moved since (their roots tell, those on the page before the mark too) and of those that the bot takes
part in, and hands it all over, oldest first, as if it came live: same `parse_message`, same sink, and the journal
drops what it knows. A live message meanwhile does not move the mark (see `marks`).

refused: no such channel, not in it      -> the channel is not followed any more
refused: the token is not good any more  -> mark and gap stay; the transport ends
refused: a scope, no such method, ...    -> the gap is closed unread, and logged
refused: in a way we do not know, or the form (a cursor may expire)
                                         -> tried again from the mark, `MOST_TRIES` in all, then as above
unavailable, rate limited, disk refused  -> mark and gap stay; tried again after a pause

What is not found: replies in a thread whose root is older than the pages that are read, and in which the bot takes no
part yet. Slack lists no such threads, and search is not for bots.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Protocol

import anyio
from pydantic import JsonValue

from threads.errors import PostFailed, StoreUnavailable
from threads.model import Incoming
from threads.records import DEDUPE_WINDOW
from transports.slack.hear.marks import UNKNOWN, Marks
from transports.slack.hear.message import Me, parse_message
from transports.slack.hear.reading import Reading
from transports.slack.wire.refusals import SlackRefused
from transports.slack.wire.shapes import Shape, identifier, instant, is_direct, is_stamp, part, parts, string

log = logging.getLogger(__name__)

PAGE = 200
"""What Slack recommends at most; apps that are distributed outside its marketplace get 15."""

MOST_PAGES = 1_000
"""Pages of one listing: at 50 calls a minute 20 minutes, a bound for what should have ended."""

MOST_AT_ONCE = 10_000
"""How many messages are held before they are handed over; the oldest come first, the rest in a next round."""

OVERLAP_S = 5
"""How far before the mark is read: events may overtake each other on their way, and a kill lose the later one."""

PAUSES_S = (5.0, 15.0, 60.0, 300.0)
"""Waits before a channel that could not be read is tried again; the last one repeats."""

MOST_TRIES = 3
"""How often a channel is tried that Slack refuses in a way which may be one of the moment."""

GONE = frozenset({"channel_not_found", "not_in_channel", "is_archived", "is_inactive"})


class Caller(Protocol):
    async def call(
        self, method: str, *, channel: str = "", urgent: bool = True, **arguments: JsonValue
    ) -> Mapping[str, JsonValue]:
        """Call Slack within its limits. Raises `threads.errors.PostFailed`."""
        ...


class CatchUp:
    """``active_threads`` gives, by channel, the roots of the threads that the bot takes part in, of the last days.

    It is asked once per gap.
    """

    def __init__(
        self,
        web: Caller,
        marks: Marks,
        me: Me,
        sink: Callable[[Incoming], Awaitable[None]],
        *,
        active_threads: Callable[[], Awaitable[Mapping[str, Sequence[str]]]],
        now: Callable[[], datetime],
        max_age_s: float = 600,
        bots: frozenset[str] = frozenset(),
        most_at_once: int = MOST_AT_ONCE,
    ) -> None:
        self._web, self._marks, self._me, self._sink = web, marks, me, sink
        self._active_threads, self._now, self._max_age_s = active_threads, now, max_age_s
        self._bots, self._most = bots, most_at_once
        self._running = False
        self._again = anyio.Event()
        self._told: set[tuple[str, str]] = set()
        self._tries: dict[str, int] = {}
        self._active: Mapping[str, Sequence[str]] = {}
        self._active_of = 0
        """The gap after which ``_active`` was asked for."""

    def missed(self) -> None:
        """Note that messages may have been missed anywhere until now; who calls this sees to it that `run` runs."""
        self._marks.gap()
        self._again.set()

    async def run(self, *, gap: bool = True) -> None:
        """Close every gap, and return; one that is reported meanwhile is closed by the run under way.

        With *gap* this begins with `missed`; without, messages were missed only where the marks say so. A channel
        that cannot be read is tried again until it can: whoever runs this may cancel it at any time.
        """
        if gap:
            self.missed()
        if self._running:
            return
        self._running = True
        try:
            failures = 0
            while self._marks.gap_of(UNKNOWN) or self._marks.due():
                self._again = anyio.Event()
                failures = 0 if await self._pass() else failures + 1
                if failures:
                    with anyio.move_on_after(PAUSES_S[min(failures, len(PAUSES_S)) - 1]):
                        await self._again.wait()
        finally:
            self._running = False

    async def _pass(self) -> bool:
        """Go through all that is due, once; False when some of it has to be tried again."""
        done = await self._attempt(UNKNOWN)
        for channel in self._marks.due():
            done = await self._attempt(channel) and done
        return done

    async def _attempt(self, channel: str) -> bool:
        """Close one gap. A channel's trouble is its own and does not keep the others waiting."""
        gap, where = self._marks.gap_of(channel), channel or "direct messages opened meanwhile"
        try:
            if gap and channel:
                await self._read_channel(channel, gap)
            elif gap:
                await self._find_direct(gap)
        except SlackRefused as refused:
            if refused.kind == "token":
                return False
            if refused.kind in ("other", "shape") and self._try_again(channel):
                log.warning("what was missed in %s is refused, trying again: %s", where, refused)
                return False
            if (where, refused.error) not in self._told:
                self._told.add((where, refused.error))
                log.warning("what was missed in %s stays unread: %s", where, refused)
            if channel and refused.error in GONE:
                self._marks.drop(channel)
            self._marks.close(channel, gap)
        except (PostFailed, StoreUnavailable) as error:
            log.warning("what was missed in %s cannot be taken in now, trying again: %s", where, error)
            return False
        self._tries.pop(channel, None)
        return True

    def _try_again(self, channel: str) -> bool:
        self._tries[channel] = self._tries.get(channel, 0) + 1
        return self._tries[channel] < MOST_TRIES

    async def _find_direct(self, gap: int) -> None:
        """Follow the DMs that were opened while nobody listened."""
        since = self._marks.alive_at

        def follow(found: Sequence[Shape]) -> bool:
            for channel in filter(None, (identifier(one, "id") for one in found)):
                self._marks.start(channel, since, missed=True)
            return True

        await self._list("users.conversations", "channels", follow, types="im")
        self._marks.close(UNKNOWN, gap)

    async def _read_channel(self, channel: str, gap: int) -> None:
        """Hand over what was missed in a channel, oldest first, in rounds of so many messages."""
        reading = await self._reading(channel, gap)
        while True:
            # Of what is said from here on, a thread that was quiet when it was looked at may hold more.
            began, upto = self._marks.clock(), "0"
            await self._read(channel, reading)
            for incoming in reading.ordered():
                await self._sink(replace(incoming, stale=self._is_stale(incoming)))
                upto = incoming.id
            if not reading.cut:
                break
            log.info("more than %d messages were missed in %s: going on", self._most, channel)
            reading = Reading(instant(upto), self._most, threads=reading.threads)
        self._marks.close(channel, gap, min(upto, began, key=instant))

    def _is_stale(self, incoming: Incoming) -> bool:
        return self._now().timestamp() - float(instant(incoming.id)) > self._max_age_s

    async def _reading(self, channel: str, gap: int) -> Reading:
        """Begin at the mark, or a little before while the journal surely knows what was taken there."""
        if self._active_of < gap:
            self._active, self._active_of = await self._active_threads(), gap
        mark = instant(self._marks.mark_of(channel))
        recent = instant(self._marks.clock()) - mark < DEDUPE_WINDOW.total_seconds()
        since = mark - OVERLAP_S if recent else mark
        threads = dict.fromkeys(filter(is_stamp, self._active.get(channel, ())))
        return Reading(since, self._most, threads=threads)

    async def _read(self, channel: str, reading: Reading) -> None:
        def take(page: Sequence[Shape]) -> bool:
            reading.add(self._parsed(page, channel))
            after = [reading.note(message) for message in page]
            return all(after)

        # Newest first, back to the first page that begins before the mark: it also shows which older threads moved.
        await self._list("conversations.history", "messages", take, channel=channel)
        for root in list(reading.threads):
            await self._read_thread(channel, root, reading)

    async def _read_thread(self, channel: str, root: str, reading: Reading) -> None:
        def take(page: Sequence[Shape]) -> bool:
            reading.add(self._parsed(page, channel))
            return True

        oldest = f"{max(reading.since, Decimal(0)):.6f}"
        try:
            await self._list(
                "conversations.replies", "messages", take, channel=channel, ts=root, oldest=oldest
            )
        except SlackRefused as refused:
            if refused.kind != "gone":
                raise
            log.info("a thread in %s is gone: %s", channel, refused)

    def _parsed(self, page: Sequence[Shape], channel: str) -> list[Incoming]:
        direct = is_direct(channel)
        found = (
            parse_message(message, channel, self._me, direct=direct, bots=self._bots) for message in page
        )
        return [incoming for incoming in found if incoming]

    async def _list(
        self,
        method: str,
        key: str,
        take: Callable[[Sequence[Shape]], bool],
        *,
        channel: str = "",
        **arguments: JsonValue,
    ) -> None:
        """Give *take* page after page, until it has had enough. Raises `PostFailed`."""
        for _ in range(MOST_PAGES):
            answer = await self._web.call(method, channel=channel, urgent=False, limit=PAGE, **arguments)
            cursor = string(part(answer, "response_metadata"), "next_cursor")
            if not take(parts(answer, key)) or cursor in ("", arguments.get("cursor")):
                return
            arguments["cursor"] = cursor
        log.error("%s of %s has more than %d pages: the rest is not read", method, channel, MOST_PAGES)
