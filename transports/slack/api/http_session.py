"""The HTTP session under the Web API: which hosts it reaches, and how much it reads. The SDK has no bounds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from yarl import URL

from transports.shared.link.proxy import is_trusted

TOTAL_S, CONNECT_S = 30.0, 5.0

HOSTS = ("slack.com", "slack-files.com", "slack-edge.com", "slack-gov.com")
"""Where Slack keeps files, with all that is below them."""

MAX_ANSWER = 16_000_000
"""Bytes of an unpacked answer; 200 messages with all their blocks are a few millions."""


class Moved(aiohttp.ClientError):
    """The API answered with a redirect, which is not followed."""


class _Answer(aiohttp.ClientResponse):
    """A response with a bound on `read`; a download reads ``content`` and has its own bound."""

    async def read(self) -> bytes:
        if self._body is None:
            body = bytearray()
            async for piece in self.content.iter_any():
                body += piece
                if len(body) > MAX_ANSWER:
                    self.close()
                    raise aiohttp.ClientPayloadError(f"an answer of more than {MAX_ANSWER} bytes")
            self._body = bytes(body)
        return await super().read()


@asynccontextmanager
async def open_session(base_url: str) -> AsyncIterator[aiohttp.ClientSession]:
    """Open the session for the API at *base_url*, for uploads and for downloads.

    A redirect of the API is an error: a chat's text goes to the configured host only.
    """
    base = URL(base_url)

    async def stay(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        response = await send(request)
        url = request.url
        if response.status // 100 == 3 and url.origin() == base.origin() and url.path.startswith(base.path):
            response.close()
            raise Moved(f"redirected with {response.status}")
        return response

    async with aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=TOTAL_S, sock_connect=CONNECT_S),
        response_class=_Answer,
        middlewares=(stay,),
        cookie_jar=aiohttp.DummyCookieJar(),
    ) as session:
        yield session


def trusted(url: URL, own: URL | None) -> bool:
    """Return whether *url* is Slack's, so that the token may be shown there."""
    host = url.host or ""
    return is_trusted(url, own, known_host=any(host == name or host.endswith(f".{name}") for name in HOSTS))
