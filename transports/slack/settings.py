"""The settings of one Slack workspace: ``transports.slack``, or another name with ``"kind": "slack"``."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field

from bot.config.settings import Name, Names, Secret, Section, Settings, Url, matches, setting
from bot.config.transports import TransportSection, TransportSettings
from transports.slack.manifest import Features

EMOJI = re.compile(r"[a-z0-9_+'-]{1,100}")
SLASH = re.compile(r"/[a-z][a-z0-9_-]{0,30}")


class Prompt(Section):
    """One of the prompts that Slack offers in a new conversation."""

    title: Annotated[Name, Field(max_length=75)] = Field(description="Text on the button.")
    message: Name = Field(description="Message that pressing it sends.")


class SlackSettings(TransportSection):
    kind: Literal["slack"] = setting("slack", "Needed under another name than its own.")
    bot_token: Secret = setting("env:SLACK_BOT_TOKEN", "Reference to the xoxb token.")
    app_token: Secret = setting("env:SLACK_APP_TOKEN", "Reference to the xapp token.")
    api_base_url: Url | None = setting(None, "Ends in /api/; null uses Slack's own.")
    command: Annotated[str, matches(SLASH, "must be a slash and lower case letters")] | None = setting(
        "/threadfast", "The slash command; the manifest declares it. Null disables it."
    )
    suggested_prompts: Annotated[tuple[Prompt, ...], Field(max_length=4)] = setting(
        (
            Prompt(title="What can you do?", message="What can you do for me here?"),
            Prompt(title="Summarise a text", message="Summarise the text that I send next."),
        ),
        "Offered in a new conversation, at most four.",
    )
    feedback: bool = setting(True, "Thumbs under each answer, kept in the audit.")
    stream_in_channels: bool = setting(
        True, "Stream there too: the asker sees it live, the others when it is whole."
    )
    ask_shortcut: bool = setting(
        False, "Messages have *Ask about this message* in their menu; the manifest declares it."
    )
    ask_reaction: Annotated[str, matches(EMOJI, "must be the name of an emoji, without colons")] | None = (
        setting(
            None, "Name of an emoji: whoever reacts with it asks about the message. The manifest declares it."
        )
    )
    bots: Names = setting((), "Ids of other bots that it answers.")


def features(settings: Settings, given: SlackSettings) -> Features:
    """Return what the settings switch on in the app of a workspace."""
    from bot.config.scopes import enabled_anywhere  # noqa: PLC0415 - it loads the domain, and every command loads this

    tools = enabled_anywhere(settings)
    return Features(
        given.command or "",
        files="files" in tools,
        search="thread_search" in tools,
        shortcut=given.ask_shortcut,
        ask_reaction=given.ask_reaction or "",
    )


SETTINGS = TransportSettings(
    SlackSettings,
    secrets=("bot_token", "app_token"),
    channel=re.compile(r"[CDG][A-Z0-9]{6,}"),  # a workspace's begins with T or E
)
