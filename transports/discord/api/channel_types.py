"""The types of channels, by id: learnt from events, else asked for.

discord.py does not know the channel of a message in an archived thread, nor any before its guild has come in. Then
the channel is a `PartialMessageable` without a type, and taking it for a guild's channel would lose the message.
"""

from __future__ import annotations

from functools import partial

import discord
from cachetools import LRUCache

from threads.errors import TransportRejected
from transports.discord.api.rest import Rest
from transports.discord.api.values import Place

MOST_PLACES = 50_000
"""How many channels are remembered."""


class Channels:
    def __init__(self, rest: Rest, transport: str = "discord") -> None:
        self._rest, self._transport = rest, transport
        self._places: LRUCache[str, Place] = LRUCache(MOST_PLACES)

    def see(self, channel: object) -> Place | None:
        """Learn the type of a channel of the library's; None if it is not known. No I/O.

        The library takes a channel without its guild for a direct message: a known channel of a guild stays one.
        """
        place = place_of(channel, self._transport)
        if place is not None and place.kind == "direct":
            place = self.known(place.id) or place
        if place is not None:
            self._places[place.id] = place
            return place
        return self.known(str(channel.id)) if isinstance(channel, discord.PartialMessageable) else None

    def known(self, channel_id: str) -> Place | None:
        return self._places.get(channel_id)

    async def of(self, channel_id: str) -> Place:
        """Return a channel's type; asks Discord if it is not known. Raises `PostFailed`."""
        if (place := self.known(channel_id)) is None:
            if (place := place_of(await self._rest.channel(channel_id), self._transport)) is None:
                raise TransportRejected(f"channel {channel_id} is of a kind without messages to us")
            self._places[channel_id] = place
        return place

    def forget(self, channel_id: str) -> None:
        self._places.pop(channel_id, None)


def place_of(channel: object, transport: str = "discord") -> Place | None:
    """Return a channel's type by itself; None for a group, and for a channel of which only the id is known.

    A thread can be opened from a message in a text or an announcement channel; a voice or stage channel has text but
    no threads, and a forum's posts are threads. https://docs.discord.com/developers/topics/threads
    """
    at = partial(Place, str(getattr(channel, "id", "")), transport=transport)
    match channel:
        case discord.DMChannel():
            return at("direct")
        case discord.Thread():
            guild, parent = str(channel.guild.id), str(channel.parent_id)
            return at("thread", guild, parent, title=channel.name, owner=str(channel.owner_id))
        case discord.abc.GuildChannel():
            return at("channel", str(channel.guild.id), threads=isinstance(channel, discord.TextChannel))
        case _:
            return None
