"""What a channel's id stands for; learnt from whatever passes by, and asked for once where nothing did.

discord.py does not know the channel of a message in an archived thread, nor any before its guild has come in: then
the channel is a `PartialMessageable` without a type, and taking it for a guild's channel would lose the message.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

import anyio
import discord

from threads.errors import PostFailed, TransportRejected
from transports.discord.api.rest import Rest
from transports.discord.api.values import Place

MOST_PLACES = 50_000
"""How many channels are remembered; beyond, the one that nobody asked for the longest is forgotten."""


@dataclass(slots=True)
class _Fetch:
    done: anyio.Event = field(default_factory=anyio.Event)
    failure: PostFailed | None = None


class Channels:
    def __init__(self, rest: Rest, most: int = MOST_PLACES) -> None:
        self._rest, self._most = rest, most
        self._places: OrderedDict[str, Place] = OrderedDict()
        self._fetches: dict[str, _Fetch] = {}

    def see(self, channel: object) -> Place | None:
        """Learn what a channel of the library's is; None if neither it nor what was learnt before tells. No I/O.

        What is told without its guild the library takes for a direct message: a channel of a guild stays one.
        """
        place = place_of(channel)
        if place is not None and place.kind == "direct":
            place = self.known(place.id) or place
        if place is not None:
            self._learn(place)
            return place
        return self.known(str(channel.id)) if isinstance(channel, discord.PartialMessageable) else None

    def known(self, channel_id: str) -> Place | None:
        place = self._places.get(channel_id)
        if place is not None:
            self._places.move_to_end(channel_id)
        return place

    async def of(self, channel_id: str) -> Place:
        """Return what a channel is; those who ask at the same time share one look-up. Raises `PostFailed`."""
        while (place := self.known(channel_id)) is None:
            fetch = self._fetches.get(channel_id)
            if fetch is None:
                return await self._fetch(channel_id)
            await fetch.done.wait()
            if fetch.failure is not None:
                raise fetch.failure
        return place

    def forget(self, channel_id: str) -> None:
        self._places.pop(channel_id, None)

    async def _fetch(self, channel_id: str) -> Place:
        fetch = self._fetches[channel_id] = _Fetch()
        try:
            place = place_of(await self._rest.channel(channel_id))
            if place is None:
                raise TransportRejected(f"channel {channel_id} is of a kind that nobody can write to us in")
        except PostFailed as failure:
            fetch.failure = failure
            raise
        finally:
            del self._fetches[channel_id]
            fetch.done.set()
        self._learn(place)
        return place

    def _learn(self, place: Place) -> None:
        self._places[place.id] = place
        self._places.move_to_end(place.id)
        if len(self._places) > self._most:
            self._places.popitem(last=False)


def place_of(channel: object) -> Place | None:
    """Return what a channel is by itself; None for a group's, and for one of which only the id is known.

    A thread can be opened from a message in a text or an announcement channel; a voice or stage channel has text but
    no threads, and a forum's posts are threads. https://docs.discord.com/developers/topics/threads
    """
    match channel:
        case discord.DMChannel():
            return Place(str(channel.id), "direct")
        case discord.Thread():
            return Place(str(channel.id), "thread", str(channel.guild.id), parent=str(channel.parent_id))
        case discord.abc.GuildChannel():
            threads = isinstance(channel, discord.TextChannel)
            return Place(str(channel.id), "channel", str(channel.guild.id), threads=threads)
        case _:
            return None
