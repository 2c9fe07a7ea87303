"""Checks Discord with the settings, one finding after another.

Not through the library: it sleeps through limits and retries for half a minute, and a person is waiting.
API: https://docs.discord.com/developers/reference
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Literal

import aiohttp
import anyio
import discord
from pydantic import JsonValue
from yarl import URL

from threads.errors import PostFailed, TransportRateLimited, TransportRejected, TransportUnavailable
from threads.model import WallClock
from transports.discord.api.gateway_link import FATAL, GATEWAY
from transports.discord.api.options import Options
from transports.discord.api.sdk import DISCORD
from transports.discord.events.gateway_session import NEEDED, invite_url
from transports.discord.events.slash_commands import ASK_NAME
from transports.shared.checks import (
    REACH,
    TEST,
    WITHIN_S,
    Finding,
    clock,
    describe_failure,
    failed_call,
    posted,
    proxy,
    try_socket,
    utc_now,
)
from transports.shared.link.proxy import proxy_for
from transports.shared.retry import retry_seconds

PORTAL = "At discord.com/developers/applications, your application, Bot:"
NEW_TOKEN = f"{PORTAL} Reset Token, and set the new one."
TICK = f'{PORTAL} tick "Message Content Intent".'
CANNOT_ANSWER = "It can neither answer nor read in Discord."
CANNOT_READ = "It receives nothing from Discord."

MESSAGE_CONTENT = 1 << 18 | 1 << 19
"""Flags of an application: the intent was granted, or is ticked (which is enough in up to 100 servers)."""

SESSION = "discord.session"
FEW_SESSIONS = 50
MOST_BYTES = 2_000_000
"""Of one answer."""
MAX_SERVERS = 5
"""Servers without a needed permission that get a finding of their own."""

SILENT = 1 << 12
"""The flag of a message that notifies nobody."""


async def check_discord(
    options: Options, *, running: bool = False, post_in: str = "", now: WallClock = utc_now
) -> AsyncGenerator[Finding, None]:
    """Yield each finding as it is made, after a few seconds at most. Raises nothing.

    *running*: a bot is connected with this token now, so no session is begun. *post_in*: a channel for a test post.
    Close it (`contextlib.aclosing`) if it is not read to its end.
    """
    base = options.api_base_url or DISCORD
    if finding := proxy("discord.proxy", base):
        yield finding
    timeout = aiohttp.ClientTimeout(total=2 * WITHIN_S)
    async with aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session:
        api = ProbeApi(session, base, options.token)
        me = await api.ask("/users/@me")
        yield _token(me, options.token)
        if isinstance(me, PostFailed):
            return
        if finding := clock("discord.clock", me.date, now(), options.max_age_s):
            yield finding
        application = await api.ask("/applications/@me")
        yield _intents(application)
        limit = await api.ask("/gateway/bot")
        yield _gateway(limit)
        if not running and _sessions_left(limit) >= FEW_SESSIONS:
            yield await _session(session, options)
        if options.ask_shortcut:
            id_ = application.fields.get("id") if isinstance(application, Answer) else None
            yield _shortcut(await api.ask(f"/applications/{id_}/commands"))
        for finding in _servers(await api.ask("/users/@me/guilds?limit=200"), application, me):
            yield finding
        if post_in:
            yield await _post(api, post_in)


def _token(me: Answer | PostFailed, token: str) -> Finding:
    name = "discord.token"
    match me:
        case BadToken():
            form = "" if token.count(".") == 2 else "; a bot token has three parts, with a dot between them"
            return Finding(name, "fail", f"{me}{form}", CANNOT_ANSWER, NEW_TOKEN)
        case PostFailed():
            return failed_call(name, me, CANNOT_ANSWER)
    fields = me.fields
    names = str(fields.get("username")), str(fields.get("id"))
    account = f"{names[0]} ({names[1]})"
    if not isinstance(fields.get("id"), str):
        return Finding(name, "fail", "the answer is not from Discord", CANNOT_ANSWER, REACH)
    if fields.get("bot") is not True:
        found = f"this token is a person's ({account}), not a bot's"
        return Finding(name, "fail", found, CANNOT_ANSWER, NEW_TOKEN, names)
    return Finding(name, "ok", account, names=names)


def _intents(application: Answer | PostFailed) -> Finding:
    name = "discord.intents"
    if isinstance(application, PostFailed):
        return failed_call(name, application, "Whether it may read messages is not known.")
    flags = application.fields.get("flags")
    if isinstance(flags, int) and flags & MESSAGE_CONTENT:
        return Finding(name, "ok", "Message Content is ticked")
    meaning = "Discord ends every session of the bot at once."
    return Finding(name, "fail", "Message Content Intent is not ticked", meaning, TICK)


def _shortcut(commands: Answer | PostFailed) -> Finding:
    name, meaning = "discord.shortcut", f"Messages have no *{ASK_NAME}* in their menu."
    if isinstance(commands, PostFailed):
        return failed_call(name, commands, meaning)
    known = commands.body if isinstance(commands.body, list) else []
    if any(isinstance(one, dict) and one.get("name") == ASK_NAME for one in known):
        return Finding(name, "ok", "the menu of messages has it")
    return Finding(name, "warn", "not registered yet", meaning, "Start the bot: it registers its commands.")


def _limit(answer: Answer | PostFailed) -> Mapping[str, JsonValue]:
    limit = None if isinstance(answer, PostFailed) else answer.fields.get("session_start_limit")
    return limit if isinstance(limit, dict) else {}


def _sessions_left(answer: Answer | PostFailed) -> int:
    left = _limit(answer).get("remaining")
    return left if isinstance(left, int) else 0


def _gateway(answer: Answer | PostFailed) -> Finding:
    name = "discord.gateway"
    if isinstance(answer, PostFailed):
        return failed_call(name, answer, CANNOT_READ)
    if not _limit(answer):
        found = "Discord did not say how many sessions may begin"
        return Finding(
            name, "fail", found, "The answer may not be from Discord; no session was begun.", REACH
        )
    left, limit = _sessions_left(answer), _limit(answer)
    total, reset = limit.get("total"), limit.get("reset_after")
    found = f"{left} of {total} sessions left today"
    if left >= FEW_SESSIONS:
        return Finding(name, "ok", found)
    hours = f" in {reset / 3_600_000:.0f} h" if isinstance(reset, int) else ""
    meaning = "Something begins sessions again and again; Discord resets the token of a bot that uses up all."
    fix = f"Stop other programs that use this token. The count begins anew{hours}."
    return Finding(name, "warn" if left else "fail", f"{found}; this check began none", meaning, fix)


async def _session(session: aiohttp.ClientSession, options: Options) -> Finding:
    """Begin a session, wait for READY, and end it."""
    gateway = URL(options.gateway_url) if options.gateway_url else GATEWAY
    url = str(gateway.update_query(v="10", encoding="json"))
    return await try_socket(SESSION, session, url, partial(_identify, options.token.strip()), CANNOT_READ)


async def _identify(token: str, socket: aiohttp.ClientWebSocketResponse) -> Finding:
    intents = discord.Intents.default()
    intents.message_content = True
    system = {"os": sys.platform, "browser": "threadfast", "device": "threadfast"}
    identify = {"token": token, "intents": intents.value, "properties": system}
    while True:
        frame = await socket.receive()
        if frame.type is not aiohttp.WSMsgType.TEXT:
            return _closed(socket.close_code)
        match json.loads(frame.data):
            case {"op": 10}:
                await socket.send_json({"op": 2, "d": identify})
            case {"op": 9}:
                found = "Discord did not begin a session now"
                return Finding(SESSION, "warn", found, CANNOT_READ, "Run this again in 5 s.")
            case {"t": "READY"}:
                return Finding(SESSION, "ok", "begun and ended")
            case _:
                continue


def _closed(code: int | None) -> Finding:
    match code:
        case 4004:
            found, fix = "Discord does not know this token", NEW_TOKEN
        case 4014:
            found, fix = "Discord ended the session: 4014, disallowed intents", TICK
        case int() if code in FATAL:
            found, fix = f"Discord ended the session with {code}", f"{FATAL[code]}."
        case _:
            found, fix = f"the session ended before it began ({code})", REACH
    return Finding(SESSION, "fail", found, CANNOT_READ, fix)


def _servers(guilds: Answer | PostFailed, application: Answer | PostFailed, me: Answer) -> list[Finding]:
    name = "discord.servers"
    if isinstance(guilds, PostFailed):
        return [failed_call(name, guilds, "Its servers are not known.")]
    entries = guilds.body if isinstance(guilds.body, list) else []
    servers = [guild for guild in entries if isinstance(guild, dict)]
    source = me if isinstance(application, PostFailed) else application
    invite = invite_url(str(source.fields.get("id")))
    if not servers:
        meaning = "Only people who share a server with it can reach it."
        return [Finding(name, "warn", "it is in no server", meaning, f"Open {invite}", (invite,))]
    incomplete = [(guild, missing) for guild in servers if (missing := _missing(guild))]
    count = f"in {len(servers)} server{'s' if len(servers) > 1 else ''}"
    if not incomplete:
        return [Finding(name, "ok", f"{count}, with the permissions it needs (channels may take some away)")]
    lacks = f"{count}; {len(incomplete)} of them lack{'s' if len(incomplete) == 1 else ''} something"
    findings = [Finding(name, "ok", lacks)]
    findings += [_lacks(guild, missing, invite) for guild, missing in incomplete[:MAX_SERVERS]]
    if (more := len(incomplete) - MAX_SERVERS) > 0:
        findings.append(Finding(name, "warn", f"and {more} more servers lack permissions"))
    return findings


def _lacks(guild: Mapping[str, JsonValue], missing: list[str], invite: str) -> Finding:
    words = ", ".join(name.replace("_", " ").title() for name in missing)
    id_, server = str(guild.get("id")), str(guild.get("name"))[:60]
    found, meaning = f"{server}: lacks {words}", "Features that need these do not work there."
    fix = f"Give them to the bot's role, or open {invite}"
    return Finding(f"discord.servers.{id_}", "warn", found, meaning, fix, (id_, server, invite))


def _missing(guild: Mapping[str, JsonValue]) -> list[str]:
    """Return the permissions that lack; Discord's number holds what the roles give, without the channels' changes."""
    try:
        has = discord.Permissions(int(str(guild.get("permissions"))))
    except ValueError:
        return []
    if has.administrator or guild.get("owner") is True:
        return []
    return [name for name, needed in NEEDED if needed and not getattr(has, name)]


async def _post(api: ProbeApi, channel: str) -> Finding:
    name = "discord.post"
    body: JsonValue = {"content": TEST, "flags": SILENT, "allowed_mentions": {"parse": []}}
    if not channel.isdecimal():
        found = f"{channel[:40]!r} is not a channel id"
        fix = "Give the number: Discord, Advanced, Developer Mode; then Copy Channel ID."
        return Finding(name, "fail", found, "Nothing was posted.", fix)
    message = await api.ask(f"/channels/{channel}/messages", "POST", body)
    if isinstance(message, PostFailed):
        fix = "Give the bot's role View Channel and Send Messages there, or name another channel."
        return failed_call(name, message, "It cannot answer there.", fix)
    deletion = await api.ask(f"/channels/{channel}/messages/{message.fields.get('id')}", "DELETE")
    return posted(name, channel, deletion)


class BadToken(TransportRejected):
    """401: Discord does not know the token."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A 2xx answer: its JSON, or None, and its Date header."""

    body: JsonValue
    date: str | None

    @property
    def fields(self) -> Mapping[str, JsonValue]:
        return self.body if isinstance(self.body, dict) else {}


class ProbeApi:
    """Calls of REST that are made once each: the library would sleep through limits and retry."""

    def __init__(self, session: aiohttp.ClientSession, base: str, token: str) -> None:
        self._session, self._base, self._token = session, base.rstrip("/"), token.strip()

    async def ask(
        self, path: str, method: Literal["GET", "POST", "DELETE"] = "GET", json: JsonValue = None
    ) -> Answer | PostFailed:
        """Make one call. Every failure comes back; nothing is raised but a cancellation."""
        headers = {
            "Authorization": f"Bot {self._token}",
            "User-Agent": f"DiscordBot (threadfast, {version('threadfast')})",
        }
        url = self._base + path
        try:
            with anyio.fail_after(WITHIN_S):
                async with self._session.request(
                    method, url, json=json, headers=headers, proxy=proxy_for(url), allow_redirects=False
                ) as answer:
                    body = b""
                    while not answer.content.at_eof() and len(body) < MOST_BYTES:
                        body += await answer.content.read(MOST_BYTES)
        except TimeoutError:
            return TransportUnavailable(f"{method} {path}: no answer within {WITHIN_S:.0f} s")
        except Exception as error:  # noqa: BLE001  the boundary of a check: every failure is a finding
            return TransportUnavailable(f"{method} {path}: {describe_failure(error)}")
        return _read(f"{method} {path}", answer, body)


def _read(call: str, answer: aiohttp.ClientResponse, body: bytes) -> Answer | PostFailed:
    try:
        content: JsonValue = json.loads(body) if body else None
    except ValueError:
        content = None
    fields = content if isinstance(content, dict) else {}
    match answer.status:
        case 200 | 204 if content is not None or answer.status == 204:
            return Answer(content, answer.headers.get("Date"))
        case 429 if "Via" not in answer.headers or not fields:
            return TransportUnavailable(
                f"{call}: Cloudflare has shut out this address for too many bad calls"
            )
        case 429:
            wait = fields.get("retry_after", answer.headers.get("Retry-After"))
            return TransportRateLimited(f"{call}: rate limited", retry_after=retry_seconds(str(wait)))
        case 401:
            return BadToken("Discord does not know this token")
        case 400 | 403 | 404 if fields:
            return TransportRejected(f"{call}: {fields.get('message')} ({fields.get('code')})")
        case status:
            return TransportUnavailable(f"{call}: status {status} and no answer of Discord's")
