"""The settings of one Discord bot: ``transports.discord``, or another name with ``"kind": "discord"``."""

from __future__ import annotations

from typing import Literal

from bot.config.settings import Name, Names, Secret, Url, setting
from bot.config.transports import TransportSection, TransportSettings


class DiscordSettings(TransportSection):
    kind: Literal["discord"] = setting("discord", "Needed under another name than its own.")
    token: Secret = setting("env:DISCORD_TOKEN", "Reference to the bot token.")
    api_base_url: Url | None = setting(None, "Ends in /api/v10; null uses Discord's own.")
    gateway_url: Url | None = setting(None, "Gateway address; null uses Discord's own.")
    streaming: Literal["edits", "progress", "off"] = setting(
        "edits", "While a turn runs: the text as it grows, what its tools do, or nothing."
    )
    reactions: bool = setting(True, "Mark messages as taken, done and failed.")
    typing: bool = setting(True, "Show that the bot is typing.")
    feedback: bool = setting(False, "Thumbs under each answer, kept in the audit.")
    in_place: Names = setting((), "Channel ids where a mention is answered by a reply, without a thread.")
    ask_shortcut: bool = setting(False, "Messages have *Ask about this message* in their menu, under *Apps*.")
    ask_reaction: Name | None = setting(
        None, "An emoji, or the name or id of a server's own: whoever reacts with it asks about the message."
    )
    bots: Names = setting((), "Ids of other bots that it answers when they mention it.")


SETTINGS = TransportSettings(DiscordSettings, secrets=("token",))
