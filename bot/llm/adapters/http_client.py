"""The HTTP client of all providers: they share its connections and its TLS context.

It uses the proxies and certificates of the environment, because a company network may need them, but never a proxy
for loopback. Where there is no proxy it connects by `aiohttp_transport`, which costs less. It follows no redirects:
the text of a chat goes to the configured host only. `body_limit` limits every body.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.request import getproxies

import anyio

if TYPE_CHECKING:
    import httpx2

    from bot.llm.adapters.aiohttp_transport import AiohttpTransport

CLOSE_WITHIN_S = 5.0
LOOPBACK = ("all://localhost", "all://127.0.0.1", "all://[::1]")


class Post(NamedTuple):
    """A body, and where to post it; ``extensions`` are those of httpx2, with the timeouts."""

    url: str
    headers: Mapping[str, str]
    body: bytes
    extensions: Mapping[str, Any]


class Answer(NamedTuple):
    """A response. The names of its headers are lower case, and its body is still to be read and closed."""

    status: int
    headers: Mapping[str, str]
    body: httpx2.AsyncByteStream


class SharedHttp:
    """Calling it returns the client, which is made at first use, in any thread. *ca_file*: see `Settings.ca_file`."""

    def __init__(self, ca_file: Path | None = None) -> None:
        self._lock, self._ca_file = threading.Lock(), ca_file
        self._client: httpx2.AsyncClient | None = None
        self._direct: AiohttpTransport | None = None

    def __call__(self) -> httpx2.AsyncClient:
        with self._lock:
            if self._client is None:
                self._client, self._direct = open_http(self._ca_file)
            return self._client

    async def send(self, post: Post) -> Answer:
        """Return the response. Where there is no proxy the client is left out: all that it does costs time."""
        client = self()
        if self._direct is not None:
            return await self._direct.send(post)

        import httpx2  # noqa: PLC0415

        url, headers, body, extensions = post
        request = httpx2.Request("POST", url, headers=headers, content=body, extensions=dict(extensions))
        response = await client.send(request, stream=True)
        return Answer(response.status_code, response.headers, cast("httpx2.AsyncByteStream", response.stream))

    async def aclose(self) -> None:
        """Close all connections; a later call makes a new client."""
        client, self._client = self._client, None
        if client is not None:
            with anyio.move_on_after(CLOSE_WITHIN_S, shield=True):
                await client.aclose()


def open_http(ca_file: Path | None) -> tuple[httpx2.AsyncClient, AiohttpTransport | None]:
    """Return a client for 2,000 streams, and its transport where there is no proxy.

    Idle connections live 120 s, so that most turns need no TLS handshake. Raises `ConfigInvalid` for a *ca_file* that
    cannot be read.
    """
    import httpx2  # noqa: PLC0415

    from bot.config.network import tls_context  # noqa: PLC0415
    from bot.llm.adapters.aiohttp_transport import AiohttpTransport  # noqa: PLC0415
    from bot.llm.adapters.body_limit import bound  # noqa: PLC0415

    tls = tls_context(ca_file)
    has_proxy = bool(getproxies().keys() - {"no"})
    direct = None if has_proxy else AiohttpTransport(tls, connections=2000, keepalive_s=120)
    client = httpx2.AsyncClient(
        transport=direct,
        verify=tls or True,
        limits=httpx2.Limits(max_connections=2000, max_keepalive_connections=200, keepalive_expiry=120),
        timeout=httpx2.Timeout(600, connect=5, read=300, write=30, pool=10),
        follow_redirects=False,
        headers={"accept-encoding": "identity"},
        event_hooks={"response": [] if direct else [bound]},
        mounts=dict.fromkeys(LOOPBACK),
    )
    return client, direct
