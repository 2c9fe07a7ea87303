"""Where the events of one gateway session go (`gateway.Hooks`)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import discord

from transports.discord.api.channel_types import Channels
from transports.discord.api.payloads import Count
from transports.discord.events.command_registration import CommandRegistration
from transports.discord.events.intake import Intake
from transports.discord.events.slash_commands import SlashCommands, Take
from transports.shared.live.background_calls import Soon

log = logging.getLogger(__name__)

NEEDED = discord.Permissions(
    view_channel=True,
    send_messages=True,
    create_public_threads=True,
    send_messages_in_threads=True,
    read_message_history=True,
    add_reactions=True,
    attach_files=True,
)


def invite_url(application_id: int | str) -> str:
    """Return the address at which the owner of a server invites the bot."""
    return discord.utils.oauth_url(
        application_id, permissions=NEEDED, scopes=("bot", "applications.commands")
    )


class GatewaySession:
    """*slash_commands* makes the commands of a client. Fills *upload_limits*: the bytes a file may have, by guild."""

    def __init__(
        self,
        soon: Soon,
        intake: Intake,
        channels: Channels,
        registration: CommandRegistration,
        slash_commands: Callable[[discord.Client, Channels, Take], SlashCommands],
        upload_limits: dict[str, int],
        count_unread: Count,
    ) -> None:
        self._soon, self._intake, self._channels, self._registration = soon, intake, channels, registration
        self._slash_commands, self._upload_limits = slash_commands, upload_limits
        self._slash: SlashCommands | None = None
        self.on_session, self.on_message = intake.on_session, intake.on_message
        self.on_edit, self.on_delete = intake.on_edit, intake.on_delete
        self.on_reaction = intake.on_reaction
        self.on_interaction, self.on_unread = intake.on_interaction, count_unread
        self.on_channel, self.on_gone = channels.see, channels.forget

    def prepare(self, client: discord.Client) -> None:
        self._slash = self._slash_commands(client, self._channels, self._intake.take_command)

    def on_ready(self, client: discord.Client) -> None:
        self._intake.on_ready(client)
        if self._slash:
            self._soon(partial(self._registration.sync, self._slash))
        if not client.guilds and client.application_id:
            log.warning(
                "discord.uninvited: the bot is in no server yet; whoever owns one invites it with %s",
                invite_url(client.application_id),
            )

    def on_guild(self, guild: discord.Guild) -> None:
        self._upload_limits[str(guild.id)] = guild.filesize_limit
        self._intake.on_guild(guild)
