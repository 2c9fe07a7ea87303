"""Carries httpx2's requests over aiohttp, whose parser and connections take a third of the CPU of httpx2's own.

Errors are aiohttp's. The SDKs have such a transport each, which takes a server that hangs up for a time-out of
connecting: a call that may have cost something would count as free.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from functools import partial

import aiohttp
import httpx2
from yarl import URL


class AiohttpTransport(httpx2.AsyncBaseTransport):
    """Direct connections, without a proxy."""

    def __init__(self, tls: ssl.SSLContext | None, connections: int, keepalive_s: float) -> None:
        self._connect = partial(
            aiohttp.TCPConnector, limit=connections, keepalive_timeout=keepalive_s, ssl=tls or True
        )
        self._session: aiohttp.ClientSession | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if self._session is None:  # here: it belongs to an event loop
            self._session = aiohttp.ClientSession(
                connector=self._connect(), cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
            )
        limits = request.extensions["timeout"]
        response = await self._session.request(
            request.method,
            URL(str(request.url), encoded=True),
            headers=request.headers.multi_items(),
            data=await request.aread() or None,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(
                connect=limits["pool"], sock_connect=limits["connect"], sock_read=limits["read"]
            ),
        )
        return httpx2.Response(response.status, headers=response.raw_headers, stream=_Body(response))

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()


class _Body(httpx2.AsyncByteStream):
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._response.content.iter_any()

    async def aclose(self) -> None:
        self._response.release()
