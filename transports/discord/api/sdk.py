"""discord.py's client, as REST (only logged in) and the gateway use it.

It caches no messages or members, pings nobody, and has no voice. A request takes seconds, not the five minutes of
aiohttp, and follows no redirect: a chat's text goes to the configured host only. Every answer is counted in
`InvalidRequests`.

These undocumented parts of the library (2.7.1) are used; check them when it is updated.

| part                                                   | where        | why                                       |
|--------------------------------------------------------|--------------|-------------------------------------------|
| `HTTPClient.request`, replaced                         | sdk          | time limits, no redirects, no quotes, and |
|                                                        |              | another address, for each client alone    |
| `Route.url`; `Route.BASE`, read only                   | sdk          | another address                           |
| `AsyncWebhookAdapter.request`, `async_context`         | sdk          | the same for answers to interactions      |
| `DiscordWebSocket.DEFAULT_GATEWAY`, read only          | gateway      | the same for the gateway                  |
| `HTTPClient.ws_connect`, replaced; `HTTPClient.close`  | gateway      | what `Client.close` leaves open           |
| `KeepAliveHandler.ws._connection`, `_ready_task`       | gateway      | the same                                  |
| `before_identify_hook`, `dispatch`, overridden         | gateway      | one session a run; events in their order  |
| `_connection.parsers`, replaced                        | gateway      | one odd event must not end the session    |
| `_connection.create_message`, `logs_from`, `get_message` | rest       | one odd message must not hide the others  |
| `HTTPClient.start_thread_with_message`, `get_member`,  | rest         | by ids alone                              |
| `start_private_message`                                |              |                                           |
| `Member._roles`                                        | parse_message | `roles` knows those of cached guilds only |
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any, TypeVar

import aiohttp
import anyio
import discord
from discord.http import HTTPClient, Route
from discord.webhook.async_ import AsyncWebhookAdapter, async_context

from transports.discord.api.invalid_requests import InvalidRequests
from transports.discord.api.payloads import TEXT, Count, readable, uncounted
from transports.shared.link.proxy import proxy_for

REQUEST = aiohttp.ClientTimeout(total=15.0, sock_connect=5.0)
UPLOAD = aiohttp.ClientTimeout(total=240.0, sock_connect=5.0)

DISCORD = Route.BASE

T = TypeVar("T")

log = logging.getLogger(__name__)

on_sent: ContextVar[Callable[[], None] | None] = ContextVar("on_sent", default=None)
"""Called in the task of a call each time that one of its requests goes out."""


class Client(discord.Client):
    """A client of the library for the API at *api_url*; *proxied_url* chooses its proxy.

    It hears of reactions only with the option ``reactions``.
    """

    def __init__(
        self, api_url: str, proxied_url: str, invalid_requests: InvalidRequests, **options: Any
    ) -> None:
        be_quiet()
        intents = discord.Intents.default()
        intents.message_content, intents.reactions = True, options.pop("reactions", False)
        super().__init__(
            intents=intents,
            max_messages=None,
            chunk_guilds_at_startup=False,
            member_cache_flags=discord.MemberCacheFlags.none(),
            allowed_mentions=discord.AllowedMentions.none(),
            proxy=proxy_for(proxied_url),
            http_trace=_trace(invalid_requests),
            **options,
        )
        _bound(self.http, api_url)


def be_quiet() -> None:
    """Keep the library's warnings and no more: below, it logs what people say, and tokens of interactions."""
    discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False
    logging.getLogger("discord").setLevel(logging.WARNING)
    reconnects = logging.getLogger("discord.client")
    if _demote_reconnect not in reconnects.filters:
        reconnects.addFilter(_demote_reconnect)


def _demote_reconnect(record: logging.LogRecord) -> bool:
    """Turn the error with a traceback, which the library logs at each reconnect, into a warning of one line."""
    if str(record.msg).startswith("Attempting a reconnect"):
        why = record.exc_info[0] if record.exc_info else None
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        record.msg = f"{record.msg} ({why.__name__ if why else 'no reason'})"
        record.exc_info = record.exc_text = None
    return True


def _bound(http: HTTPClient, api_url: str) -> None:
    """Send every request of *http* to *api_url*, give it a time limit, and follow no redirect."""
    request = http.request

    async def bounded(route: Route, **arguments: Any) -> Any:
        _readdress(route, api_url)
        timeout = UPLOAD if arguments.get("files") else REQUEST
        answer = await request(route, timeout=timeout, allow_redirects=False, **arguments)
        if route.method in ("POST", "PATCH") and isinstance(answer, dict):
            # Somebody else's message: its odd fields must not fail a post of ours.
            answer.pop("referenced_message", None)
        return answer

    http.request = bounded  # type: ignore[method-assign]  # its session cannot be reached from outside


def _readdress(route: Route, api_url: str) -> None:
    route.url = api_url + route.url.removeprefix(Route.BASE)


class InteractionCalls(AsyncWebhookAdapter):
    """The library's calls that answer interactions, which do not go through its client, at *api_url*."""

    def __init__(self, api_url: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._api_url = api_url

    async def request(self, route: Route, session: aiohttp.ClientSession, **arguments: Any) -> Any:
        _readdress(route, self._api_url)
        return await super().request(route, session, **arguments)


@contextmanager
def interactions_through(calls: AsyncWebhookAdapter) -> Iterator[None]:
    """Answer interactions through *calls*, in the block and in tasks that begin there."""
    before = async_context.set(calls)
    try:
        yield
    finally:
        async_context.reset(before)


def _trace(invalid_requests: InvalidRequests) -> aiohttp.TraceConfig:
    async def sent(
        _session: aiohttp.ClientSession,
        _context: SimpleNamespace,
        _params: aiohttp.TraceRequestHeadersSentParams,
    ) -> None:
        if on_request := on_sent.get():
            on_request()

    async def answered(
        _session: aiohttp.ClientSession, _context: SimpleNamespace, params: aiohttp.TraceRequestEndParams
    ) -> None:
        response = params.response
        shared = response.headers.get("X-RateLimit-Scope") == "shared"
        invalid_requests.answered(anyio.current_time(), response.status, shared=shared)

    trace = aiohttp.TraceConfig()
    trace.on_request_headers_sent.append(sent)
    trace.on_request_end.append(answered)
    return trace


RICH = ("embeds", "components", "attachments", "poll", "sticker_items", "message_snapshots")
"""The parts of a message that have words beside its text, those first that are odd most often."""

LISTS = ("mentions", "mention_roles", "attachments", "embeds", "components")
"""The parts that the library needs."""


def read_message(read: Callable[[Any], T], data: Any, count: Count = uncounted) -> T | None:
    """Have the library read a message; one that it cannot read, without the parts that are odd.

    One odd field (of a poll, an embed, a sticker) must not hide a message, nor those after it. What is left out is
    said, as a component. Returns None if not even its author and text can be read.
    """
    for without, fields in _forms(data, count):
        try:
            found = read(fields)
        except Exception:  # the boundary of a transport: one odd message, and the next one is read
            level = logging.DEBUG if without else logging.ERROR
            log.log(level, "link.unreadable: a message cannot be read whole", exc_info=True)
        else:
            if without:
                count(f"message {without}")
            return found
    return None


def _forms(data: Any, count: Count) -> Iterator[tuple[str, Any]]:
    """Yield a message whole, then without one of its parts, which is named, then its author and text alone."""
    yield "", (whole := readable(data, count))
    held = [part for part in RICH if isinstance(data, dict) and data.get(part)]
    for part in held:
        others = {name: value for name, value in whole.items() if name != part}
        shown = others.get("components")
        components = shown if isinstance(shown, list) else []
        needed: dict[str, Any] = {part: []} if part in LISTS else {}
        yield part, {**others, **needed, "components": [*components, _left_out(part)]}
    yield "parts", _bare(data) | ({"components": [_left_out("parts")]} if held else {})


def _left_out(part: str) -> dict[str, Any]:
    return {"type": TEXT, "content": f"[the {part.replace('_', ' ')} of a message, which I cannot read]"}


def _bare(data: Any) -> dict[str, Any]:
    """Return a message's author and text, without files, mentions and embeds."""
    message = data if isinstance(data, dict) else {}
    author = message.get("author")
    person = author if isinstance(author, dict) else {}
    who = {"username": "", "discriminator": "0", "avatar": None} | {
        name: person[name] for name in ("id", "username", "bot") if name in person
    }
    nothing: dict[str, Any] = {name: [] for name in LISTS}
    names = (
        "id", "channel_id", "guild_id", "content", "type", "timestamp", "flags", "nonce", "webhook_id",
        "message_reference",
    )  # fmt: skip
    text = {name: message[name] for name in names if name in message}
    return {
        "edited_timestamp": None, "tts": False, "mention_everyone": False, "pinned": False,
        **nothing, **text, "author": who,
    }  # fmt: skip
