"""The wire to a server that has an address: streamable HTTP. No body is read without a bound.

The SDK follows a redirect only within the address's own origin. A compressed answer is not read: we ask for none, and
a few bytes may be a bomb. Proxies of the environment are used, but not for loopback.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import httpx2
from mcp.client.streamable_http import streamable_http_client

from bot.tools.mcp.connection import MAX_MESSAGE

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams  # private, but only a type

Guard = Callable[[httpx2.Request], Awaitable[None]]

LOOPBACK = ("all://localhost", "all://127.0.0.1", "all://[::1]")
READ_S = 300.0
"""Seconds between two pieces of an answer. The deadline of a call is shorter."""


@asynccontextmanager
async def http(
    url: str, headers: Mapping[str, str], auth: httpx2.Auth | None = None, guard: Guard | None = None
) -> AsyncIterator[TransportStreams]:
    """Yield the streams of a session with the server at *url*. Raises httpx2's errors, maybe within a group.

    *guard* is called before each request; with *auth*, some go to other servers.
    """
    async with (
        client(headers, auth, guard) as requests,
        streamable_http_client(url, http_client=requests, max_sse_event_size=MAX_MESSAGE) as streams,
    ):
        yield streams


def client(headers: Mapping[str, str], auth: httpx2.Auth | None, guard: Guard | None) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        headers={**headers, "accept-encoding": "identity"},
        timeout=httpx2.Timeout(30, connect=5, read=READ_S),
        auth=auth,
        event_hooks={"request": [guard] if guard else [], "response": [_bound]},
        mounts=dict.fromkeys(LOOPBACK),
    )


async def _bound(response: httpx2.Response) -> None:
    """Bound a body before it is read; a hook of the client."""
    stream = response.stream
    if not isinstance(stream, httpx2.AsyncByteStream):
        return
    if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
        await stream.aclose()
        raise httpx2.DecodingError("the answer is compressed, which was not asked for")
    if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
        response.stream = _Bounded(stream)  # the SDK bounds each event of an event stream


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for piece in self._stream:
            size += len(piece)
            if size > MAX_MESSAGE:
                raise httpx2.StreamError(f"the answer is larger than {MAX_MESSAGE} bytes")
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()
