"""The only way out of a command: an HTTP proxy that listens in the command's own network and works outside of it.

| the command asks for             | what happens                                                    |
|----------------------------------|-----------------------------------------------------------------|
| CONNECT to an allowed host       | TLS ends here and begins anew outside; one request goes on      |
| http:// at an allowed host, port | one plain request goes on, without any credential               |
| anything else                    | a refusal that names the setting                                |

A name is resolved, checked and connected to by the egress guard, once. Each request is read here, so the host in TLS
and the host in the request are the allowed one, and a connection carries one request: nothing can be smuggled behind
it. Here a credential is added too, and hidden in the answer.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field

import anyio
import h11
from anyio.abc import ByteStream, SocketListener, SocketStream
from anyio.streams.tls import TLSStream

from bot.guards.egress import Egress
from bot.ports.errors import ToolDenied, ToolError
from bot.tools.web.http_peer import LOST, Peer
from threads.errors import StoreUnavailable

from .echo_mask import EchoMask
from .settings import Target, target_of, written

log = logging.getLogger(__name__)

AT_ONCE, MAX_CONNECTIONS = 16, 2_000
"""Connections of one command: at a time, and in all, refused ones too, since each is a line of the audit."""

MAX_BYTES = 1_000_000_000
"""Bytes of one command, both ways."""

MAX_HEAD, MAX_TOLD = 64_000, 10
"""Bytes of a head, and refusals that the result of a command names."""

IDLE_S, NOTE_S = 60.0, 2.0
"""Seconds after which a connection on which nothing moves is over, and that the audit may take."""

_HOP = frozenset(
    b"connection expect keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer upgrade".split()
)
"""Fields that are about one connection (RFC 9110, 7.6.1). We answer Expect ourselves."""

_PIECES = frozenset({b"accept-encoding", b"range", b"if-range"})
"""Fields that would let a server send a secret in a form, or in pieces, that nobody finds in its answer."""

Note = Callable[[Mapping[str, str]], Awaitable[None]]
Forms = tuple[str, ...]
Fields = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Added:
    """A header for a host. ``forms`` are the texts that answers must not have."""

    name: bytes
    value: bytes
    forms: Forms


@dataclass(frozen=True, slots=True)
class Network:
    """What commands reach. ``outside`` is TLS with the hosts, ``inside`` with commands, which trust ``authority``."""

    allowed: frozenset[Target]
    added: Mapping[Target, Added]
    egress: Egress
    outside: ssl.SSLContext
    inside: ssl.SSLContext
    authority: bytes

    @property
    def named(self) -> str:
        return ", ".join(map(written, sorted(self.allowed)))


@dataclass(slots=True)
class Connection:
    """A connection. ``details`` are for the audit, ``asked`` is what it asked for."""

    client: Peer
    server: Peer | None = None
    asked: str = ""
    details: dict[str, str] = field(default_factory=lambda: {"port": "", "decision": "allowed"})
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    moved: int = 0


class Proxy:
    """Serves one command. *note* writes to the audit, *opening* is awaited before anything comes in from outside."""

    def __init__(self, network: Network, note: Note, opening: Callable[[], Awaitable[None]]) -> None:
        self.network, self._note, self._opening = network, note, opening
        self.refusals: dict[str, None] = {}
        """Sentences on what was refused, in order."""
        self._slots, self._left = anyio.Semaphore(AT_ONCE), MAX_BYTES
        self._over = f"the command moved {MAX_BYTES:,} bytes, which is the most of one"

    async def serve(self, listener: socket.socket) -> None:
        accepting = await SocketListener.from_socket(listener)
        async with anyio.create_task_group() as tasks, accepting:
            for _ in range(MAX_CONNECTIONS):
                await self._slots.acquire()
                tasks.start_soon(self._serve_one, await accepting.accept())
        self._refuse(f"the command made {MAX_CONNECTIONS:,} connections, which is the most of one")

    async def _serve_one(self, stream: SocketStream) -> None:
        connection = Connection(Peer(h11.Connection(h11.SERVER, MAX_HEAD), stream))
        try:
            with connection.scope:
                async with stream:
                    await self._answer(connection)
            if connection.scope.cancelled_caught:
                connection.details["reason"] = f"nothing moved for {IDLE_S:g} s"
        except (*LOST, h11.ProtocolError, ssl.SSLError, OSError) as error:
            connection.details["reason"] = f"it broke off: {type(error).__name__}"
        finally:
            self._slots.release()
            if connection.asked:
                await self._tell(connection)

    async def _tell(self, connection: Connection) -> None:
        received = connection.server.received if connection.server else 0
        moved = {"sent": str(connection.client.received), "received": str(received)} if received else {}
        try:
            with anyio.move_on_after(NOTE_S, shield=True):
                await self._note({"host": connection.asked, **connection.details, **moved})
        except StoreUnavailable as error:
            self._left, self._over = 0, "its connections cannot be written to the audit"
            log.error("network.not_audited: the command has no network any more: %s", error)  # noqa: TRY400

    def _refuse(self, why: str) -> str:
        told = f"Refused by tools.network: {why}"
        if len(self.refusals) < MAX_TOLD:
            self.refusals[told] = None
        return told

    def _count(self, connection: Connection) -> None:
        """Count what has moved so far; raises `anyio.EndOfStream` when it is too much."""
        moved = connection.client.received + (connection.server.received if connection.server else 0)
        self._left -= moved - connection.moved
        connection.moved, connection.scope.deadline = moved, anyio.current_time() + IDLE_S
        if self._left <= 0:
            self._refuse(self._over)
            raise anyio.EndOfStream

    async def _answer(self, connection: Connection) -> None:
        """Serve a connection. A refusal is its answer, where one can still be given."""
        self._count(connection)
        try:
            request = await _request(connection.client)
            connection.asked = request.target[:200].decode("ascii", "replace").partition("?")[0]
            await self._serve(request, connection)
        except ToolError as error:
            client, told, status = connection.client, str(error), 502
            connection.asked, connection.details["reason"] = connection.asked or "nothing", told
            if isinstance(error, ToolDenied):
                connection.details["decision"] = "refused"
                told, status = self._refuse(told), 403
            if client.http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                body, reason = f"{told}\n".encode(), told.encode("ascii", "replace")[:300]
                fields = [(b"Content-Length", str(len(body)).encode()), (b"Connection", b"close")]
                head = h11.Response(status_code=status, reason=reason, headers=fields)
                for event in (head, h11.Data(data=body), h11.EndOfMessage()):
                    await client.send(event)

    async def _serve(self, request: h11.Request, connection: Connection) -> None:
        secure = request.method == b"CONNECT"
        if secure:
            target = target_of(request.target.decode("ascii", "replace"))
        else:
            url = self.network.egress.check(request.target.decode("latin-1"))
            target, path = (url.host, url.port), url.target.encode()
        connection.asked, connection.details["port"] = target[0], str(target[1])
        if target not in self.network.allowed:
            raise ToolDenied(f"{written(target)[:200]} is not in tools.network.allow. Ask the admin for it.")
        if not secure and (url.scheme != "http" or target in self.network.added):
            raise ToolDenied(f"{written(target)} is reached by https, through CONNECT.")
        await self._opening()
        async with await self.network.egress.open_connection(*target) as stream:
            outside: ByteStream = stream
            if secure:
                outside = await self._encrypt(stream, target[0])
                await connection.client.send(h11.Response(status_code=200, headers=[]))
                plain, tls = connection.client.stream, self.network.inside
                inside = await TLSStream.wrap(plain, ssl_context=tls, standard_compatible=False)
                connection.client = Peer(h11.Connection(h11.SERVER, MAX_HEAD), inside)
                request = await _request(connection.client)
                path = bytes(request.target)
                if not path.startswith(b"/"):
                    raise ToolDenied("A request in a tunnel has to name a path.")
            connection.server = server = Peer(h11.Connection(h11.CLIENT, MAX_HEAD), outside)
            added = self.network.added.get(target) if secure else None
            host = written(target).removesuffix(":443" if secure else ":80").encode()
            sent = h11.Request(method=request.method, target=path, headers=_outgoing(request, host, added))
            await self._exchange(sent, server, connection, added.forms if added else ())

    async def _encrypt(self, stream: ByteStream, host: str) -> ByteStream:
        tls = self.network.outside
        try:
            return await TLSStream.wrap(stream, hostname=host, ssl_context=tls, standard_compatible=False)
        except ssl.SSLError as error:
            raise ToolError(f"{host[:200]} cannot prove who it is: {error.reason}.") from error

    async def _exchange(self, sent: h11.Request, server: Peer, connection: Connection, hide: Forms) -> None:
        """Carry a request, and its answer with the secrets to *hide* masked."""
        client, mask = connection.client, EchoMask(hide)
        self._count(connection)
        await server.send(sent)
        if client.http.they_are_waiting_for_100_continue:
            await client.send(h11.InformationalResponse(status_code=100, headers=[]))
        await self._copy_body(client, server, connection, EchoMask(()))
        while isinstance(response := await server.receive(), h11.InformationalResponse):
            self._count(connection)
        if not isinstance(response, h11.Response):
            raise anyio.EndOfStream
        headers = [(name, mask.all(value)) for name, value in _end_to_end(response.headers)]
        codings = {value.lower() for name, value in headers if name == b"content-encoding"}
        if hide and codings - {b"identity"}:
            raise ToolError("The answer is compressed, so a secret in it could not be found.")
        headers.append((b"Connection", b"close"))
        reason = mask.all(bytes(response.reason))
        await client.send(h11.Response(status_code=response.status_code, reason=reason, headers=headers))
        await self._copy_body(server, client, connection, mask)

    async def _copy_body(self, source: Peer, sink: Peer, connection: Connection, mask: EchoMask) -> None:
        while isinstance(event := await source.receive(), h11.Data):
            self._count(connection)
            await sink.send(h11.Data(data=mask.next(bytes(event.data))))
        if not isinstance(event, h11.EndOfMessage):
            raise anyio.EndOfStream
        await sink.send(h11.Data(data=mask.next(b"", last=True)))
        await sink.send(h11.EndOfMessage())


async def _request(client: Peer) -> h11.Request:
    """Return the next request. Raises `ToolDenied` for something else, and `anyio.EndOfStream`."""
    try:
        event = await client.receive()
    except h11.RemoteProtocolError as error:
        raise ToolDenied(f"That is not a request of HTTP: {error}.") from error
    if not isinstance(event, h11.Request):
        raise anyio.EndOfStream
    return event


def _outgoing(request: h11.Request, host: bytes, added: Added | None) -> Fields:
    headers = [(b"Host", host), (b"Connection", b"close")]
    if added is None:
        return headers + _end_to_end(request.headers, frozenset({b"host"}))
    headers += [(added.name, added.value), (b"Accept-Encoding", b"identity")]
    return headers + _end_to_end(request.headers, _PIECES | {b"host", added.name.lower()})


def _end_to_end(headers: Iterable[tuple[bytes, bytes]], drop: frozenset[bytes] = frozenset()) -> Fields:
    """Return the fields that are meant for the other side, with one statement of the length."""
    fields = list(headers)
    hop = {one.strip().lower() for key, value in fields if key == b"connection" for one in value.split(b",")}
    left_out = (_HOP | hop | drop) - {b"content-length", b"transfer-encoding"}
    if any(name == b"transfer-encoding" for name, _ in fields):
        left_out |= {b"content-length"}
    return [(name, value) for name, value in fields if name not in left_out]
