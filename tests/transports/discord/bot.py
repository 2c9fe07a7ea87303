"""A whole bot in a loopback Discord."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from bot.config.settings import Settings
from bot.host.extension import thread_commands
from bot.routing.commands import with_extensions
from tests.fakes.discord import FakeDiscord
from tests.transports.bot import bot_over, surroundings
from transports.discord.api.options import Options
from transports.discord.client import Discord

COMMANDS = with_extensions(thread_commands(Settings()))


def transport(discord: FakeDiscord, data: Path, **options: object) -> Discord:
    base = Options(discord.token, discord.api_base_url, discord.gateway_url, commands=COMMANDS)
    return Discord(replace(base, **options), data, **surroundings(data, "discord"))


@asynccontextmanager
async def bot_in(
    discord: FakeDiscord,
    data: Path,
    model: object,
    *,
    options: dict[str, object] | None = None,
    **settings: object,
) -> AsyncIterator[Discord]:
    async with bot_over(transport(discord, data, **(options or {})), data, model, **settings) as edge:
        yield edge


def answers(discord: FakeDiscord, channel: str) -> list[str]:
    """Return what the bot has said in a channel or a thread, which may not be there yet."""
    there = discord.messages(channel) if channel in discord.channels else ()
    return [message.content for message in there if message.ours and message.content]
