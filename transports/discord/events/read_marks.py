"""Discord's ids as a `Scale`, and the keys of its marks; pure.

The ids of messages rise with time. The key of a mark is its channel's path, as in Discord's own links: the id of the
guild, or "@me" for a direct message, a slash, and the channel's id. A thread is a channel of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import cast

import discord

from transports.discord.api.snowflake import at, before, number
from transports.discord.api.values import DIRECT
from transports.shared.backfill.message_time import Scale

_MessageChannel = discord.TextChannel | discord.VoiceChannel | discord.StageChannel

SNOWFLAKES = Scale(
    order=lambda text: Decimal(number(text)),
    at=at,
    before=before,
    just_before=lambda text: str(max(0, number(text) - 1)),
    unheard=lambda _: True,  # the bot sees all channels, heard of or not, and anybody may open a thread
)


def path(guild: str, channel: str) -> str:
    return f"{guild}/{channel}"


def is_direct(path: str) -> bool:
    return path.startswith(f"{DIRECT}/")


def channel_of(path: str) -> str:
    return path.rpartition("/")[2]


def last_messages(guilds: Iterable[discord.Guild]) -> dict[str, str]:
    """Return the id of the last message in each channel and active thread whose history the bot may read, by path.

    See https://docs.discord.com/developers/events/gateway-events#guild-create. The message may be deleted by now.
    """
    return {
        path(str(guild.id), str(channel)): str(last) for guild in guilds for channel, last in _last_ids(guild)
    }


def _last_ids(guild: discord.Guild) -> Iterator[tuple[int, int]]:
    channels: list[_MessageChannel] = [*guild.text_channels, *guild.voice_channels, *guild.stage_channels]
    for channel in channels:
        if channel.last_message_id and _is_readable(channel, guild):
            yield channel.id, channel.last_message_id
    for thread in guild.threads:
        # A post in a forum begins with a message that has its id.
        yield thread.id, max(thread.id, thread.last_message_id or 0)


def _is_readable(channel: discord.abc.GuildChannel, guild: discord.Guild) -> bool:
    """Return whether a call would succeed: after too many refusals Discord shuts out the address."""
    me = cast("discord.Member | None", guild.me)  # there as soon as the guild is
    rights = channel.permissions_for(me) if me else discord.Permissions.all()
    return rights.view_channel and rights.read_message_history
