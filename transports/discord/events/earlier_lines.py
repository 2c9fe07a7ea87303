"""The lines of a thread from before a message, and the message that the thread is about.

That message is asked for where it stands:

    thread                                      the message it is about
    a forum's post                              its first message, which has the thread's id
    opened from a message of a channel          that message, in the channel; the thread's first line points to it
    opened from none, or from one that is gone  its first message

Most threads take one call. Two or three more are made where the newest page does not go back to the beginning.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import discord

from threads.errors import TransportRejected
from threads.model import Earlier, Spoken, ThreadId
from transports.discord.api.channel_types import Channels
from transports.discord.api.rest import MAX_PAGE, Rest
from transports.discord.api.snowflake import is_snowflake, number
from transports.discord.api.values import Me, Place
from transports.discord.events.message_text import starter_of
from transports.discord.events.notices import STARTER
from transports.discord.events.parse_message import parse_spoken
from transports.discord.post.thread_opening import Destinations

MOST_PAGES = 10
"""Pages that are read to count the lines between two messages that do not fit in one."""


class EarlierLines:
    def __init__(self, rest: Rest, channels: Channels, destinations: Destinations, me: Me) -> None:
        self._rest, self._channels, self._destinations, self._me = rest, channels, destinations, me

    async def of(self, thread: ThreadId, before: str, after: str) -> Earlier:
        """Return lines of a thread; see `transports.base.transport.Transport.earlier`. Raises `PostFailed`.

        A direct message and a chain of replies have none. The title comes with those from the beginning only, and
        not where the bot opened the thread: it repeats the question then.
        """
        place = await self._place(thread, before)
        if place is None or place.kind != "thread":
            return Earlier()
        title = "" if place.owner == self._me.id else place.title
        if before == thread.root:
            return Earlier(title=title)
        page = await self._rest.history(thread.root, before=before if is_snowflake(before) else "")
        if after:
            new = [one for one in page if one.id > number(after) and one.type != STARTER]
            return Earlier(self._lines(new), await self._count_between(thread.root, after, page))
        if len(page) < MAX_PAGE:
            return Earlier(self._lines(_above(page, await self._root(thread, page[:1]))), 0, title)
        first = await self._rest.history(thread.root, after=str(number(thread.root) - 1), limit=1)
        lines = _above(page, await self._root(thread, first))
        return Earlier(self._lines(lines), await self._count_others(thread.root, lines), title)

    async def _place(self, thread: ThreadId, before: str) -> Place | None:
        """Return the thread as a channel; None if there is none."""
        if place := self._channels.known(thread.root):
            return place
        if before == thread.root and self._channels.known(thread.channel):
            return None  # it was said in the channel, and no thread is open yet
        destination = await self._destinations.look_up(thread)
        return None if destination.channel == thread.channel else await self._channels.of(thread.root)

    async def _root(self, thread: ThreadId, first: Sequence[discord.Message]) -> Sequence[discord.Message]:
        """Return the message that the thread is about, if there is one; *first* is the first in the thread."""
        if first and first[0].id == number(thread.root):
            return first
        if first and (starter := starter_of(first[0])):
            return [starter]
        try:
            return [await self._rest.message(thread.channel, thread.root)]
        except TransportRejected:  # deleted, or not to be read by us; a forum has no messages of its own
            return first

    async def _count_between(self, channel: str, after: str, page: Sequence[discord.Message]) -> int:
        """Return how many messages stand between *after* and the *page*, as far as the pages before it tell."""
        count = 0
        for _ in range(MOST_PAGES):
            if len(page) < MAX_PAGE or page[0].id <= number(after):
                break
            page = await self._rest.history(channel, before=str(page[0].id))
            count += sum(message.id > number(after) for message in page)
        return count

    async def _count_others(self, channel: str, told: Iterable[discord.Message]) -> int:
        """Return how many lines of a thread are not among those *told*; the last one of all is the question."""
        opened = await self._rest.channel(channel)
        inside = sum(message.channel.id == number(channel) != message.id for message in told)
        return max(0, opened.message_count - inside - 1) if isinstance(opened, discord.Thread) else 0

    def _lines(self, messages: Iterable[discord.Message]) -> tuple[Spoken, ...]:
        return tuple(line for message in messages if (line := parse_spoken(message, self._me)))


def _above(page: Sequence[discord.Message], root: Sequence[discord.Message]) -> list[discord.Message]:
    """Return the *page* below the *root*, without the line that only points to it."""
    shown = {message.id for message in root}
    return [*root, *(one for one in page if one.type != STARTER and one.id not in shown)]
