"""The manifest of the Slack app: the least that the features in use need, and why; pure.

Scopes and events are Slack's; see docs.slack.dev/reference/scopes and the app manifest reference there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scope:
    """``reason`` is why it is needed, ``without`` what does not work without it."""

    name: str
    reason: str
    without: str


@dataclass(frozen=True, slots=True)
class Features:
    """What the settings switch on. ``command`` is the slash command, or blank.

    ``shortcut``: messages have an entry in their menu that asks about them, as the reaction ``ask_reaction`` does.
    ``search``: the model searches.
    """

    command: str = "/threadfast"
    files: bool = True
    shortcut: bool = False
    ask_reaction: str = ""
    search: bool = False


ALWAYS = (
    Scope("app_mentions:read", "to hear when somebody mentions it", "mentions may not arrive"),
    Scope(
        "assistant:write",
        "to be an agent: its status while it works, session titles, suggested prompts",
        "no native status, titles or prompts",
    ),
    Scope(
        "channels:history",
        "to follow the public threads it was asked into, and read what it missed",
        "no follow-ups without a mention in public channels, and nothing missed is read there",
    ),
    Scope(
        "channels:read",
        "to know the names of the channels that people point to",
        "channels are known by their ids",
    ),
    Scope("chat:write", "to answer", "it cannot answer at all"),
    Scope(
        "groups:history", "to follow threads in private channels it was invited to", "not in private channels"
    ),
    Scope("im:history", "to hear what people write to it directly", "direct messages do not arrive"),
    Scope(
        "im:read",
        "to find the conversations that were opened while it was down",
        "a first direct message that is sent while it is down is not found",
    ),
    Scope("mpim:history", "to follow threads in group conversations", "not in group conversations"),
    Scope(
        "reactions:write",
        "to show within a second that it has seen a message",
        "no reaction on what was seen",
    ),
    Scope(
        "usergroups:read", "to know the names of the groups that people name", "groups are known by their ids"
    ),
    Scope(
        "users:read",
        "to know the names of those who spoke before it was asked",
        "people are known by their ids",
    ),
)
COMMAND = Scope("commands", "to offer its command, and a menu entry", "no slash command, no menu entry")
SEARCH = Scope(
    "search:read.public", "to search public channels", "`search_threads` is without Slack's search"
)
REACTIONS = Scope("reactions:read", "to hear a reaction that asks about a message", "a reaction asks nothing")
FILES = (
    Scope("files:read", "to read the files that people give it", "it cannot read files"),
    Scope("files:write", "to give people files, and answers too long for messages", "it cannot post files"),
)

ASK, ASK_NAME = "ask", "Ask about this message"
"""The ``callback_id`` of the entry in the menu of messages, and its name; Slack takes 24 characters."""

EVENTS = (
    "app_home_opened", "app_mention", "agent_session_stopped", "agent_session_title_changed",
    "message.channels", "message.groups", "message.im", "message.mpim",
)  # fmt: skip


def scopes(features: Features) -> tuple[Scope, ...]:
    """Return the bot token scopes that these features need, and no others."""
    return (
        *ALWAYS,
        *((COMMAND,) if features.command or features.shortcut else ()),
        *(FILES if features.files else ()),
        *((REACTIONS,) if features.ask_reaction else ()),
        *((SEARCH,) if features.search else ()),
    )


def missing_scopes(granted: Iterable[str], features: Features) -> list[str]:
    """Return a clause for each missing scope; none if the granted ones are unknown."""
    known = frozenset(granted)
    return [
        f"{scope.name}: {scope.without}" for scope in scopes(features) if known and scope.name not in known
    ]


def manifest(name: str, features: Features, prompts: Sequence[Mapping[str, str]]) -> dict[str, object]:
    """Return the manifest of an app called *name*, with its suggested prompts."""
    short_name = name[:35]
    about = "Answers in threads. Write to it directly, or mention it in a channel."
    agent: dict[str, object] = {"agent_description": about}
    if prompts:
        agent["suggested_prompts"] = [dict(prompt) for prompt in prompts]
    offered: dict[str, object] = {
        "agent_view": agent,
        "app_home": {
            "home_tab_enabled": False,
            "messages_tab_enabled": True,
            "messages_tab_read_only_enabled": False,
        },
        "bot_user": {"display_name": short_name, "always_online": True},
    }
    if features.command:
        offered["slash_commands"] = [
            {
                "command": features.command,
                "description": "Status, usage, models, and stop",
                "usage_hint": "help | status | usage | model | stop",
                "should_escape": True,
            }
        ]
    if features.shortcut:
        about_it = "Opens a thread at the message and answers there"
        one = {"name": ASK_NAME, "type": "message", "callback_id": ASK, "description": about_it}
        offered["shortcuts"] = [one]
    events = [*EVENTS, *(("reaction_added",) if features.ask_reaction else ())]
    return {
        "display_information": {"name": short_name, "description": about},
        "features": offered,
        "oauth_config": {"scopes": {"bot": sorted(scope.name for scope in scopes(features))}},
        "settings": {
            "event_subscriptions": {"bot_events": events},
            "interactivity": {"is_enabled": True},
            "org_deploy_enabled": False,
            "socket_mode_enabled": True,
            "token_rotation_enabled": False,
        },
    }
