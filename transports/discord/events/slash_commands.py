"""Slash commands as messages: ``/model x`` is the message "/model x" in its thread or channel.

It is made durable, then acknowledged, and its answer is for the person alone. Only ``/retry`` is like its button: the
answer is for all.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from textwrap import shorten

import anyio
import discord
from discord import app_commands

from threads import wording
from threads.model import Incoming
from transports.base.text import digest
from transports.discord.api.channel_types import Channels
from transports.discord.api.options import Options
from transports.discord.events.interactions import (
    answer_privately,
    author_of,
    reply_address,
    take_and_acknowledge,
)
from transports.discord.events.parse_message import sent_at

log = logging.getLogger(__name__)

RETRY = "/retry"

LONGEST_DESCRIPTION = 100
"""Characters of what Discord shows of a command, and of its words."""

MOST_CHOICES, LONGEST_CHOICE = 25, 100
"""Choices that Discord shows while someone types, and the characters of one."""

LONGEST_WORDS = 6_000
"""Characters, as many as Discord lets people type; the address of a sign-in may be long."""

UNSUPPORTED_CHANNEL = "I cannot work in this kind of channel."
OUTDATED = "I do not know this command any more. Discord forgets it in a while; `/help` lists what I know."

Take = Callable[[Incoming, anyio.Event], Awaitable[str]]
"""Makes a command durable; its answer goes to the interaction. See `interactions.Take`."""

ASK_NAME = "Ask about this message"
Ask = Callable[[discord.Interaction, discord.Message, anyio.Event], Awaitable[str]]
"""Takes a choice in the menu of a message. See `asked_message.AskedMessages`."""


class SlashCommands(app_commands.CommandTree[discord.Client]):
    """The commands of one client of the gateway. With ``ask``, messages have an entry in their menu."""

    def __init__(
        self, client: discord.Client, channels: Channels, take: Take, options: Options, ask: Ask | None = None
    ) -> None:
        super().__init__(
            client,
            allowed_contexts=app_commands.AppCommandContext(
                guild=True, dm_channel=True, private_channel=False
            ),
            allowed_installs=app_commands.AppInstallationType(guild=True, user=False),
        )
        self._channels, self._take, self._models = channels, take, options.models
        for usage, meaning in options.commands.items():
            try:
                self._add(usage, meaning)
            except (ValueError, app_commands.AppCommandError) as error:  # an extension's: the others stay
                log.warning("slash.left_out: %s can only be typed: %s", usage, error)

        if ask:
            self._add_ask(ask)

    def _add_ask(self, ask: Ask) -> None:
        @self.context_menu(name=ASK_NAME)
        async def callback(interaction: discord.Interaction, message: discord.Message) -> None:
            await take_and_acknowledge(interaction, partial(ask, interaction, message), thinking=True)

    def _add(self, usage: str, meaning: str) -> None:
        """Add a command. Raises ValueError and `AppCommandError` for a name that Discord does not take."""
        name, _, words = usage.removeprefix("/").partition(" ")
        about = _shortened(meaning[:1].upper() + meaning[1:]) or "…"
        if name == "model":
            self._add_model(about, _shortened(words))
        elif words:
            self._add_worded(name, about, _shortened(words))
        else:
            self._add_plain(name, about)

    def _add_plain(self, name: str, meaning: str) -> None:
        @self.command(name=name, description=meaning)
        async def callback(interaction: discord.Interaction) -> None:
            await self._run_command(interaction, f"/{name}")

    def _add_model(self, meaning: str, words: str) -> None:
        @self.command(name="model", description=meaning)
        @app_commands.describe(name=words)
        async def model(interaction: discord.Interaction, name: str = "") -> None:
            await self._run_command(interaction, f"/model {name}")

        @model.autocomplete("name")
        async def complete(_: discord.Interaction, typed: str) -> list[app_commands.Choice[str]]:
            return [app_commands.Choice(name=name, value=name) for name in matching(self._models, typed)]

    def _add_worded(self, name: str, meaning: str, about: str) -> None:
        @self.command(name=name, description=meaning)
        @app_commands.describe(words=about)
        async def callback(interaction: discord.Interaction, words: str = "") -> None:
            await self._run_command(interaction, f"/{name} {words}")

    async def _run_command(self, interaction: discord.Interaction, text: str) -> None:
        await take_and_acknowledge(interaction, partial(self._take_command, interaction, text), thinking=True)

    async def _take_command(
        self, interaction: discord.Interaction, text: str, acknowledged: anyio.Event
    ) -> str:
        place, author = self._channels.see(interaction.channel), author_of(interaction)
        if place is None or author is None:
            return UNSUPPORTED_CHANNEL
        kind = "press" if text == RETRY else "slash"
        incoming = Incoming(
            id=f"{kind}-{digest(str(interaction.id))}",
            thread=place.thread(),
            author=author,
            text=" ".join(text.split())[:LONGEST_WORDS],
            sent_at=sent_at(str(interaction.id)),
            via="mention",  # it is always answered, also a stranger's second one of the day
            reply_address=reply_address(interaction),
        )
        return await self._take(incoming, acknowledged)

    async def on_error(
        self, interaction: discord.Interaction, error: app_commands.AppCommandError, /
    ) -> None:
        """Tell the person in one sentence, and log the rest; neither has what was typed."""
        if isinstance(error, app_commands.CommandNotFound | app_commands.CommandSignatureMismatch):
            log.info("slash.old: a command of an earlier version was called: %s", error)
            text = OUTDATED
        else:
            cause = error.original if isinstance(error, app_commands.CommandInvokeError) else error
            log.error("slash.failed: see the traceback", exc_info=cause)
            text = wording.friendly(cause)
        if interaction.type is discord.InteractionType.application_command:
            await answer_privately(interaction, text)


def _shortened(text: str) -> str:
    return shorten(text, LONGEST_DESCRIPTION, placeholder="…")


def matching(names: Sequence[str], typed: str) -> list[str]:
    """Return the names that contain what was typed, those that begin with it first."""
    wanted = typed.strip().casefold()
    found = [name for name in names if name and len(name) <= LONGEST_CHOICE and wanted in name.casefold()]
    return sorted(found, key=lambda name: not name.casefold().startswith(wanted))[:MOST_CHOICES]
