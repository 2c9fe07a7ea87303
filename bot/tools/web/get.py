"""One page over HTTP, by GET, through the egress guard, with a bound on everything that a server decides.

| what a server may do              | bound                                                                       |
|-----------------------------------|-----------------------------------------------------------------------------|
| answer slowly, or drip            | `READ_S` between two pieces, and the caller's deadline over all             |
| send much, or inflate it          | `MAX_BYTES` after decompression, `MAX_WIRE` before; never more in memory    |
| send tiny pieces, endless heads   | `MAX_PIECES`, `MAX_HEAD`                                                    |
| redirect                          | `MAX_REDIRECTS` within one site, each checked; no way back from https       |
| lead to another site              | reported, not followed: rules and permissions go by address                 |
| close early, or lie about length  | the beginning is kept, and marked as incomplete                             |

The guard opens a new connection for every hop. Nothing is sent that could identify anyone: no cookies, referrer or
credentials. `HttpClient` imports this module at the first use.
"""

from __future__ import annotations

import ssl
import zlib
from collections.abc import Mapping

import anyio
import anyio.lowlevel
import h11
from anyio.abc import ByteStream
from anyio.streams.tls import TLSStream

from bot.guards.egress import Egress
from bot.guards.urls import DEFAULT_PORTS, Url, join_url
from bot.ports.errors import ToolDenied, ToolError, ToolTimeout
from bot.ports.tool import ErrorType, ItemError

from .http_client import Response
from .http_peer import LOST, Peer

MAX_HEAD, MAX_WIRE = 150_000, 10_000_000
"""Bytes that are read before a response begins, and of all that a server sends."""

MAX_BYTES = 5_000_000
MAX_PIECES = 50_000
"""Chunks of one body, 100 bytes each in the largest: a chunk costs 20 microseconds, however small it is."""

MAX_REDIRECTS = 5
READ_S = 15.0
ELSEWHERE = "Try another source."
REDIRECTS = frozenset({301, 302, 303, 307, 308})
BROKEN = "The connection broke off: this is only the beginning."
LATE = "The server took too long: this is only the beginning."
LARGE = f"The page is larger than {MAX_BYTES // 1_000_000} MB: this is only the beginning."

_ACCEPT = (
    "text/markdown, text/html;q=0.9, application/json;q=0.9, text/*;q=0.8, application/pdf;q=0.8, */*;q=0.5"
)


async def get(egress: Egress, tls: ssl.SSLContext, agent: str, url: Url, deadline: float) -> Response:
    """Fetch a page; *deadline* is on anyio's clock.

    Raises `ToolDenied` for a forbidden address, `ToolNotFound` for an unknown host, `ToolTimeout`, and `ToolError`
    for an answer that is not valid.
    """
    for _ in range(MAX_REDIRECTS + 1):
        page = Response(url)
        try:
            with anyio.fail_after(max(0.0, deadline - anyio.current_time())):
                await exchange(egress, tls, page, {"User-Agent": agent, "Accept": _ACCEPT}, b"", READ_S)
        except TimeoutError:
            error = ToolTimeout(f"{url.host} did not answer in time.", suggestion=ELSEWHERE)
            _keep_beginning(page, LATE, error)
        except (*LOST, ssl.SSLError, h11.ProtocolError, zlib.error):
            _keep_beginning(
                page, BROKEN, ToolError(f"{url.host} gave no valid answer.", suggestion=ELSEWHERE)
            )
        if page.status not in REDIRECTS or not page.location:
            return page
        target = egress.check(str(join_url(url, page.location)))
        if url.scheme == "https" and target.scheme == "http":
            raise ToolDenied(f"{url.host} redirects to an address without encryption.", suggestion=ELSEWHERE)
        if not _same_site(url, target):
            page.moved = target
            return page
        url = target
    raise ToolError(f"{url.host} redirects without end.", suggestion=ELSEWHERE)


def _same_site(old: Url, new: Url) -> bool:
    """Return whether both have one host, but for a "www.", on one port or the usual ones."""
    usual = all(url.port == DEFAULT_PORTS[url.scheme] for url in (old, new))
    return old.host.removeprefix("www.") == new.host.removeprefix("www.") and (usual or old.port == new.port)


def _keep_beginning(page: Response, missing: str, error: ToolError) -> None:
    """Keep the beginning if it can be read; raises *error* otherwise."""
    if not page.data or not page.is_text:
        raise error from None
    kind: ErrorType = "timeout" if isinstance(error, ToolTimeout) else "unknown"
    page.missing = ItemError(str(page.url), kind, missing)


async def exchange(
    egress: Egress, tls: ssl.SSLContext, page: Response, sent: Mapping[str, str], data: bytes, head_s: float
) -> None:
    """Send a request with these headers, by POST if it has *data*, and read the answer into *page*.

    Its head may take *head_s*. Only a success is read beyond that. Raises what the guard raises, TimeoutError, and
    `http_peer.LOST`, `ssl.SSLError`, `h11.ProtocolError` and `zlib.error`.
    """
    url, method = page.url, "POST" if data else "GET"
    headers = {"Host": url.authority, **sent, "Accept-Encoding": "gzip", "Connection": "close"}
    with anyio.fail_after(READ_S):
        stream: ByteStream = await egress.open_connection(url.host, url.port)
    async with stream:
        with anyio.fail_after(READ_S):
            if url.scheme == "https":
                stream = await _encrypt(stream, tls, url.host)
            server = Peer(h11.Connection(h11.CLIENT, MAX_HEAD), stream)
            await server.send(h11.Request(method=method, target=url.target, headers=[*headers.items()]))
            await server.send(h11.Data(data=data))
            await server.send(h11.EndOfMessage())
        response = await _receive(server, MAX_HEAD, head_s)
        while isinstance(response, h11.InformationalResponse):
            response = await _receive(server, MAX_HEAD, head_s)
        if not isinstance(response, h11.Response):
            raise h11.RemoteProtocolError("no response")
        _read_head(page, response)
        if 200 <= page.status < 300:
            await _read_body(page, response, server)


async def _encrypt(stream: ByteStream, tls: ssl.SSLContext, host: str) -> ByteStream:
    try:
        return await TLSStream.wrap(stream, hostname=host, ssl_context=tls, standard_compatible=False)
    except ssl.SSLCertVerificationError as error:
        raise ToolError(f"The certificate of {host} is not valid.", suggestion=ELSEWHERE) from error


async def _receive(server: Peer, limit: int, wait_s: float = READ_S) -> h11.Event | None:
    """Return the next event; raises `h11.RemoteProtocolError` once the server has sent more than *limit* bytes."""
    with anyio.fail_after(wait_s):
        event = await server.receive()
    if server.received > limit:
        raise h11.RemoteProtocolError("too much")
    return event


def _read_head(page: Response, response: h11.Response) -> None:
    headers = dict(reversed(list(response.headers)))  # the first of each counts
    page.status = response.status_code
    page.media_type = headers.get(b"content-type", b"")[:200].decode("ascii", "replace")
    page.retry_after = headers.get(b"retry-after", b"")[:40].decode("ascii", "replace")
    page.location = headers.get(b"location", b"").decode("utf-8", "replace")
    length = headers.get(b"content-length", b"")
    page.length = int(length) if length.isdigit() and len(length) < 19 else None


async def _read_body(page: Response, response: h11.Response, server: Peer) -> None:
    """Read the page into *page*, piece by piece: whenever this ends, the pieces so far are there."""
    if page.length and page.length > MAX_BYTES and not page.is_text:
        raise _too_large(page)
    encodings = [value for name, value in response.headers if name == b"content-encoding"]
    inflater = _inflater(page.url, b",".join(encodings).strip().lower())
    page.data = data = bytearray()
    pieces = 0
    while isinstance(piece := await _receive(server, MAX_WIRE), h11.Data):
        await anyio.lowlevel.checkpoint()
        pieces += 1
        if pieces > MAX_PIECES:
            raise h11.RemoteProtocolError("too many pieces")
        room = MAX_BYTES + 1 - len(data)
        if inflater is None:
            data += piece.data[:room]
        elif not inflater.eof:
            data += inflater.decompress(piece.data, room)
        if len(data) > MAX_BYTES:
            _keep_beginning(page, LARGE, _too_large(page))
            del data[MAX_BYTES:]
            return
    if inflater and not inflater.eof:
        raise h11.RemoteProtocolError("compressed data without an end")


def _too_large(page: Response) -> ToolError:
    size = f"{page.length} bytes" if page.length else f"more than {MAX_BYTES} bytes"
    return ToolError(
        f"The file at {page.url.host} has {size}; the limit is {MAX_BYTES}.",
        suggestion="Look for a shorter version of it.",
    )


def _inflater(url: Url, encoding: bytes) -> zlib._Decompress | None:
    """Return what inflates a body of that encoding; None for a plain one."""
    if encoding in (b"", b"identity"):
        return None
    if encoding in (b"gzip", b"x-gzip", b"deflate"):
        return zlib.decompressobj(zlib.MAX_WBITS | 32)
    raise ToolError(f"{url.host} sends the page compressed in a way that was not asked for.")
