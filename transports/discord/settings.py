"""The settings of one Discord bot: ``transports.discord``, or another name with ``"kind": "discord"``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bot.config.settings import Names, Secret, Url
from bot.config.transports import TransportSection, TransportSettings


class DiscordSettings(TransportSection):
    kind: Literal["discord"] = Field(default="discord", description="Needed under another name than its own.")
    token: Secret = Field(default="env:DISCORD_TOKEN", description="Reference to the bot token.")
    api_base_url: Url | None = Field(default=None, description="Ends in /api/v10; null uses Discord's own.")
    gateway_url: Url | None = Field(default=None, description="Gateway address; null uses Discord's own.")
    streaming: Literal["edits", "progress", "off"] = Field(
        default="edits", description="While a turn runs: the text as it grows, what its tools do, or nothing."
    )
    reactions: bool = Field(default=True, description="Mark messages as taken, done and failed.")
    typing: bool = Field(default=True, description="Show that the bot is typing.")
    feedback: bool = Field(default=False, description="Thumbs under each answer, kept in the audit.")
    in_place: Names = Field(
        default=(), description="Channel ids where a mention is answered by a reply, without a thread."
    )
    bots: Names = Field(default=(), description="Ids of other bots that it answers when they mention it.")


SETTINGS = TransportSettings(DiscordSettings, secrets=("token",))
