"""What is read over REST: who the bot is, its guilds, channels, messages, history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fakes.discord import rules
from tests.fakes.discord.ids import CATEGORY, DM, EVERYONE, FORUM_TYPE, GUILD, U1, Json
from tests.fakes.discord.posting import found, place, shown
from tests.fakes.discord.records import Call, Message
from tests.fakes.discord.rules import Refusal
from tests.fakes.discord.views import channel_view, member
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


@route("GET", "/gateway/bot")
def gateway_bot(discord: FakeDiscord, call: Call) -> Json:
    left = 1000 - discord.identifies
    limit = {"total": 1000, "remaining": left, "reset_after": 86_400_000, "max_concurrency": 1}
    return {"url": discord.gateway_url, "shards": 1, "session_start_limit": limit}


@route("GET", "/guilds/{guild}/members/{user}")
def guild_member(discord: FakeDiscord, call: Call) -> Json:
    _check_guild(discord, call)
    known = discord.users.get(call.path["user"])
    if known is None or not known.member:
        raise Refusal(404, 10007, "Unknown Member")
    return member(discord, known.id)


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
    return kept[-limit:]
