"""Reactions on messages: each message gets one of ours, the newest that was wanted.

| case                                | action                                                              |
|-------------------------------------|---------------------------------------------------------------------|
| the wanted reaction is not there    | add it                                                              |
| another one is there, or may be     | remove it                                                           |
| refused: no such message            | try the other channel that the message may be in, else forget it    |
| refused with 403                    | forget the message, and make no call in the channel for an hour     |
| not answered                        | try again, three times in all, then forget the message              |

A reaction that is replaced before its turn is never sent. Discord takes one in 0.25 s in a channel, so each channel
has a queue of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import anyio
from cachetools import TTLCache

from threads.errors import PostFailed
from transports.discord.api.api_errors import DiscordRefused
from transports.discord.api.rest import Rest
from transports.discord.live.pacing import Pace
from transports.shared.live.background_calls import Soon
from transports.shared.live.presence import FIRST_SIGN_S

log = logging.getLogger(__name__)

MOST_MESSAGES = 2_000
"""Messages whose reactions are known; beyond, the oldest is forgotten."""

MOST_REFUSING = 1_000
REFUSED_PAUSE_S = 3600.0
"""Seconds without calls after a refusal in a channel: refused calls add up to a ban."""

TRIES = 3
PAUSE_S, LONGEST_PAUSE_S = 2.0, 60.0


@dataclass(slots=True)
class _MessageReactions:
    """The channels that the message may be in, the likeliest first, and our reactions to it.

    ``reactions`` are those that may be there; the value says whether that is sure.
    """

    queue: str
    channels: list[str]
    reactions: dict[str, bool]
    wanted: str = ""
    tries: int = TRIES

    @property
    def next(self) -> str:
        """Return the reaction to add or, if none, to remove; ``""`` if all is as wanted."""
        if not self.reactions.get(self.wanted):
            return self.wanted
        return next((emoji for emoji in self.reactions if emoji != self.wanted), "")


class Reactions:
    def __init__(self, rest: Rest, pace: Pace, soon: Soon) -> None:
        self._rest, self._pace, self._soon = rest, pace, soon
        self._messages: dict[str, _MessageReactions] = {}
        self._queues: dict[str, dict[str, None]] = {}
        self._refusing: TTLCache[str, None] = TTLCache(MOST_REFUSING, REFUSED_PAUSE_S, anyio.current_time)

    def set(self, message_id: str, emoji: str, channels: Sequence[str], *, possible: str = "") -> None:
        """Set *emoji* as our only reaction to the message, which is in one of the *channels*.

        *possible* is a reaction that an earlier process may have left.
        """
        if (message := self._messages.get(message_id)) is None:
            message = self._messages[message_id] = _MessageReactions(
                channels[0], [*channels], {possible: False} if possible else {}
            )
            if len(self._messages) > MOST_MESSAGES:
                self._forget(next(iter(self._messages)))
        message.wanted, message.tries = emoji, TRIES
        begins = message.queue not in self._queues
        self._queues.setdefault(message.queue, {})[message_id] = None
        if begins and not self._soon(partial(self._work, message.queue)):
            del self._queues[message.queue]

    async def _work(self, queue: str) -> None:
        """Make the calls of one queue, until it is empty."""
        try:
            await anyio.sleep(FIRST_SIGN_S)
            while waiting := self._queues[queue]:
                message_id = next(iter(waiting))
                message = self._messages[message_id]
                if not message.next or message.channels[0] in self._refusing:
                    del waiting[message_id]
                    continue
                await self._pace.turn()
                if emoji := message.next:  # another may be wanted by now
                    await self._call(message_id, message, emoji)
        finally:
            del self._queues[queue]

    async def _call(self, message_id: str, message: _MessageReactions, emoji: str) -> None:
        channel, adds = message.channels[0], emoji == message.wanted
        try:
            await (self._rest.react if adds else self._rest.unreact)(channel, message_id, emoji)
        except DiscordRefused as refused:
            self._refused(message_id, message, refused)
        except PostFailed as error:
            if adds:  # it may be there all the same
                message.reactions.setdefault(emoji, False)
            log.debug("reaction.failed: %s", error)
            message.tries -= 1
            if message.tries:
                await anyio.sleep(min(error.retry_after or PAUSE_S, LONGEST_PAUSE_S))
            else:
                self._forget(message_id)
        else:
            message.tries = TRIES
            if adds:
                message.reactions[emoji] = True
            else:
                message.reactions.pop(emoji, None)

    def _refused(self, message_id: str, message: _MessageReactions, refused: DiscordRefused) -> None:
        channel = message.channels[0]
        if refused.kind == "gone" and len(message.channels) > 1:
            del message.channels[0]
            return
        self._forget(message_id)
        if refused.status == 403:
            log.warning(
                "reaction.refused: channel %s takes no reactions, and is not asked for an hour: %s",
                channel,
                refused,
            )
            self._refusing[channel] = None

    def _forget(self, message_id: str) -> None:
        message = self._messages.pop(message_id, None)
        if message and (queue := self._queues.get(message.queue)):
            queue.pop(message_id, None)
