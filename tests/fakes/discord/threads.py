"""Threads, typing and reactions over REST."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fakes.discord import rules
from tests.fakes.discord.ids import BOT, DM, NEWS, TEXT, Json
from tests.fakes.discord.posting import check_sendable, found, place
from tests.fakes.discord.records import Call, Channel
from tests.fakes.discord.rules import Refusal
from tests.fakes.discord.views import thread_view
from tests.fakes.discord.web import route

if TYPE_CHECKING:
    from tests.fakes.discord.server import FakeDiscord


@route("POST", "/channels/{channel}/messages/{message}/threads")
def from_message(discord: FakeDiscord, call: Call) -> Json:
    channel, message = found(discord, call)
    if channel.kind not in (TEXT, NEWS):
        raise rules.wrong_type()
    _needs(discord, channel, "CREATE_PUBLIC_THREADS")
    name, minutes = rules.check_thread(call.body)
    if message.id in discord.channels:
        raise Refusal(400, 160004, "A thread has already been created for this message")
    if message.type not in (0, 19, 20, 23):
        raise Refusal(403, 50021, "Cannot execute action on a system message")
    return thread_view(discord, discord.open_thread(channel, message.id, name, BOT, minutes, starter=message))


def _needs(discord: FakeDiscord, channel: Channel, permission: str) -> None:
    if not discord.may(channel, permission):
        raise rules.missing_permissions()


@route("POST", "/channels/{channel}/typing")
def typing(discord: FakeDiscord, call: Call) -> None:
    channel = place(discord, call)
    check_sendable(discord, channel)
    discord.typings.append(channel.id)


_REACTION = "/channels/{channel}/messages/{message}/reactions/{emoji}/@me"


@route("PUT", _REACTION)
def react(discord: FakeDiscord, call: Call) -> None:
    channel, message = found(discord, call, "READ_MESSAGE_HISTORY")
    _check_reaction(channel, call)
    users = message.reactions.get(call.path["emoji"])
    if users is None:
        _allow_new(discord, channel)
        if len(message.reactions) >= 20:
            raise Refusal(400, 30010, "Maximum number of reactions reached (20)")
        users = message.reactions[call.path["emoji"]] = []
    if BOT not in users:
        users.append(BOT)
        discord.reacted(message, call.path["emoji"], BOT, added=True)


@route("DELETE", _REACTION)
def unreact(discord: FakeDiscord, call: Call) -> None:
    channel, message = found(discord, call, "READ_MESSAGE_HISTORY")
    _check_reaction(channel, call)
    discord.take_reaction(message, call.path["emoji"], BOT)


def _allow_new(discord: FakeDiscord, channel: Channel) -> None:
    if channel.kind != DM:
        _needs(discord, channel, "ADD_REACTIONS")


def _check_reaction(channel: Channel, call: Call) -> None:
    if channel.archived:
        raise rules.archived(locked=channel.locked)
    if call.path["emoji"].isascii() and ":" not in call.path["emoji"]:
        raise Refusal(400, 10014, "Unknown Emoji")
