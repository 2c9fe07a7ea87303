"""What is read over REST: who the bot is, channels, messages, history, threads that are open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fakes.discord import rules
from tests.fakes.discord.ids import CATEGORY, DM, EVERYONE, FORUM_TYPE, GUILD, U1, Json
from tests.fakes.discord.posting import found, place, shown
from tests.fakes.discord.records import Call, Channel, Message
from tests.fakes.discord.rules import Refusal
from tests.fakes.discord.views import channel_view, guild_view, member, thread_view
from tests.fakes.discord.web import route
from tests.fakes.discord.world import APPLICATION

if TYPE_CHECKING:
    from tests.fakes.discord.server import FakeDiscord


@route("GET", "/users/@me")
def me(discord: FakeDiscord, call: Call) -> Json:
    more = {"verified": True, "mfa_enabled": False, "email": None, "flags": 0, "locale": "en-US"}
    return discord.users[discord.me].view() | more


@route("GET", "/oauth2/applications/@me")
@route("GET", "/applications/@me")
def application(discord: FakeDiscord, call: Call) -> Json:
    flags = (1 << 19) if discord.message_content else 0
    return APPLICATION | {"owner": discord.users[U1].view(), "flags": flags}


@route("GET", "/gateway")
def gateway(discord: FakeDiscord, call: Call) -> Json:
    return {"url": discord.gateway_url}


@route("GET", "/gateway/bot")
def gateway_bot(discord: FakeDiscord, call: Call) -> Json:
    left = 1000 - discord.identifies
    limit = {"total": 1000, "remaining": left, "reset_after": 86_400_000, "max_concurrency": 1}
    return {"url": discord.gateway_url, "shards": 1, "session_start_limit": limit}


@route("GET", "/users/{user}")
def user(discord: FakeDiscord, call: Call) -> Json:
    if call.path["user"] not in discord.users:
        raise Refusal(404, 10013, "Unknown User")
    return discord.users[call.path["user"]].view()


@route("POST", "/users/@me/channels")
def open_dm(discord: FakeDiscord, call: Call) -> Json:
    wanted = str(call.body.get("recipient_id"))
    if wanted not in discord.users:
        raise rules.invalid("recipient_id", "BASE_TYPE_SNOWFLAKE", "Unknown recipient")
    return channel_view(discord, discord.channels[discord.dm(wanted)])


@route("GET", "/guilds/{guild}")
def guild(discord: FakeDiscord, call: Call) -> Json:
    _check_guild(discord, call)
    hidden = (
        "channels",
        "threads",
        "members",
        "presences",
        "voice_states",
        "large",
        "joined_at",
        "unavailable",
    )
    return {key: value for key, value in guild_view(discord).items() if key not in hidden}


@route("GET", "/guilds/{guild}/channels")
def guild_channels(discord: FakeDiscord, call: Call) -> list[Json]:
    _check_guild(discord, call)
    return [channel_view(discord, one) for one in _visible(discord) if not one.is_thread]


@route("GET", "/guilds/{guild}/threads/active")
def active_threads(discord: FakeDiscord, call: Call) -> Json:
    _check_guild(discord, call)
    open_ones = [one for one in _visible(discord) if one.is_thread and not one.archived]
    open_ones.sort(key=lambda one: -int(one.id))
    views = [thread_view(discord, one) for one in open_ones]
    return {"threads": views, "members": [view["member"] for view in views if "member" in view]}


@route("GET", "/guilds/{guild}/members/{user}")
def guild_member(discord: FakeDiscord, call: Call) -> Json:
    _check_guild(discord, call)
    known = discord.users.get(call.path["user"])
    if known is None or not known.member:
        raise Refusal(404, 10007, "Unknown Member")
    return member(discord, known.id)


@route("GET", "/guilds/{guild}/roles")
def guild_roles(discord: FakeDiscord, call: Call) -> list[Json]:
    _check_guild(discord, call)
    return [role.view(number) for number, role in enumerate(discord.roles.values())]


@route("GET", "/users/@me/guilds")
def guilds(discord: FakeDiscord, call: Call) -> list[Json]:
    mine: Json = {
        "id": GUILD,
        "name": "Fake",
        "icon": None,
        "banner": None,
        "owner": False,
        "permissions": str(_rights(discord)),
        "features": [],
    }
    after = int(call.query.get("after") or 0)
    return [mine] if discord.in_guild and int(GUILD) > after else []


def _rights(discord: FakeDiscord) -> int:
    """Return what the bot's roles give it in the guild, without the overwrites of channels."""
    mine = {EVERYONE, *discord.users[discord.me].roles}
    rights = 0
    for role in discord.roles.values():
        rights |= role.permissions if role.id in mine else 0
    return rights


def _check_guild(discord: FakeDiscord, call: Call) -> None:
    if call.path["guild"] != GUILD:
        raise Refusal(404, 10004, "Unknown Guild")
    if not discord.in_guild:
        raise rules.missing_access()


def _visible(discord: FakeDiscord) -> list[Channel]:
    there = [one for one in discord.channels.values() if one.guild and not one.deleted]
    return [one for one in there if discord.may(one, "VIEW_CHANNEL")]


@route("GET", "/channels/{channel}")
def channel(discord: FakeDiscord, call: Call) -> Json:
    return channel_view(discord, place(discord, call))


@route("GET", "/channels/{channel}/messages/{message}")
def message(discord: FakeDiscord, call: Call) -> Json:
    return shown(discord, found(discord, call, "READ_MESSAGE_HISTORY")[1])


@route("GET", "/channels/{channel}/messages")
def history(discord: FakeDiscord, call: Call) -> list[Json]:
    """Newest first, whatever is asked; "after" gives the oldest ones after it."""
    there = place(discord, call)
    if there.kind in (FORUM_TYPE, CATEGORY):
        raise rules.wrong_type()
    if there.kind != DM and not discord.may(there, "READ_MESSAGE_HISTORY"):
        return []
    limit = int(call.query.get("limit") or 50)
    if not 1 <= limit <= 100:
        raise rules.invalid("limit", "NUMBER_TYPE_MAX", "int value should be less than or equal to 100.")
    kept = [one for one in there.messages.values() if not one.deleted]
    return [shown(discord, one) for one in reversed(_page(kept, call.query, limit))]


def _page(kept: list[Message], query: dict[str, str], limit: int) -> list[Message]:
    if after := query.get("after"):
        return [one for one in kept if int(one.id) > int(after)][:limit]
    if before := query.get("before"):
        return [one for one in kept if int(one.id) < int(before)][-limit:]
    if around := query.get("around"):
        older = [one for one in kept if int(one.id) < int(around)][-(limit // 2) :]
        newer = [one for one in kept if int(one.id) >= int(around)]
        return [*older, *newer[: limit - len(older)]]
    return kept[-limit:]
