"""A forward, and what its person says about it a moment later, as one message.

Discord sends what is typed with a forward as a message of its own, right after it.

| a forward is said       | it is taken in                                                              |
|-------------------------|-----------------------------------------------------------------------------|
| to the bot              | with words that follow within `WAIT_S`; else by itself, after that time     |
| to nobody, in a channel | with words to the bot that follow within `LATER_S`; else not at all         |

Both are found in the history as well, where one of them or both were missed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import anyio
import discord
from cachetools import LRUCache

from transports.discord.api.rest import Rest
from transports.discord.api.snowflake import instant
from transports.discord.api.values import Place
from transports.discord.events.message_text import author_of, content_of

WAIT_S = 2.0
"""How long a forward to the bot waits for words about it."""

LATER_S = 60.0
"""How long a forward in a channel belongs to what its person says next."""

MOST_FORWARDS = 10_000
"""People's latest forwards that are remembered."""

MOST_BETWEEN = 5
"""Messages of others that may stand between the two in the history."""


@dataclass(slots=True)
class _Forward:
    message: discord.Message
    followed: anyio.Event = field(default_factory=anyio.Event)
    words: int = 0
    """The id of the message with the words about it."""


class Forwards:
    def __init__(self, rest: Rest) -> None:
        self._rest = rest
        self._latest: LRUCache[tuple[int, int], _Forward] = LRUCache(MOST_FORWARDS)

    def hear(self, message: discord.Message) -> None:
        """Note a message that comes in live; each has to be noted, in order."""
        forward = self._latest.get(_whose(message))
        if is_forward(message):
            if forward is None or forward.message.id != message.id:  # not one that is delivered again
                self._latest[_whose(message)] = _Forward(message)
        elif forward and not forward.words:
            forward.words = message.id
            forward.followed.set()

    async def is_followed(self, message: discord.Message, *, live: bool) -> bool:
        """Return whether words follow a forward to the bot, which then come with it. Raises `PostFailed`."""
        forward = self._latest.get(_whose(message))
        if forward and forward.message.id == message.id:
            with anyio.move_on_after(WAIT_S if live else 0):
                await forward.followed.wait()
            if forward.words:
                return True
            self._latest.pop(_whose(message))
        if live:
            return False
        after = await self._rest.history(str(message.channel.id), after=str(message.id), limit=MOST_BETWEEN)
        words = _first_of(message, after)
        return words is not None and not is_forward(words) and _seconds(message, words) <= WAIT_S

    async def before(self, message: discord.Message, place: Place, *, live: bool) -> discord.Message | None:
        """Return the forward that a message to the bot is about, if there is one. Raises `PostFailed`."""
        found: discord.Message | None = None
        if (forward := self._latest.get(_whose(message))) and forward.words == message.id:
            found = forward.message
        elif not live:
            page = await self._rest.history(
                str(message.channel.id), before=str(message.id), limit=MOST_BETWEEN
            )
            found = _first_of(message, reversed(page))
        within = LATER_S if place.kind == "channel" else WAIT_S
        return found if found and is_forward(found) and _seconds(found, message) <= within else None


def is_forward(message: discord.Message) -> bool:
    """Return whether a message is a forward without words of its person."""
    return bool(message.message_snapshots) and not content_of(message).strip()


def _whose(message: discord.Message) -> tuple[int, int]:
    author = author_of(message)
    return message.channel.id, author.id if author else 0


def _first_of(message: discord.Message, others: Iterable[discord.Message]) -> discord.Message | None:
    """Return the first of some messages that is of the same person."""
    return next((one for one in others if _whose(one) == _whose(message)), None)


def _seconds(earlier: discord.Message, later: discord.Message) -> float:
    return (instant(str(later.id)) - instant(str(earlier.id))).total_seconds()
