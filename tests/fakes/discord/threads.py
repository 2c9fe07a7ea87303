"""Threads, forum posts, typing and reactions over REST."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fakes.discord import rules
from tests.fakes.discord.ids import BOT, DM, FORUM_TYPE, NEWS, TEXT, Json
from tests.fakes.discord.posting import check_sendable, compose, found, place, shown
from tests.fakes.discord.records import Call, Channel
from tests.fakes.discord.rules import Refusal
from tests.fakes.discord.views import channel_view, thread_view
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


@route("POST", "/channels/{channel}/threads")
def without_message(discord: FakeDiscord, call: Call) -> Json:
    channel = place(discord, call)
    name, minutes = rules.check_thread(call.body)
    if channel.kind == FORUM_TYPE:
        return _forum_post(discord, call, channel, name, minutes)
    if channel.kind not in (TEXT, NEWS):
        raise rules.wrong_type()
    _needs(discord, channel, "CREATE_PUBLIC_THREADS")
    return thread_view(discord, discord.open_thread(channel, discord.snowflake(), name, BOT, minutes))


def _forum_post(discord: FakeDiscord, call: Call, forum: Channel, name: str, minutes: int) -> Json:
    _needs(discord, forum, "SEND_MESSAGES")
    said = call.body.get("message")
    if not isinstance(said, dict):
        raise rules.invalid("message", "BASE_TYPE_REQUIRED", "This field is required")
    starter = compose(discord, said, forum, call.files)
    thread = discord.open_thread(forum, starter.id, name, BOT, minutes)
    starter.channel = thread.id
    discord.put(starter)
    return thread_view(discord, thread) | {"message": shown(discord, starter)}


def _needs(discord: FakeDiscord, channel: Channel, permission: str) -> None:
    if not discord.may(channel, permission):
        raise rules.missing_permissions()


@route("PATCH", "/channels/{channel}")
def change(discord: FakeDiscord, call: Call) -> Json:
    """A thread's name, archived, locked; the bot may change its own threads, and name no channel."""
    channel = place(discord, call)
    if channel.kind == DM or not channel.is_thread:
        raise rules.missing_permissions()
    if channel.owner != BOT and not discord.may_manage(channel):
        raise rules.missing_permissions()
    if "name" in call.body:
        channel.name, _ = rules.check_thread(call.body)
    if channel.archived and call.body.get("archived") is not False:
        raise rules.archived(locked=channel.locked)
    discord.set_archived(
        channel,
        archived=call.body.get("archived", channel.archived),
        locked=call.body.get("locked", channel.locked),
    )
    return channel_view(discord, channel)


@route("PUT", "/channels/{channel}/thread-members/@me")
def join(discord: FakeDiscord, call: Call) -> None:
    _in_thread(discord, call).joined = True


@route("DELETE", "/channels/{channel}/thread-members/@me")
def leave(discord: FakeDiscord, call: Call) -> None:
    _in_thread(discord, call).joined = False


def _in_thread(discord: FakeDiscord, call: Call) -> Channel:
    channel = place(discord, call)
    if not channel.is_thread:
        raise rules.wrong_type()
    if channel.archived:
        raise rules.archived(locked=channel.locked)
    return channel


@route("GET", "/channels/{channel}/threads/archived/public")
def archived(discord: FakeDiscord, call: Call) -> Json:
    closed = [one for one in discord.threads(place(discord, call).id) if one.archived]
    closed.sort(key=lambda one: -one.changed_at)
    return {"threads": [thread_view(discord, one) for one in closed], "members": [], "has_more": False}


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
