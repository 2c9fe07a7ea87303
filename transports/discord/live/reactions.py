"""Reactions on messages: each message gets one of ours, the newest that was wanted.

| what is the case                     | what is done                                                       |
|--------------------------------------|--------------------------------------------------------------------|
| another is wanted than the one there | it is put on; the one before is old                                |
| an old one is there, or may be       | it is taken off                                                    |
| refused: no such message             | it is looked for in the other place it may be in, else forgotten   |
| refused with 403                     | it is forgotten, and no other is asked for in the channel for long |
| not answered                         | it is tried again, three times in all, then forgotten              |

A reaction that is taken back before its turn is never sent. Discord takes one in 0.25 s in a channel, so each channel
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

log = logging.getLogger(__name__)

MOST_MARKED = 2_000
"""Messages whose reactions are known; beyond, the oldest is forgotten."""

MOST_BARRED = 1_000
BARRED_S = 3600.0
"""Seconds without calls after a refusal in a channel: refused calls add up to a ban."""

TRIES = 3
PAUSE_S, LONGEST_PAUSE_S = 2.0, 60.0


@dataclass(slots=True)
class _Marked:
    """The channels that the message may be in, the likeliest first, and our reactions to it.

    ``reactions`` are those that may be there; the value says whether that is sure.
    """

    line: str
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
        self._marked: dict[str, _Marked] = {}
        self._lines: dict[str, dict[str, None]] = {}
        self._barred: TTLCache[str, None] = TTLCache(MOST_BARRED, BARRED_S, anyio.current_time)

    def mark(self, message_id: str, emoji: str, channels: Sequence[str], *, maybe: str = "") -> None:
        """Set *emoji* as our only reaction to the message, which is in one of the *channels*.

        *maybe* is a reaction that an earlier process may have left.
        """
        marked = self._marked.get(message_id)
        if marked is None:
            marked = self._marked[message_id] = _Marked(
                channels[0], [*channels], {maybe: False} if maybe else {}
            )
            if len(self._marked) > MOST_MARKED:
                self._forget(next(iter(self._marked)))
        marked.wanted, marked.tries = emoji, TRIES
        begins = marked.line not in self._lines
        self._lines.setdefault(marked.line, {})[message_id] = None
        if begins and not self._soon(partial(self._work, marked.line)):
            del self._lines[marked.line]

    async def _work(self, line: str) -> None:
        """Make the calls of one queue, until it is empty."""
        try:
            while waiting := self._lines[line]:
                message_id = next(iter(waiting))
                marked = self._marked[message_id]
                if not marked.next or marked.channels[0] in self._barred:
                    del waiting[message_id]
                    continue
                await self._pace.turn()
                if emoji := marked.next:  # it may have been taken back
                    await self._ask(message_id, marked, emoji)
        finally:
            del self._lines[line]

    async def _ask(self, message_id: str, marked: _Marked, emoji: str) -> None:
        channel, adds = marked.channels[0], emoji == marked.wanted
        try:
            await (self._rest.react if adds else self._rest.unreact)(channel, message_id, emoji)
        except DiscordRefused as refused:
            self._refused(message_id, marked, refused)
        except PostFailed as error:
            if adds:  # it may be there all the same
                marked.reactions.setdefault(emoji, False)
            log.debug("reaction.failed: %s", error)
            marked.tries -= 1
            if marked.tries:
                await anyio.sleep(min(error.retry_after or PAUSE_S, LONGEST_PAUSE_S))
            else:
                self._forget(message_id)
        else:
            marked.tries = TRIES
            if adds:
                marked.reactions[emoji] = True
            else:
                marked.reactions.pop(emoji, None)

    def _refused(self, message_id: str, marked: _Marked, refused: DiscordRefused) -> None:
        channel = marked.channels[0]
        if refused.kind == "gone" and len(marked.channels) > 1:
            del marked.channels[0]
            return
        self._forget(message_id)
        if refused.status == 403:
            log.warning(
                "reaction.refused: channel %s takes no reactions, and is not asked for an hour: %s",
                channel,
                refused,
            )
            self._barred[channel] = None

    def _forget(self, message_id: str) -> None:
        marked = self._marked.pop(message_id, None)
        if marked and (line := self._lines.get(marked.line)):
            line.pop(message_id, None)
