"""Reading missed messages from the history: a new session of the gateway has no replay.

When it begins, Discord tells the id of the last message in every channel and active thread (`last_messages`). A
channel is read only if that is later than its mark or, if it has none, than the time when the bot last received
everything. Direct messages are always read, and so are threads that may have been archived meanwhile.

Of each channel the last `BACK_S` are read, oldest first, but at most `MOST_OLD` messages that are too old to be
answered. A person's first direct message is not found: Discord lists no such channels.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping

import anyio
import discord

from threads.errors import TransportRejected
from transports.discord.api.api_errors import DiscordRefused, Kind
from transports.discord.api.rest import MAX_PAGE, Rest
from transports.discord.events.read_marks import channel_of, is_direct, path
from transports.shared.backfill.catch_up import ACTIVE_WITHIN_S, MOST_ACTIVE, Recent, Verdict
from transports.shared.backfill.marks import UNKNOWN, Marks
from transports.shared.backfill.message_time import NEVER

log = logging.getLogger(__name__)

BACK_S = 72 * 3600.0
"""How far back is read: over a weekend."""

MOST_OLD = 10_000
"""Messages of a channel that are read though they are too old to be answered."""

MOST_PAGES = 1_000
"""Pages of one channel."""

VERDICTS: Mapping[Kind, Verdict] = {
    "token": "token", "gone": "gone", "forbidden": "unread", "locked": "unread", "unsupported": "unread",
}  # fmt: skip

ARCHIVED_AFTER_S = 3600.0
"""The shortest time of quiet after which Discord archives a thread."""

MOST_DIRECT = 1_000
"""Channels of direct messages that are read after a gap: those with the latest messages."""


class ChannelHistory:
    """Reads a bot's channels, for `transports.shared.backfill.catch_up`.

    Reading waits from `on_session`, when a session begins, until `set_last_messages`. *take* takes a message as if it
    came live; it raises only `threads.errors.StoreUnavailable` and `TransportUnavailable`.
    """

    def __init__(
        self,
        rest: Rest,
        marks: Marks,
        take: Callable[[discord.Message], Awaitable[None]],
        *,
        recent: Recent,
        max_age_s: float = 600,
    ) -> None:
        self._rest, self._marks, self._take, self._recent = rest, marks, take, recent
        self._max_age_s, self._back_s = max_age_s, max(BACK_S, max_age_s)
        self._last_messages: Mapping[str, str] = {}
        self._last_messages_known = anyio.Event()

    def on_session(self) -> None:
        if self._last_messages_known.is_set():  # a waiter must not wait for a session that ended before
            self._last_messages_known = anyio.Event()

    def set_last_messages(self, last: Mapping[str, str]) -> None:
        self._last_messages = last
        self._last_messages_known.set()

    async def look(self) -> None:
        """Follow the channels with missed messages, and close the gap of the others."""
        while not self._last_messages_known.is_set():
            await self._last_messages_known.wait()
        # This session must not close the gap of a newer one.
        gap, last_messages = self._marks.gap_of(UNKNOWN), self._last_messages
        since, scale = self._marks.alive_at, self._marks.scale
        if scale.is_before(since, oldest := self._ago(self._back_s)):
            log.warning(
                "catch_up.too_old: nothing was heard since %s: what was said before %s stays unread",
                since,
                oldest,
            )
        archived = await self._archived(since)
        for channel, last in last_messages.items():
            if scale.is_before(since, last):
                self._marks.start(channel, since, missed=True)
        due = self._marks.due()
        direct = [channel for channel in due if is_direct(channel)][:MOST_DIRECT]
        for channel in {*due} - {*direct} - archived:
            if not self._has_missed(channel, since):
                self._marks.close(channel, gap)

    def _has_missed(self, channel: str, since: str) -> bool:
        # Shortly before the gap, a message may have been overtaken by a later one.
        mark = self._marks.scale.earlier(self._marks.mark_of(channel), since)
        return self._marks.scale.is_before(mark, self._last_messages.get(channel, NEVER))

    async def _archived(self, since: str) -> frozenset[str]:
        """Return our inactive threads, if one may have been archived since, after a new message."""
        if self._marks.scale.is_before(self._ago(ARCHIVED_AFTER_S), since):
            return frozenset()
        recent = await self._recent(ACTIVE_WITHIN_S, MOST_ACTIVE)
        return (
            frozenset(path(thread.workspace, thread.root) for thread in recent) - self._last_messages.keys()
        )

    async def read(self, channel: str, _gap: int, /) -> str:
        """Hand over the missed messages of a channel, page by page; a page that was read is not read again."""
        scale, after = self._marks.scale, self._ago(self._back_s)
        after = scale.later(after, self._marks.begin_of(channel))
        for number in range(1, MOST_PAGES + 1):
            page = await self._rest.history(channel_of(channel), after=after)
            for message in page:
                await self._take(message)
                after = str(message.id)
            if len(page) < MAX_PAGE:
                after = scale.later(after, self._last_messages.get(channel, NEVER))
                break
            if number == MOST_OLD // MAX_PAGE:
                after = self._skip(channel, after)
            self._marks.reached(channel, self._until_now(after))
        else:
            log.error(
                "catch_up.too_long: %s has more than %d pages: the rest is not read", channel, MOST_PAGES
            )
        return self._until_now(after)

    def _skip(self, channel: str, after: str) -> str:
        """Return the later of *after* and the id from which messages can still be answered."""
        fresh = self._ago(self._max_age_s)
        if self._marks.scale.is_before(after, fresh):
            log.warning(
                "catch_up.too_much: so much was missed in %s that it stays unread from %s to %s",
                channel,
                after,
                fresh,
            )
        return self._marks.scale.later(after, fresh)

    def _ago(self, seconds: float) -> str:
        return self._marks.scale.before(self._marks.clock(), seconds)

    def _until_now(self, at: str) -> str:
        """Return *at*, or the present if that is earlier: no mark is set in the future."""
        return self._marks.scale.earlier(at, self._marks.clock())

    def verdict(self, refused: TransportRejected) -> Verdict:
        return VERDICTS.get(refused.kind, "moment") if isinstance(refused, DiscordRefused) else "moment"
