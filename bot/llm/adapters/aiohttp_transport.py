"""Carries requests over aiohttp, whose parser and connections take a third of the CPU of httpx2's own.

Errors are aiohttp's. The SDKs have such a transport each, which takes a server that hangs up for a time-out of
connecting: a call that may have cost something would count as free.
"""

from __future__ import annotations

import ssl
from functools import partial

import aiohttp
import httpx2
from yarl import URL

from bot.llm.adapters.body_limit import Bounded
from bot.llm.adapters.http_client import Answer, Post


class AiohttpTransport(httpx2.AsyncBaseTransport):
    """Direct connections, without a proxy; bodies are bounded."""

    def __init__(self, tls: ssl.SSLContext | None, connections: int, keepalive_s: float) -> None:
        self._connect = partial(
            aiohttp.TCPConnector, limit=connections, keepalive_timeout=keepalive_s, ssl=tls or True
        )
        self._session: aiohttp.ClientSession | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        post = Post(str(request.url), request.headers, await request.aread(), request.extensions)
        answer = await self.send(post, request.method)
        return httpx2.Response(answer.status, headers=answer.headers, stream=answer.body)

    async def send(self, post: Post, method: str = "POST") -> Answer:
        """Send without httpx2's request and response, which take as much CPU as aiohttp."""
        if self._session is None:  # here: it belongs to an event loop
            self._session = aiohttp.ClientSession(
                connector=self._connect(), cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
            )
        wait = post.extensions["timeout"]
        response = await self._session.request(
            method,
            URL(post.url, encoded=True),
            headers=post.headers,
            data=post.body or None,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(None, wait["pool"], wait["read"], wait["connect"]),
        )
        headers = {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in response.raw_headers}
        label = headers.pop("content-encoding", "")
        body = Bounded(response.content.iter_any(), response.release, response.status, label)
        return Answer(response.status, headers, body)

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()
