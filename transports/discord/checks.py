"""Looks at Discord as the settings would have it used, one finding after another.

| finding           | what is done                                                                               |
|-------------------|--------------------------------------------------------------------------------------------|
| `discord.proxy`   | nothing; only there when the environment names one                                         |
| `discord.token`   | `GET /users/@me`: whose token it is                                                        |
| `discord.clock`   | the Date of that answer beside this machine's                                              |
| `discord.intents` | `GET /applications/@me`: is Message Content ticked?                                        |
| `discord.gateway` | `GET /gateway/bot`: how many sessions may begin today                                      |
| `discord.session` | a session up to READY, closed again; not beside a running bot, nor with few sessions left  |
| `discord.servers` | `GET /users/@me/guilds`: where it is, and which permissions lack there; else how to invite |
| `discord.post`    | a message without a ping, posted and deleted; only in a channel that was named for it      |

The library is not asked: it sleeps through limits and tries for half a minute, and here a person watches.
API: https://docs.discord.com/developers/reference
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from datetime import datetime

import aiohttp
import anyio
import discord
from pydantic import JsonValue
from yarl import URL

from threads.errors import PostFailed
from transports.discord.api.gateway_link import FATAL, GATEWAY
from transports.discord.api.probe_api import Answer, Api, BadToken
from transports.discord.api.sdk import DISCORD
from transports.discord.client import Options
from transports.discord.events.gateway_session import NEEDED
from transports.shared.checks import REACH, TEST, WITHIN_S, Finding, clock, failed, plainly, proxy, utc_now
from transports.shared.link.proxy import proxy_for

PORTAL = "At discord.com/developers/applications, your application, Bot:"
NEW_TOKEN = f"{PORTAL} Reset Token, and set the new one."
TICK = f'{PORTAL} tick "Message Content Intent".'
MUTE = "It can neither answer nor read in Discord."
DEAF = "It hears nothing from Discord."

MESSAGE_CONTENT = 1 << 18 | 1 << 19
"""Flags of an application: the intent was granted, or is ticked (which is enough in up to 100 servers)."""

FEW_SESSIONS = 50
SHOWN = 5
"""Servers that lack something and are told one by one."""

SILENT = 1 << 12
"""The flag of a message that notifies nobody."""


async def check_discord(
    options: Options, *, running: bool = False, post_in: str = "", now: Callable[[], datetime] = utc_now
) -> AsyncGenerator[Finding, None]:
    """Give each finding as it is made. Raises nothing, and each takes some seconds at most.

    *running*: a bot is connected with this token now, so no session is begun. *post_in*: the channel that may see a
    test message. Close it (`contextlib.aclosing`) if it is not read to its end.
    """
    base = options.api_base_url or DISCORD
    if way := proxy("discord.proxy", base):
        yield way
    timeout = aiohttp.ClientTimeout(total=2 * WITHIN_S)
    async with aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session:
        api = Api(session, base, options.token)
        me = await api.ask("/users/@me")
        yield _token(me, options.token)
        if isinstance(me, PostFailed):
            return
        if told := clock("discord.clock", me.date, now(), options.max_age_s):
            yield told
        application = await api.ask("/applications/@me")
        yield _intents(application)
        limit = await api.ask("/gateway/bot")
        yield _gateway(limit)
        if not running and _sessions_left(limit) >= FEW_SESSIONS:
            yield await _begun(session, options)
        guilds = await api.ask("/users/@me/guilds?limit=200")
        for finding in _servers(guilds, application, me):
            yield finding
        if post_in:
            yield await _post(api, post_in)


def _token(me: Answer | PostFailed, token: str) -> Finding:
    name = "discord.token"
    match me:
        case BadToken():
            form = "" if token.count(".") == 2 else "; a bot token has three parts, with a dot between them"
            return Finding(name, "fail", f"{me}{form}", MUTE, NEW_TOKEN)
        case PostFailed():
            return failed(name, me, MUTE)
    fields = me.fields
    names = str(fields.get("username")), str(fields.get("id"))
    who = f"{names[0]} ({names[1]})"
    if not isinstance(fields.get("id"), str):
        return Finding(name, "fail", "what answers is not Discord", MUTE, REACH)
    if fields.get("bot") is not True:
        return Finding(name, "fail", f"this token is a person's ({who}), not a bot's", MUTE, NEW_TOKEN, names)
    return Finding(name, "ok", who, names=names)


def _intents(application: Answer | PostFailed) -> Finding:
    name = "discord.intents"
    if isinstance(application, PostFailed):
        return failed(name, application, "Whether it may read messages is not known.")
    flags = application.fields.get("flags")
    if isinstance(flags, int) and flags & MESSAGE_CONTENT:
        return Finding(name, "ok", "Message Content is ticked")
    return Finding(
        name,
        "fail",
        "Message Content Intent is not ticked",
        "Discord ends every session of the bot at once.",
        TICK,
    )


def _limit(told: Answer | PostFailed) -> Mapping[str, JsonValue]:
    limit = None if isinstance(told, PostFailed) else told.fields.get("session_start_limit")
    return limit if isinstance(limit, dict) else {}


def _sessions_left(told: Answer | PostFailed) -> int:
    left = _limit(told).get("remaining")
    return left if isinstance(left, int) else 0


def _gateway(told: Answer | PostFailed) -> Finding:
    name = "discord.gateway"
    if isinstance(told, PostFailed):
        return failed(name, told, DEAF)
    if not _limit(told):
        found = "Discord did not say how many sessions may begin"
        return Finding(name, "fail", found, "What answers may not be Discord; no session was begun.", REACH)
    left, total, reset = _sessions_left(told), _limit(told).get("total"), _limit(told).get("reset_after")
    found = f"{left} of {total} sessions left today"
    if left >= FEW_SESSIONS:
        return Finding(name, "ok", found)
    hours = f" in {reset / 3_600_000:.0f} h" if isinstance(reset, int) else ""
    return Finding(
        name,
        "warn" if left else "fail",
        f"{found}; no more was begun for this check",
        "Something begins sessions again and again; Discord resets the token of a bot that uses up all.",
        f"Stop other programs that use this token. The count begins anew{hours}.",
    )


async def _begun(session: aiohttp.ClientSession, options: Options) -> Finding:
    """Begin a session, wait for READY, and end it."""
    name = "discord.session"
    gateway = URL(options.gateway_url) if options.gateway_url else GATEWAY
    url = str(gateway.update_query(v="10", encoding="json"))
    try:
        with anyio.fail_after(WITHIN_S):
            closing = aiohttp.ClientWSTimeout(ws_close=1.0)
            async with session.ws_connect(url, proxy=proxy_for(url), timeout=closing) as socket:
                return await _identified(name, socket, options.token.strip())
    except TimeoutError:
        return Finding(name, "fail", f"no session within {WITHIN_S:.0f} s", DEAF, REACH)
    except Exception as error:  # noqa: BLE001  the boundary of a look: whatever broke is what was found
        return Finding(
            name, "fail", plainly(error), DEAF, "Allow websockets (wss://) on the way out. " + REACH
        )


async def _identified(name: str, socket: aiohttp.ClientWebSocketResponse, token: str) -> Finding:
    intents = discord.Intents.default()
    intents.message_content = True
    system = {"os": sys.platform, "browser": "threadfast", "device": "threadfast"}
    said = {"token": token, "intents": intents.value, "properties": system}
    while True:
        frame = await socket.receive()
        if frame.type is not aiohttp.WSMsgType.TEXT:
            return _closed(name, socket.close_code)
        match json.loads(frame.data):
            case {"op": 10}:
                await socket.send_json({"op": 2, "d": said})
            case {"op": 9}:
                return Finding(
                    name, "warn", "Discord did not begin a session now", DEAF, "Run this again in 5 s."
                )
            case {"t": "READY"}:
                return Finding(name, "ok", "begun and ended")
            case _:
                continue


def _closed(name: str, code: int | None) -> Finding:
    match code:
        case 4004:
            return Finding(name, "fail", "Discord does not know this token", DEAF, NEW_TOKEN)
        case 4014:
            return Finding(name, "fail", "Discord ended the session: 4014, disallowed intents", DEAF, TICK)
        case int() if code in FATAL:
            return Finding(name, "fail", f"Discord ended the session with {code}", DEAF, f"{FATAL[code]}.")
        case _:
            return Finding(name, "fail", f"the session ended before it began ({code})", DEAF, REACH)


def _servers(guilds: Answer | PostFailed, application: Answer | PostFailed, me: Answer) -> list[Finding]:
    name = "discord.servers"
    if isinstance(guilds, PostFailed):
        return [failed(name, guilds, "Where it is, is not known.")]
    there = (
        [guild for guild in guilds.body if isinstance(guild, dict)] if isinstance(guilds.body, list) else []
    )
    invite = _invite(application, me)
    if not there:
        return [
            Finding(
                name,
                "warn",
                "it is in no server",
                "It only hears people who share a server with it.",
                f"Open {invite}",
                (invite,),
            )
        ]
    lacking = [(guild, missing) for guild in there if (missing := _missing(guild))]
    count = f"in {len(there)} server{'s' if len(there) > 1 else ''}"
    if not lacking:
        return [Finding(name, "ok", f"{count}, with the permissions it needs (channels may take some away)")]
    more = len(lacking) - SHOWN
    return [
        Finding(
            name, "ok", f"{count}; {len(lacking)} of them lack{'s' if len(lacking) == 1 else ''} something"
        ),
        *(_lacks(guild, missing, invite) for guild, missing in lacking[:SHOWN]),
        *([Finding(name, "warn", f"and {more} more servers lack permissions")] if more > 0 else []),
    ]


def _lacks(guild: Mapping[str, JsonValue], missing: list[str], invite: str) -> Finding:
    words = ", ".join(name.replace("_", " ").title() for name in missing)
    return Finding(
        f"discord.servers.{guild.get('id')}",
        "warn",
        f"{str(guild.get('name'))[:60]}: lacks {words}",
        "What needs these does not work there.",
        f"Give them to the bot's role, or open {invite}",
        (str(guild.get("id")), str(guild.get("name"))[:60], invite),
    )


def _missing(guild: Mapping[str, JsonValue]) -> list[str]:
    """Return the permissions that lack; Discord's number holds what the roles give, without the channels' changes."""
    try:
        has = discord.Permissions(int(str(guild.get("permissions"))))
    except ValueError:
        return []
    if has.administrator or guild.get("owner") is True:
        return []
    return [name for name, needed in NEEDED if needed and not getattr(has, name)]


def _invite(application: Answer | PostFailed, me: Answer) -> str:
    told = me.fields.get("id") if isinstance(application, PostFailed) else application.fields.get("id")
    return discord.utils.oauth_url(str(told), permissions=NEEDED, scopes=("bot", "applications.commands"))


async def _post(api: Api, channel: str) -> Finding:
    name = "discord.post"
    body: JsonValue = {"content": TEST, "flags": SILENT, "allowed_mentions": {"parse": []}}
    if not channel.isdecimal():
        found = f"{channel[:40]!r} is no channel's id"
        fix = "Give the number: Discord, Advanced, Developer Mode; then Copy Channel ID."
        return Finding(name, "fail", found, "Nothing was posted.", fix)
    posted = await api.ask(f"/channels/{channel}/messages", "POST", body)
    if isinstance(posted, PostFailed):
        fix = "Give the bot's role View Channel and Send Messages there, or name another channel."
        return failed(name, posted, "It cannot answer there.", fix)
    gone = await api.ask(f"/channels/{channel}/messages/{posted.fields.get('id')}", "DELETE")
    if isinstance(gone, PostFailed):
        return Finding(
            name, "warn", f"posted; not deleted ({gone})", "The test stays there.", "Delete it by hand."
        )
    return Finding(name, "ok", f"posted in {channel} and deleted", names=(channel,))
