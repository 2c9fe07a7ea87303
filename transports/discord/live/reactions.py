"""Reactions on messages: of ours a message has one, the newest that was wanted.

| what is the case                     | what is done                                                       |
|--------------------------------------|--------------------------------------------------------------------|
| another is wanted than the one there | it is put on; the one before is old                                |
| an old one is there, or may be       | it is taken off                                                    |
| refused: no such message             | it is looked for in the other place it may be in, else forgotten   |
| refused with 403                     | it is forgotten, and no other is asked for in the channel for long |
| not answered                         | it is tried again, three times in all, then forgotten              |

What is taken back before its turn is never asked for. Discord takes one in 0.25 s in a channel, so each channel has a
line of its own.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
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
"""Messages whose reactions are known; beyond, the one that was marked first is forgotten."""

MOST_BARRED = 1_000
BARRED_S = 3600.0
"""After a refusal a channel is not asked for so long: refused calls add up to a ban, and rights may be given."""

TRIES = 3
PAUSE_S, LONGEST_PAUSE_S = 2.0, 60.0


@dataclass(slots=True)
class _Marked:
    """``places`` are where the message may be, the likeliest first; ``on`` is there, what is ``old`` may be."""

    line: str
    places: list[str]
    wanted: str = ""
    on: str = ""
    old: list[str] = field(default_factory=list)
    tries: int = TRIES

    @property
    def next(self) -> str:
        """Return the reaction to put on or, if none, to take off; ``""`` when all is as wanted."""
        if self.wanted != self.on and self.wanted:
            return self.wanted
        return next((emoji for emoji in (*self.old, self.on) if emoji != self.wanted), "")

    def put(self, emoji: str) -> None:
        if self.on:
            self.old.append(self.on)
        self.on = emoji
        self.taken(emoji)

    def taken(self, emoji: str) -> None:
        self.old = [old for old in self.old if old != emoji]


class Reactions:
    def __init__(self, rest: Rest, pace: Pace, soon: Soon) -> None:
        self._rest, self._pace, self._soon = rest, pace, soon
        self._marked: OrderedDict[str, _Marked] = OrderedDict()
        self._lines: dict[str, OrderedDict[str, None]] = {}
        self._barred: TTLCache[str, None] = TTLCache(MOST_BARRED, BARRED_S, anyio.current_time)

    def mark(self, message_id: str, emoji: str, places: Sequence[str], *, maybe: str = "") -> None:
        """Have *emoji* on the message, which is in one of the channels *places*, and no other of ours.

        *maybe* is one that an earlier process may have left there.
        """
        marked = self._marked.get(message_id)
        if marked is None:
            marked = self._marked[message_id] = _Marked(places[0], [*places], old=[maybe] if maybe else [])
            if len(self._marked) > MOST_MARKED:
                self._forget(next(iter(self._marked)))
        marked.wanted, marked.tries = emoji, TRIES
        begins = marked.line not in self._lines
        self._lines.setdefault(marked.line, OrderedDict())[message_id] = None
        if begins and not self._soon(partial(self._work, marked.line)):
            del self._lines[marked.line]

    async def _work(self, line: str) -> None:
        """Put on and take off what is asked for in one line, until it is empty."""
        try:
            while waiting := self._lines[line]:
                message_id = next(iter(waiting))
                marked = self._marked[message_id]
                if not marked.next or marked.places[0] in self._barred:
                    del waiting[message_id]
                    continue
                await self._pace.turn()
                if emoji := marked.next:  # it may have been taken back
                    await self._ask(message_id, marked, emoji)
        finally:
            del self._lines[line]

    async def _ask(self, message_id: str, marked: _Marked, emoji: str) -> None:
        channel, adds = marked.places[0], emoji == marked.wanted
        try:
            await (self._rest.react if adds else self._rest.unreact)(channel, message_id, emoji)
        except DiscordRefused as refused:
            self._refused(message_id, marked, refused)
        except PostFailed as error:
            if adds and emoji not in marked.old:
                marked.old.append(emoji)  # it may be there all the same
            await self._failed(message_id, marked, error)
        else:
            marked.tries = TRIES
            if adds:
                marked.put(emoji)
            else:
                marked.taken(emoji)
                marked.on = "" if marked.on == emoji else marked.on

    def _refused(self, message_id: str, marked: _Marked, refused: DiscordRefused) -> None:
        channel = marked.places[0]
        if refused.kind == "gone" and len(marked.places) > 1:
            del marked.places[0]
            return
        self._forget(message_id)
        if refused.status == 403:
            log.warning(
                "reaction.refused: channel %s takes no reactions, and is not asked for an hour: %s",
                channel,
                refused,
            )
            self._barred[channel] = None

    async def _failed(self, message_id: str, marked: _Marked, error: PostFailed) -> None:
        log.debug("reaction.failed: %s", error)
        marked.tries -= 1
        if marked.tries:
            await anyio.sleep(min(error.retry_after or PAUSE_S, LONGEST_PAUSE_S))
        else:
            self._forget(message_id)

    def _forget(self, message_id: str) -> None:
        marked = self._marked.pop(message_id, None)
        if marked and (line := self._lines.get(marked.line)):
            line.pop(message_id, None)
