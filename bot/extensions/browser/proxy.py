"""The browser's only way out: a proxy on loopback that takes every connection through the egress guard.

It is open while a browser runs, and serves only those who know the password of a visit (one view of one page). Names
are resolved, checked and pinned here; Chromium resolves nothing. TLS passes through unread.

A connection carries one plain HTTP request: the next one on it could be meant for another host.
"""

from __future__ import annotations

import base64
import hmac
import secrets
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import anyio
import h11
from anyio.abc import ByteStream, SocketAttribute

from bot.guards.egress import Egress
from bot.ports.errors import ToolDenied, ToolError
from bot.tools.web.http_peer import LOST, Peer
from threads.background import background_tasks

MAX_BYTES = 25_000_000
"""Bytes of one visit, both ways; then its connections end."""

MAX_HEAD = 64_000
"""Bytes of the head of a request or an answer."""

MAX_CONNECTIONS = 64
"""Of all visits at once; Chromium opens at most 32 to a proxy."""

MAX_PROBLEMS = 20
HEAD_S, IDLE_S = 10.0, 30.0
CHUNK = 65_536

_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer upgrade".split()
)
"""Fields that are about one connection, not about the request (RFC 9110, 7.6.1)."""


class Visit:
    """What one view of a page may use; ``problems`` are the refused hosts, in order."""

    def __init__(self) -> None:
        self.name, self.password = secrets.token_hex(8), secrets.token_urlsafe(24)
        self.problems: dict[str, ToolError] = {}
        self.left = MAX_BYTES

    def add_problem(self, host: str, error: ToolError) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.setdefault(host, error)

    def count_bytes(self, size: int) -> None:
        """Count bytes that move; raises `anyio.EndOfStream` when there are too many."""
        self.left -= size
        if self.left < 0:
            raise anyio.EndOfStream


class Proxy:
    def __init__(self, egress: Egress) -> None:
        self._egress = egress
        self._visits: dict[str, Visit] = {}
        self._slots = anyio.Semaphore(MAX_CONNECTIONS)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[int]:
        """Listen on a free port of loopback, and yield it."""
        async with (
            await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0) as listener,
            background_tasks() as tasks,
        ):
            port: int = listener.extra(SocketAttribute.local_port)  # noqa: S610 - no database here
            tasks.start_soon(listener.serve, self._serve_connection)
            yield port

    def open_visit(self) -> Visit:
        visit = Visit()
        self._visits[visit.name] = visit
        return visit

    def close_visit(self, visit: Visit) -> None:
        """End the visit: it opens no more connections, and those it has move no more bytes."""
        del self._visits[visit.name]
        visit.left = 0

    async def _serve_connection(self, stream: ByteStream) -> None:
        async with stream, self._slots:
            try:
                await self._serve(Peer(h11.Connection(h11.SERVER, MAX_HEAD), stream))
            except (*LOST, h11.ProtocolError):
                return  # only the page is concerned, and it sees the end of its connection

    async def _serve(self, client: Peer) -> None:
        with anyio.fail_after(HEAD_S):
            request = await client.receive()
        if not isinstance(request, h11.Request):
            return
        if (visit := self._authenticate(request.headers)) is None:
            await _answer(client, 407, (b"Proxy-Authenticate", b'Basic realm="egress"'))
            return
        try:
            if request.method == b"CONNECT":
                await self._tunnel(request, client, visit)
            else:
                await self._forward(request, client, visit)
        except ToolError as error:
            target = request.target.decode("ascii", "replace").removeprefix("http://")
            visit.add_problem(target.partition("/")[0][:200], error)
            if request.method == b"CONNECT":
                await _answer(client, 403 if isinstance(error, ToolDenied) else 502)
            # A plain request gets no answer: the browser would take ours for the page's own.

    def _authenticate(self, headers: Iterable[tuple[bytes, bytes]]) -> Visit | None:
        credentials = dict(headers).get(b"proxy-authorization", b"").removeprefix(b"Basic ")
        try:
            name, _, password = base64.b64decode(credentials, validate=True).partition(b":")
        except ValueError:
            return None
        visit = self._visits.get(name.decode("ascii", "replace"))
        return visit if visit and hmac.compare_digest(password, visit.password.encode()) else None

    async def _tunnel(self, request: h11.Request, client: Peer, visit: Visit) -> None:
        host, _, port = request.target.decode("ascii", "replace").rpartition(":")
        if not (port.isascii() and port.isdigit() and len(port) <= 5):
            raise ToolDenied("That is not a port.")
        host = host.removeprefix("[").removesuffix("]")
        async with await self._egress.open_connection(host, int(port)) as server:
            await client.send(h11.Response(status_code=200, headers=[]))
            early, _ = client.http.trailing_data
            visit.count_bytes(len(early))
            if early:
                await server.send(early)
            async with anyio.create_task_group() as tasks:
                for source, sink in ((client.stream, server), (server, client.stream)):
                    tasks.start_soon(_pump, source, sink, visit, tasks.cancel_scope)

    async def _forward(self, request: h11.Request, client: Peer, visit: Visit) -> None:
        url = self._egress.check(request.target.decode("latin-1"))
        if url.scheme != "http":
            raise ToolDenied("That is not a plain HTTP address.")
        async with await self._egress.open_connection(url.host, url.port) as stream:
            server = Peer(h11.Connection(h11.CLIENT, MAX_HEAD), stream)
            headers = [(b"Host", url.authority.encode()), (b"Connection", b"close")]
            headers += _end_to_end(request.headers, drop=b"host")
            await server.send(h11.Request(method=request.method, target=url.target, headers=headers))
            await _copy_body(client, server, visit)
            await _copy_response(server, client, visit)


async def _answer(client: Peer, status: int, *headers: tuple[bytes, bytes]) -> None:
    """Send a response without a body; the connection ends with it."""
    fields = [*headers, (b"Content-Length", b"0"), (b"Connection", b"close")]
    await client.send(h11.Response(status_code=status, headers=fields))


async def _copy_response(server: Peer, client: Peer, visit: Visit) -> None:
    while True:
        with anyio.fail_after(IDLE_S):
            event = await server.receive()
        if isinstance(event, h11.Response):
            break
        visit.count_bytes(MAX_HEAD)  # interim responses count, so they end with the visit at the latest
    headers = [(b"Connection", b"close"), *_end_to_end(event.headers)]
    await client.send(h11.Response(status_code=event.status_code, reason=event.reason, headers=headers))
    await _copy_body(server, client, visit)


async def _copy_body(source: Peer, sink: Peer, visit: Visit) -> None:
    while True:
        with anyio.fail_after(IDLE_S):
            event = await source.receive()
            match event:
                case h11.Data():
                    visit.count_bytes(len(event.data))
                    await sink.send(h11.Data(data=bytes(event.data)))
                case h11.EndOfMessage():
                    await sink.send(h11.EndOfMessage())
                    return
                case _:
                    raise anyio.EndOfStream


async def _pump(source: ByteStream, sink: ByteStream, visit: Visit, tunnel: anyio.CancelScope) -> None:
    """Carry one direction of a tunnel; its end is the end of both."""
    try:
        while True:
            with anyio.fail_after(IDLE_S):
                data = await source.receive(CHUNK)
                visit.count_bytes(len(data))
                await sink.send(data)
    except LOST:
        tunnel.cancel()


def _end_to_end(headers: Iterable[tuple[bytes, bytes]], drop: bytes = b"") -> list[tuple[bytes, bytes]]:
    """Return the fields that are meant for the other side."""
    headers = list(headers)
    hop = {
        name.strip().lower() for key, value in headers if key == b"connection" for name in value.split(b",")
    }
    left_out = (_HOP | hop | {drop}) - {b"content-length", b"transfer-encoding"}
    return [(name, value) for name, value in headers if name not in left_out]
