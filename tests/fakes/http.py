"""A scripted HTTP server on loopback: real sockets, h11 on the wire, and every way in which an answer can go wrong.

A script is one `Reply` per request, in order (or a function from the request to its reply, called every time).
A reply is a head and steps: bytes to send, or a fault. Requests are kept in ``requests``, open sockets are counted.
"""

import json
import math
import socket
import ssl
import struct
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from email import message_from_bytes
from email.policy import HTTP
from typing import Any, ClassVar, Literal, Self

import anyio
import h11
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.tls import TLSStream


@dataclass(frozen=True)
class Cut:
    """Hang up without an end of the message: politely (fin) or not (rst)."""

    how: Literal["fin", "rst"] = "fin"


@dataclass(frozen=True)
class Stall:
    """Say nothing until the client hangs up, except *noise*, every *every* seconds."""

    noise: bytes = b""
    every: float = 0.01


@dataclass(frozen=True)
class Wait:
    """Say nothing until *event* is set by the test."""

    event: anyio.Event


@dataclass(frozen=True)
class Flood:
    """Send *data* without a pause, *times* times or until the client hangs up; what got out is in ``sent``."""

    data: bytes
    times: float = math.inf


@dataclass(frozen=True)
class Garbage:
    """Bytes in place of a status line."""

    data: bytes = b"\x00\xff not http\r\n\r\n"


Step = bytes | Cut | Stall | Wait | Flood | Garbage


@dataclass(frozen=True)
class Reply:
    """``steps`` are sent one by one; ``silent`` ones come before any status line."""

    steps: tuple[Step, ...] = ()
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    silent: tuple[Step, ...] = ()

    def keep(self, count: int, *then: Step) -> "Reply":
        """Send only the first *count* steps (from the end if negative), then do *then*."""
        return replace(self, steps=(*self.steps[:count], *then))


def error(status: int, body: Any, headers: Iterable[tuple[str, str]] = ()) -> Reply:
    """An error as JSON, or as it is when *body* is a string."""
    text, kind = (body, "text/html") if isinstance(body, str) else (json.dumps(body), "application/json")
    return Reply((text.encode(),), status, (("content-type", kind), *headers))


@dataclass(frozen=True)
class Upload:
    """A file in a form."""

    name: str
    kind: str
    content: bytes


@dataclass(frozen=True)
class Seen:
    method: str
    path: str
    headers: dict[str, str]
    json: Any


Script = Sequence[Reply] | Callable[[Seen], Reply]


@dataclass
class FakeHttp:
    """``prefix`` is the path of ``base_url``; any path but ``paths`` is a 404, as it would be for real."""

    prefix: ClassVar[str] = ""
    paths: ClassVar[tuple[str, ...]] = ()

    script: Script
    tls: ssl.SSLContext | None = None
    requests: list[Seen] = field(default_factory=list)
    connections: int = 0
    """How many sockets were ever opened."""
    hung_up: int = 0
    """How many answers the client did not wait for."""
    sent: int = 0
    """Bytes of floods that got out, those in the sockets' buffers included."""

    @property
    def base_url(self) -> str:
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self._port}{self.prefix}"

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
            self._port = listener.extra(SocketAttribute.local_port)
            await stack.enter_async_context(listener)
            tasks = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(tasks.cancel_scope.cancel)
            tasks.start_soon(listener.serve, self._serve)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _serve(self, stream: SocketStream) -> None:
        self.connections += 1
        async with stream:
            try:
                if self.tls:
                    stream = await TLSStream.wrap(stream, server_side=True, ssl_context=self.tls)
                while await self._exchange(stream, h11.Connection(h11.SERVER)):
                    pass
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, ssl.SSLError):
                self.hung_up += 1
            except h11.RemoteProtocolError:  # such as the beginning of TLS
                await stream.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async def _exchange(self, stream: SocketStream, http: h11.Connection) -> bool:
        """Answer one request; return whether the connection goes on."""
        seen = await _read(stream, http)
        if seen is None:
            return False
        if seen.path in self.paths:
            self.requests.append(seen)
            reply = self._reply(seen)
        else:
            reply = error(404, "<h1>Not Found</h1>")
        for step in reply.silent:
            if not await self._do(stream, step):
                return False
        headers = [*reply.headers, ("transfer-encoding", "chunked")]
        await stream.send(http.send(h11.Response(status_code=reply.status, headers=headers)) or b"")
        for step in reply.steps:
            if isinstance(step, bytes):
                await stream.send(http.send(h11.Data(data=step)) or b"")
            elif not await self._do(stream, step, lambda noise: http.send(h11.Data(data=noise)) or b""):
                return False
        await stream.send(http.send(h11.EndOfMessage()) or b"")
        return True

    async def _do(self, stream: SocketStream, step: Step, frame: Callable[[bytes], bytes] = bytes) -> bool:
        match step:
            case Cut("rst"):
                linger = struct.pack("ii", 1, 0)
                stream.extra(SocketAttribute.raw_socket).setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, linger
                )
                await anyio.aclose_forcefully(stream)
                return False
            case Cut():
                return False
            case Garbage(data):
                await stream.send(data)
                return False
            case Wait(event):
                await event.wait()
            case Flood(data, times):
                framed, count = frame(data), 0
                while count < times:
                    await stream.send(framed)
                    self.sent += len(framed)
                    count += 1
            case Stall(noise, every):
                await _until_hung_up(stream, frame(noise) if noise else b"", every)
                self.hung_up += 1
                return False
            case bytes():
                await stream.send(step)
        return True

    def _reply(self, seen: Seen) -> Reply:
        if callable(self.script):
            return self.script(seen)
        number = len(self.requests)
        if number > len(self.script):
            return error(
                500, {"error": {"type": "fake", "message": f"request {number} is not in the script"}}
            )
        return self.script[number - 1]


async def _read(stream: SocketStream, http: h11.Connection) -> Seen | None:
    head: h11.Request | None = None
    body = b""
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            try:
                http.receive_data(await stream.receive())
            except anyio.EndOfStream:
                return None  # between two requests, or a client that was killed in the middle of one
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage) and head:
            headers = {name.decode(): value.decode() for name, value in head.headers}
            return Seen(head.method.decode(), head.target.decode(), headers, _parsed(headers, body))
        else:
            return None


def _parsed(headers: dict[str, str], body: bytes) -> Any:
    """Return a body of JSON, or the fields of a form; an uploaded file is a `Upload`."""
    kind = headers.get("content-type", "")
    if not kind.startswith("multipart/form-data"):
        return json.loads(body) if body else None
    form = message_from_bytes(b"content-type: " + kind.encode() + b"\r\n\r\n" + body, policy=HTTP)
    fields: dict[str, Any] = {}
    for part in form.iter_parts():
        content, name = part.get_payload(decode=True), part.get_param("name", header="content-disposition")
        filename = part.get_filename()
        fields[name] = Upload(filename, part.get_content_type(), content) if filename else content.decode()
    return fields


async def _until_hung_up(stream: SocketStream, noise: bytes, every: float) -> None:
    while True:
        with anyio.move_on_after(every):
            try:
                await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return
        if noise:
            try:
                await stream.send(noise)
            except anyio.BrokenResourceError:
                return
