"""One page over HTTP, by GET, through the egress guard, with a bound on everything that a server decides.

| what a server may do             | bound                                                                        |
|----------------------------------|------------------------------------------------------------------------------|
| answer slowly, or drip           | `READ_S` between two pieces, and the caller's deadline over all              |
| send much, or inflate it         | `MAX_BYTES` after decompression, `MAX_WIRE` before; never more in memory     |
| send crumbs, or heads without end | `MAX_PIECES`, `MAX_HEAD`                                                     |
| redirect                         | `MAX_REDIRECTS` within one site, each checked anew; no way back from https   |
| lead to another site             | not followed but told: rules and permissions are by address                  |
| close early, or lie about length | what came is kept, and said to be incomplete                                 |

Every hop has a connection of its own, which the guard opens; nothing is sent that could identify anyone: no cookies,
no referrer, no credentials. This module is imported at the first use, see `bot.tools.web.tool`.
"""

from __future__ import annotations

import ssl
import zlib
from contextlib import aclosing

import anyio
import anyio.lowlevel
import httpcore2

from bot.guards.egress import Egress
from bot.guards.urls import DEFAULT_PORTS, Url, join_url
from bot.ports.errors import ToolDenied, ToolError, ToolTimeout
from bot.ports.tool import ErrorType, ItemError

from .guarded_network import CLOSE_S, MAX_WIRE, GuardedBackend
from .response import Response

MAX_BYTES = 5_000_000
MAX_PIECES = 50_000
"""Chunks of one body, 100 bytes each in the largest: crumbs cost 20 microseconds apiece, whatever is in them."""

MAX_REDIRECTS = 5
READ_S = 15.0
REDIRECTS = frozenset({301, 302, 303, 307, 308})
BROKEN = "The connection broke off: this is only the beginning."
LATE = "The server took too long: this is only the beginning."
LARGE = f"The page is larger than {MAX_BYTES // 1_000_000} MB: this is only the beginning."

_ACCEPT = (
    b"text/markdown, text/html;q=0.9, application/json;q=0.9, text/*;q=0.8, application/pdf;q=0.8, */*;q=0.5"
)
_TIMEOUTS = {"timeout": {"connect": READ_S, "read": READ_S, "write": READ_S}}


async def get(egress: Egress, tls: ssl.SSLContext, agent: str, url: Url, deadline: float) -> Response:
    """Fetch a page; *deadline* is on anyio's clock.

    Raises `ToolDenied` for what may not be reached, `ToolNotFound` for a host that is not there, `ToolTimeout`, and
    `ToolError` for a server that makes no sense.
    """
    for _ in range(MAX_REDIRECTS + 1):
        answer = await _hop(egress, tls, agent, url, deadline)
        if answer.status not in REDIRECTS or not answer.location:
            return answer
        target = egress.check(str(join_url(url, answer.location)))
        if url.scheme == "https" and target.scheme == "http":
            raise ToolDenied(
                f"{url.host} redirects to an address without encryption.", suggestion="Try another source."
            )
        if not _one_site(url, target):
            answer.moved = target
            return answer
        url = target
    raise ToolError(f"{url.host} redirects without end.", suggestion="Try another source.")


def _one_site(old: Url, new: Url) -> bool:
    """Return whether both have one host, but for a "www.", on one port or the usual ones."""
    usual = all(url.port == DEFAULT_PORTS[url.scheme] for url in (old, new))
    return old.host.removeprefix("www.") == new.host.removeprefix("www.") and (usual or old.port == new.port)


async def _hop(egress: Egress, tls: ssl.SSLContext, agent: str, url: Url, deadline: float) -> Response:
    answer = Response(url)
    try:
        with anyio.fail_after(max(0.0, deadline - anyio.current_time())):
            await _exchange(egress, tls, agent, answer)
    except (TimeoutError, httpcore2.TimeoutException):
        _keep(
            answer, LATE, ToolTimeout(f"{url.host} did not answer in time.", suggestion="Try another source.")
        )
    except (httpcore2.NetworkError, httpcore2.ProtocolError, zlib.error):
        _keep(
            answer, BROKEN, ToolError(f"{url.host} gave no valid answer.", suggestion="Try another source.")
        )
    return answer


def _keep(answer: Response, missing: str, error: ToolError) -> None:
    """Keep the beginning if it can be read; raises *error* otherwise."""
    if not answer.data or not answer.is_text:
        raise error from None
    kind: ErrorType = "timeout" if isinstance(error, ToolTimeout) else "unknown"
    answer.missing = ItemError(str(answer.url), kind, missing)


async def _exchange(egress: Egress, tls: ssl.SSLContext, agent: str, answer: Response) -> None:
    url = answer.url
    connection = httpcore2.AsyncHTTPConnection(
        httpcore2.Origin(url.scheme.encode(), url.host.encode(), url.port),
        ssl_context=tls,
        network_backend=GuardedBackend(egress),
    )
    address = httpcore2.URL(scheme=url.scheme, host=url.host, port=url.port, target=url.target)
    headers = [
        (b"Host", url.authority.encode()),
        (b"User-Agent", agent.encode()),
        (b"Accept", _ACCEPT),
        (b"Accept-Encoding", b"gzip"),
        (b"Connection", b"close"),
    ]
    try:
        async with connection.stream("GET", address, headers=headers, extensions=_TIMEOUTS) as response:
            _head(answer, response)
            response.extensions["network_stream"].left = MAX_WIRE
            if 200 <= response.status < 300:
                await _body(answer, response)
    finally:
        with anyio.move_on_after(CLOSE_S, shield=True):
            await connection.aclose()


def _head(answer: Response, response: httpcore2.Response) -> None:
    found = {name.lower(): value for name, value in reversed(response.headers)}  # the first of each counts
    answer.status = response.status
    answer.media_type = found.get(b"content-type", b"")[:200].decode("ascii", "replace")
    answer.retry_after = found.get(b"retry-after", b"")[:40].decode("ascii", "replace")
    answer.location = found.get(b"location", b"").decode("utf-8", "replace")
    length = found.get(b"content-length", b"")
    answer.length = int(length) if length.isdigit() and len(length) < 19 else None


async def _body(answer: Response, response: httpcore2.Response) -> None:
    """Read the page into *answer*, piece by piece, so that a part of it is there whenever this ends."""
    if answer.length and answer.length > MAX_BYTES and not answer.is_text:
        raise _too_large(answer)
    encodings = [value for name, value in response.headers if name.lower() == b"content-encoding"]
    opened = _opened(answer.url, b",".join(encodings).strip().lower())
    answer.data = data = bytearray()
    async with aclosing(response.aiter_stream()) as pieces:
        left = MAX_PIECES
        async for piece in pieces:
            await anyio.lowlevel.checkpoint()
            left -= 1
            if not left:
                raise httpcore2.RemoteProtocolError("crumbs")
            data += opened.more(piece, MAX_BYTES + 1 - len(data))
            if len(data) > MAX_BYTES:
                _keep(answer, LARGE, _too_large(answer))
                del data[MAX_BYTES:]
                return
    if not opened.whole:
        raise httpcore2.RemoteProtocolError("compressed data without an end")


def _too_large(answer: Response) -> ToolError:
    size = f"{answer.length} bytes" if answer.length else f"more than {MAX_BYTES} bytes"
    return ToolError(
        f"{answer.url.host} has a file of {size} there; the most is {MAX_BYTES}.",
        suggestion="Look for a shorter version of it.",
    )


class _Plain:
    """A body that is not compressed."""

    whole = True

    def more(self, piece: bytes, room: int) -> bytes:
        return piece[:room]


class _Compressed:
    """A body in gzip or zlib's form, inflated no further than there is room."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)

    @property
    def whole(self) -> bool:
        return self._inflate.eof

    def more(self, piece: bytes, room: int) -> bytes:
        """Return at most *room* bytes; what is left over then is lost. Raises zlib.error."""
        return b"" if self._inflate.eof else self._inflate.decompress(piece, room)


def _opened(url: Url, encoding: bytes) -> _Plain | _Compressed:
    if encoding in (b"", b"identity"):
        return _Plain()
    if encoding in (b"gzip", b"x-gzip", b"deflate"):
        return _Compressed()
    raise ToolError(f"{url.host} sends the page compressed in a way that was not asked for.")
