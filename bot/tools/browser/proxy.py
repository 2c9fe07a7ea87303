"""The browser's only way out: a proxy on loopback that takes every connection through the egress guard.

It is open while a browser runs, and serves only who knows the password of a visit (one look at one page). Names are
resolved, checked and pinned here; Chromium looks nothing up itself. TLS passes through unread.

A plain HTTP request has its connection to itself: what follows it on the same one could be meant for another host.
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

MAX_BYTES = 25_000_000
"""Bytes that one visit may move, both ways; then its connections end."""

MAX_HEAD = 64_000
"""Bytes of the head of a request or an answer."""

MAX_CONNECTIONS = 64
"""At once, of all visits; Chromium itself opens at most 32 to a proxy."""

MAX_PROBLEMS = 20
HEAD_S, IDLE_S = 10.0, 30.0
CHUNK = 65_536

_LOST = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, TimeoutError)
_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer upgrade".split()
)
"""Fields that are about one connection, not about the request (RFC 9110, 7.6.1)."""

Headers = list[tuple[bytes, bytes]]


class OverBudget(Exception):
    """The visit moved more than it may."""


class Visit:
    """What one look at a page may use, and what was refused to it: ``problems``, by host, in the order met."""

    def __init__(self) -> None:
        self.name, self.password = secrets.token_hex(8), secrets.token_urlsafe(24)
        self.problems: dict[str, ToolError] = {}
        self.left = MAX_BYTES

    def add_problem(self, host: str, error: ToolError) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.setdefault(host, error)

    def count_bytes(self, size: int) -> None:
        """Count bytes; raises `OverBudget`."""
        self.left -= size
        if self.left < 0:
            raise OverBudget


class Proxy:
    def __init__(self, egress: Egress) -> None:
        self._egress = egress
        self._visits: dict[str, Visit] = {}
        self._room = anyio.Semaphore(MAX_CONNECTIONS)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[int]:
        """Listen on a free port of loopback meanwhile, and give it."""
        async with (
            await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0) as listener,
            anyio.create_task_group() as tasks,
        ):
            port: int = listener.extra(SocketAttribute.local_port)  # noqa: S610 - no database here
            tasks.start_soon(listener.serve, self._client)
            try:
                yield port
            finally:
                tasks.cancel_scope.cancel()

    def open_visit(self) -> Visit:
        visit = Visit()
        self._visits[visit.name] = visit
        return visit

    def close_visit(self, visit: Visit) -> None:
        """Let the visit open nothing more, and move nothing more over what it has open."""
        del self._visits[visit.name]
        visit.left = 0

    async def _client(self, stream: ByteStream) -> None:
        async with stream, self._room:
            try:
                await self._serve(stream, h11.Connection(h11.SERVER, MAX_HEAD))
            except (*_LOST, OverBudget, h11.ProtocolError):
                return  # a connection that ends badly ends: the page sees it, and nobody else has part in it

    async def _serve(self, stream: ByteStream, client: h11.Connection) -> None:
        with anyio.fail_after(HEAD_S):
            request = await _event(client, stream)
        if not isinstance(request, h11.Request):
            return
        visit = self._visit_of(request.headers)
        if visit is None:
            await _answer(client, stream, 407, [(b"Proxy-Authenticate", b'Basic realm="egress"')])
            return
        try:
            if request.method == b"CONNECT":
                await self._tunnel(request, client, stream, visit)
            else:
                await self._forward(request, client, stream, visit)
        except ToolError as error:
            visit.add_problem(_host(request.target), error)
            if request.method == b"CONNECT":
                await _answer(client, stream, 403 if isinstance(error, ToolDenied) else 502, [])
            # A plain request gets no answer at all: one of ours would pass for the page's own.

    def _visit_of(self, headers: Iterable[tuple[bytes, bytes]]) -> Visit | None:
        given = dict(headers).get(b"proxy-authorization", b"")
        try:
            name, _, password = base64.b64decode(given.removeprefix(b"Basic "), validate=True).partition(b":")
        except ValueError:
            return None
        visit = self._visits.get(name.decode("ascii", "replace"))
        return visit if visit and hmac.compare_digest(password, visit.password.encode()) else None

    async def _tunnel(
        self, request: h11.Request, client: h11.Connection, stream: ByteStream, visit: Visit
    ) -> None:
        host, _, port = request.target.decode("ascii", "replace").rpartition(":")
        if not (port.isascii() and port.isdigit() and len(port) <= 5):
            raise ToolDenied("That is no port.")
        async with await self._egress.open_connection(
            host.removeprefix("[").removesuffix("]"), int(port)
        ) as far:
            await stream.send(client.send(h11.Response(status_code=200, headers=[])) or b"")
            early, _ = client.trailing_data
            visit.count_bytes(len(early))
            if early:
                await far.send(early)
            async with anyio.create_task_group() as ways:
                for source, sink in ((stream, far), (far, stream)):
                    ways.start_soon(_pump, source, sink, visit, ways.cancel_scope)

    async def _forward(
        self, request: h11.Request, client: h11.Connection, stream: ByteStream, visit: Visit
    ) -> None:
        url = self._egress.check(request.target.decode("latin-1"))
        if url.scheme != "http":
            raise ToolDenied("That is no plain HTTP address.")
        async with await self._egress.open_connection(url.host, url.port) as far:
            server = h11.Connection(h11.CLIENT, MAX_HEAD)
            headers = [(b"Host", url.authority.encode()), (b"Connection", b"close")]
            headers += _carried(request.headers, but=b"host")
            outward = h11.Request(method=request.method, target=url.target, headers=headers)
            await far.send(server.send(outward) or b"")
            await _body(client, stream, server, far, visit)
            await _response(server, far, client, stream, visit)


async def _response(
    server: h11.Connection, far: ByteStream, client: h11.Connection, stream: ByteStream, visit: Visit
) -> None:
    while True:
        with anyio.fail_after(IDLE_S):
            event = await _event(server, far)
        if isinstance(event, h11.Response):
            break
        visit.count_bytes(
            MAX_HEAD
        )  # it may say "wait" without end, but not for nothing, nor when the visit is over
    headers = [(b"Connection", b"close"), *_carried(event.headers)]
    answer = h11.Response(status_code=event.status_code, reason=event.reason, headers=headers)
    await stream.send(client.send(answer) or b"")
    await _body(server, far, client, stream, visit)


async def _body(
    source: h11.Connection,
    source_stream: ByteStream,
    sink: h11.Connection,
    sink_stream: ByteStream,
    visit: Visit,
) -> None:
    while True:
        with anyio.fail_after(IDLE_S):
            event = await _event(source, source_stream)
            match event:
                case h11.Data():
                    visit.count_bytes(len(event.data))
                    await sink_stream.send(sink.send(h11.Data(data=bytes(event.data))) or b"")
                case h11.EndOfMessage():
                    if last := sink.send(h11.EndOfMessage()):
                        await sink_stream.send(last)
                    return
                case _:
                    raise anyio.EndOfStream


async def _pump(source: ByteStream, sink: ByteStream, visit: Visit, ways: anyio.CancelScope) -> None:
    """Carry one way of a tunnel; when it ends, so does the other."""
    try:
        while True:
            with anyio.fail_after(IDLE_S):
                data = await source.receive(CHUNK)
                visit.count_bytes(len(data))
                await sink.send(data)
    except (*_LOST, OverBudget):
        ways.cancel()


async def _event(connection: h11.Connection, stream: ByteStream) -> h11.Event | None:
    """Return what comes next, None at its end; raises `h11.RemoteProtocolError` for what is no (or no short) HTTP."""
    while True:
        event = connection.next_event()
        if isinstance(event, h11.Event):
            return event
        if event is h11.PAUSED:
            return None
        try:
            connection.receive_data(await stream.receive(CHUNK))
        except anyio.EndOfStream:
            connection.receive_data(b"")


async def _answer(client: h11.Connection, stream: ByteStream, status: int, headers: Headers) -> None:
    head = h11.Response(
        status_code=status, headers=[*headers, (b"Content-Length", b"0"), (b"Connection", b"close")]
    )
    await stream.send(client.send(head) or b"")


def _carried(headers: Iterable[tuple[bytes, bytes]], but: bytes = b"") -> Headers:
    """Return the fields that go on to the other side."""
    headers = list(headers)
    named = {
        name.strip().lower() for key, value in headers if key == b"connection" for name in value.split(b",")
    }
    left_out = (_HOP | named | {but}) - {b"content-length", b"transfer-encoding"}
    return [(name, value) for name, value in headers if name not in left_out]


def _host(target: bytes) -> str:
    """Return what a target names, for people: cut, and only what is plain."""
    text = target.decode("ascii", "replace").removeprefix("http://").partition("/")[0]
    return text[:200]
