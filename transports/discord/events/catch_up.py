"""Reading what was said while nobody listened: a new session of the gateway has no replay.

When it begins, Discord tells the id of the last message in every channel and active thread (`last_said`). So only
those are read where something was said since the mark or, in one that was never heard of, since the bot was last
known to hear everything. Nobody tells it of direct messages, which are all read, and of threads that were archived
again meanwhile: no earlier than an hour after their last message.

Of each channel the last `BACK_S` are read, oldest first. Of messages that are too old to be answered, for which a
person can only get a word of regret, no more than `MOST_OLD` are read; then it goes on with the others.

What is not found: a direct message from someone whose first it is. Discord lists no such channels.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import anyio
import discord

from threads.errors import TransportRejected
from transports.discord.api.api_errors import DiscordRefused
from transports.discord.api.rest import MAX_PAGE
from transports.discord.events.read_marks import channel_of, is_direct, path
from transports.shared.backfill.catch_up import ACTIVE_WITHIN_S, MOST_ACTIVE, Recent, Verdict, begin_of
from transports.shared.backfill.marks import UNKNOWN, Marks
from transports.shared.backfill.message_time import NEVER

log = logging.getLogger(__name__)

BACK_S = 72 * 3600.0
"""How far back is read: over a weekend. Who asked before that does not wait any more."""

MOST_OLD = 10_000
"""Messages of a channel that are read although they are too old to be answered."""

MOST_PAGES = 1_000
"""Pages of one channel: a bound for what should have ended."""

ARCHIVED_AFTER_S = 3600.0
"""The shortest time of quiet after which Discord archives a thread."""

MOST_DIRECT = 1_000
"""Direct messages that are read after a gap: those that spoke last."""


class Pages(Protocol):
    async def history(self, channel: str, *, after: str = "") -> list[discord.Message]:
        """Return one page of `MAX_PAGE` messages, oldest first. Raises `threads.errors.PostFailed`."""
        ...


class History:
    """Reads a bot's channels, for `transports.shared.backfill.catch_up`.

    Nothing is looked for between `began`, when a session begins, and `told`, which is given what `last_said` told
    then. *hear* takes a message as if it came live; it raises `threads.errors.StoreUnavailable` and
    `TransportUnavailable`, and nothing else.
    """

    def __init__(
        self,
        rest: Pages,
        marks: Marks,
        hear: Callable[[discord.Message], Awaitable[None]],
        *,
        recent: Recent,
        max_age_s: float = 600,
    ) -> None:
        self._rest, self._marks, self._hear, self._recent = rest, marks, hear, recent
        self._max_age_s, self._back_s = max_age_s, max(BACK_S, max_age_s)
        self.last: Mapping[str, str] = {}
        self._told = anyio.Event()

    def began(self) -> None:
        if self._told.is_set():  # or who waits for a session that ended before it told would wait for ever
            self._told = anyio.Event()

    def told(self, last: Mapping[str, str]) -> None:
        self.last = last
        self._told.set()

    async def look(self) -> None:
        """Follow where something was said unheard, and close the gap where nothing was."""
        while not self._told.is_set():
            await self._told.wait()
        # A newer session's gap is not closed by what this one told.
        gap, told = self._marks.gap_of(UNKNOWN), self.last
        since, scale = self._marks.alive_at, self._marks.scale
        if scale.is_before(since, oldest := self._ago(self._back_s)):
            log.warning(
                "catch_up.too_old: nothing was heard since %s: what was said before %s stays unread",
                since,
                oldest,
            )
        archived = await self._archived(since)
        for channel, last in told.items():
            if scale.is_before(since, last):
                self._marks.start(channel, since, missed=True)
        due = self._marks.due()
        direct = [channel for channel in due if is_direct(channel)][:MOST_DIRECT]
        for channel in {*due} - {*direct} - archived:
            if not self._moved(channel, since):
                self._marks.close(channel, gap)

    def _moved(self, channel: str, since: str) -> bool:
        # Where something was said shortly before the gap, a message may have been overtaken by a later one.
        heard = self._marks.scale.earlier(self._marks.mark_of(channel), since)
        return self._marks.scale.is_before(heard, self.last.get(channel, NEVER))

    async def _archived(self, since: str) -> frozenset[str]:
        """Return our threads that are not active, if one may have been archived since, with something said before."""
        if self._marks.scale.is_before(self._ago(ARCHIVED_AFTER_S), since):
            return frozenset()
        recent = await self._recent(ACTIVE_WITHIN_S, MOST_ACTIVE)
        return frozenset(path(thread.workspace, thread.root) for thread in recent) - self.last.keys()

    async def read(self, channel: str, _gap: int, /) -> str:
        """Hand over what was missed in a channel, page by page; those that were read are not read again."""
        scale, after = self._marks.scale, self._ago(self._back_s)
        after = scale.later(after, begin_of(self._marks, channel))
        for number in range(1, MOST_PAGES + 1):
            page = await self._rest.history(channel_of(channel), after=after)
            for message in page:
                await self._hear(message)
                after = str(message.id)
            if len(page) < MAX_PAGE:
                after = scale.later(after, self.last.get(channel, NEVER))
                break
            if number == MOST_OLD // MAX_PAGE:
                after = self._skip(channel, after)
            self._marks.reached(channel, self._past(after))
        else:
            log.error(
                "catch_up.too_long: %s has more than %d pages: the rest is not read", channel, MOST_PAGES
            )
        return self._past(after)

    def _skip(self, channel: str, after: str) -> str:
        """Return where that begins which can still be answered, if it is later."""
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

    def _past(self, at: str) -> str:
        """Return a time that is not to come: no mark is set there."""
        return self._marks.scale.earlier(at, self._marks.clock())

    def verdict(self, refused: TransportRejected) -> Verdict:
        match refused:
            case DiscordRefused(kind="token"):
                return "token"
            case DiscordRefused(kind="gone"):
                return "gone"
            case DiscordRefused(kind="forbidden" | "locked" | "unsupported"):
                return "unread"
            case _:
                return "moment"
