"""discord.py's client as both doors use it: REST, which is only logged in, and the gateway.

What is set here and why: no cache of messages or members (we keep our own), no pings whatever a model writes, no
voice. A request takes seconds, not the five minutes of aiohttp, and follows no redirect: what is said in a chat goes
to the configured host and to no other. Every answer counts for how we stand with Discord.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import aiohttp
import anyio
import discord
from discord.http import HTTPClient, Route

from transports.discord.wire.standing import Standing
from transports.proxy import proxy_for

REQUEST = aiohttp.ClientTimeout(total=15.0, sock_connect=5.0)
UPLOAD = aiohttp.ClientTimeout(total=240.0, sock_connect=5.0)

DISCORD = Route.BASE

on_sent: ContextVar[Callable[[], None] | None] = ContextVar("on_sent", default=None)
"""Called in the task of a call each time that one of its requests goes out."""


class Client(discord.Client):
    """A client of the library; *url* is where it will go, by which its proxy is chosen."""

    def __init__(self, url: str, standing: Standing, **options: Any) -> None:
        be_quiet()
        intents = discord.Intents.default()
        intents.message_content = True
        super().__init__(
            intents=intents,
            max_messages=None,
            chunk_guilds_at_startup=False,
            member_cache_flags=discord.MemberCacheFlags.none(),
            allowed_mentions=discord.AllowedMentions.none(),
            proxy=proxy_for(url),
            http_trace=_trace(standing),
            **options,
        )
        _bound(self.http)


def be_quiet() -> None:
    """Keep the library's warnings and no more: below, it logs what people say, and tokens of interactions."""
    discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False
    logging.getLogger("discord").setLevel(logging.WARNING)
    reconnects = logging.getLogger("discord.client")
    if _plainly not in reconnects.filters:
        reconnects.addFilter(_plainly)


def _plainly(record: logging.LogRecord) -> bool:
    """Make a warning of one line of a reconnect, which the library logs as an error with its traceback."""
    if str(record.msg).startswith("Attempting a reconnect"):
        why = record.exc_info[0] if record.exc_info else None
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        record.msg = f"{record.msg} ({why.__name__ if why else 'no reason'})"
        record.exc_info = record.exc_text = None
    return True


def _bound(http: HTTPClient) -> None:
    """Give every request of *http* a time limit, and no way to another host."""
    request = http.request

    async def bounded(route: Route, **arguments: Any) -> Any:
        timeout = UPLOAD if arguments.get("files") else REQUEST
        return await request(route, timeout=timeout, allow_redirects=False, **arguments)

    http.request = bounded  # type: ignore[method-assign]  # its session cannot be reached from outside


def _trace(standing: Standing) -> aiohttp.TraceConfig:
    async def sent(
        _session: aiohttp.ClientSession,
        _context: SimpleNamespace,
        _params: aiohttp.TraceRequestHeadersSentParams,
    ) -> None:
        if tell := on_sent.get():
            tell()

    async def answered(
        _session: aiohttp.ClientSession, _context: SimpleNamespace, params: aiohttp.TraceRequestEndParams
    ) -> None:
        response = params.response
        shared = response.headers.get("X-RateLimit-Scope") == "shared"
        standing.answered(anyio.current_time(), response.status, shared=shared)

    trace = aiohttp.TraceConfig()
    trace.on_request_headers_sent.append(sent)
    trace.on_request_end.append(answered)
    return trace
