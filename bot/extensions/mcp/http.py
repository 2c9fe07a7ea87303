"""The wire to a server that has an address: streamable HTTP. No body is read without a bound.

The SDK follows a redirect only within the address's own origin. A compressed answer is not read: we ask for none, and
a few bytes may be a bomb. Proxies of the environment are used, but not for loopback.

A server that was deployed anew does not know the session any more, and says so in many ways. The SDK knows one of
them, and takes the others for the answer to the call. Each becomes one error of the protocol, with the code
`NOT_RUN`: the request was refused before anything was done for it.

| a request of an open session meets                                   | it is  |
|----------------------------------------------------------------------|--------|
| a JSON-RPC error about the method or its parameters                  | told   |
| another refusal whose words are those of `LOST`                      | lost   |
| 404 or 410                                                           | lost   |
| 401 or 403, once a sign-in has had its try                           | lost   |
| any other refusal                                                    | told   |
| no connection                                                        | lost   |
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client
from mcp.shared.inbound import MCP_METHOD_HEADER, MCP_PROTOCOL_VERSION_HEADER
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND
from pydantic_core import from_json

from bot.extensions.mcp.connection import MAX_MESSAGE
from bot.extensions.mcp.json_text import repair

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams  # private, but only a type

Guard = Callable[[httpx2.Request], Awaitable[None]]

LOOPBACK = ("all://localhost", "all://127.0.0.1", "all://[::1]")
READ_S = 300.0
"""Seconds between two pieces of an answer. The deadline of a call is shorter."""
NOT_RUN = -32_950
"""Our code, in no range of the protocol's, for a request that was refused before anything was done for it."""
LOST = re.compile(
    r"session[\s_-]*(?:id)?\b.{0,40}?\b(?:not found|unknown|invalid|expired|terminated|closed|missing|required|lost|"
    r"does(?:n't| not) exist|no longer)"
    r"|(?:no|not|unknown|invalid|expired|missing|stale|find|valid)\b.{0,20}?\bsession\b"
    r"|\b(?:server|session) (?:is )?(?:not|has not been) initiali[sz]ed|before initiali[sz]ation"
    r"|send initiali[sz]e first",
    re.IGNORECASE | re.DOTALL,
)
"""How servers say that they do not know a session. Sources: the Python, TypeScript, Rust, Go, Java, C# and Swift SDKs
of the protocol, mcp-go, and the reports python-sdk 3556, typescript-sdk 389 and 1476, rust-sdk 559, keryx 503."""
FORGOTTEN = "it has forgotten the session"
MAX_SEARCHED = 4000
"""Bytes of a refusal that are searched."""


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
    return _Client(
        headers={**headers, "accept-encoding": "identity"},
        timeout=httpx2.Timeout(30, connect=5, read=READ_S),
        auth=auth,
        event_hooks={"request": [guard] if guard else [], "response": [_bound]},
        mounts=dict.fromkeys(LOOPBACK),
    )


class _Client(httpx2.AsyncClient):
    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request; a refusal of one that belongs to a lost session becomes `NOT_RUN`."""
        if not _is_open(request):
            return await super().send(request, **options)
        if request.method == "GET":  # it waits for what the server may say some day
            request.extensions["timeout"] = {**self.timeout.as_dict(), "read": None}
            return await super().send(request, **options)
        try:
            response = await super().send(request, **options)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout):
            return _error(request, NOT_RUN, "it cannot be reached")
        return response if response.status_code < 400 else await _translated(request, response)


async def _translated(request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
    """Return the refusal of a request as a JSON-RPC error."""
    try:
        text = (await response.aread())[:MAX_SEARCHED].decode("utf-8", "replace")
    finally:
        await response.aclose()
    code = _code(text)
    if why := _why_lost(response.status_code, code, text):
        return _error(request, NOT_RUN, why)
    if code is not None:
        return response
    may_have_run = "; the call may or may not have worked" if response.status_code >= 500 else ""
    return _error(request, INTERNAL_ERROR, f"HTTP {response.status_code}{may_have_run}")


def _is_open(request: httpx2.Request) -> bool:
    """Return whether a request belongs to a session that has begun."""
    versioned = MCP_PROTOCOL_VERSION_HEADER in request.headers
    return MCP_SESSION_ID in request.headers or (
        versioned and request.headers.get(MCP_METHOD_HEADER) != "server/discover"
    )


def _code(text: str) -> object:
    """Return the code of a JSON-RPC error, None if the text is no such error."""
    try:
        return from_json(text)["error"]["code"]
    except (ValueError, TypeError, KeyError):
        return None


def _why_lost(status: int, code: object, text: str) -> str:
    """Return in our own words how a refusal says that the session is lost, or ""."""
    if code in (METHOD_NOT_FOUND, INVALID_PARAMS):
        return ""
    if LOST.search(text):
        return FORGOTTEN
    if status in (401, 403):
        return f"it refused the session with HTTP {status}"
    return FORGOTTEN if status in (404, 410) else ""


def _error(request: httpx2.Request, code: int, message: str) -> httpx2.Response:
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}
    return httpx2.Response(400, json=error, request=request)


async def _bound(response: httpx2.Response) -> None:
    """Bound a body before it is read, and repair its text; a hook of the client."""
    stream = response.stream
    if not isinstance(stream, httpx2.AsyncByteStream):
        return
    if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
        await stream.aclose()
        raise httpx2.DecodingError("the answer is compressed, which was not asked for")
    is_stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")
    response.stream = _Repaired(stream, by_line=is_stream)


class _Repaired(httpx2.AsyncByteStream):
    """A body whose text is repaired: as a whole, or line by line. The SDK bounds each event of an event stream."""

    def __init__(self, stream: httpx2.AsyncByteStream, *, by_line: bool) -> None:
        self._stream, self._by_line = stream, by_line

    async def __aiter__(self) -> AsyncIterator[bytes]:
        held: list[bytes] = []
        size = 0
        async for piece in self._stream:
            end = 1 + max(piece.rfind(b"\n"), piece.rfind(b"\r")) if self._by_line else 0
            if end:
                yield repair(b"".join([*held, piece[:end]]))
                held, size = [], 0
            held.append(piece[end:])
            size += len(piece) - end
            if size > MAX_MESSAGE:
                raise httpx2.StreamError(f"the answer is larger than {MAX_MESSAGE} bytes")
        yield repair(b"".join(held))

    async def aclose(self) -> None:
        await self._stream.aclose()
