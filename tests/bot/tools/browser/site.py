"""A web site on loopback that the egress guard takes for a public one, and what was asked of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
from anyio.abc import SocketAttribute, SocketStream

from bot.guards.egress import Egress

PUBLIC = "93.184.216.34"
NAMES = {
    "site.test": [PUBLIC],
    "other.test": ["93.184.216.35"],
    "inside.test": ["10.0.0.7"],
    "looped.test": ["127.0.0.1"],
    "halved.test": [PUBLIC, "169.254.169.254"],
}

Answer = bytes | Callable[[SocketStream], object]


def page(
    body: str | bytes, *headers: str, status: str = "200 OK", kind: str = "text/html; charset=utf-8"
) -> bytes:
    body = body.encode() if isinstance(body, str) else body
    head = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*head, "", ""]).encode() + body


def redirect(to: str) -> bytes:
    return page("", f"Location: {to}", status="302 Found")


async def silence(stream: SocketStream) -> None:
    """Never answer."""
    await stream.receive()


class Site:
    """``pages`` by path. ``asked`` are first lines of requests, ``heads`` the whole heads, ``reached`` the addresses
    that were connected to after the guard had let them through."""

    def __init__(self) -> None:
        self.pages: dict[str, Answer] = {}
        self.asked: list[str] = []
        self.heads: list[bytes] = []
        self.reached: list[tuple[str, int]] = []
        self.port = 0
        self.egress = Egress(resolve=self._resolve, connect=self._connect)

    async def _resolve(self, host, port):
        if host not in NAMES:
            raise OSError("no such host")
        return NAMES[host]

    async def _connect(self, address, port):
        self.reached.append((address, port))
        return await anyio.connect_tcp("127.0.0.1", self.port)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Site]:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        self.port = listener.extra(SocketAttribute.local_port)
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, self._serve)
            yield self
            tasks.cancel_scope.cancel()

    async def _serve(self, stream) -> None:
        async with stream:
            try:
                await self._answer(stream)
            except (anyio.BrokenResourceError, anyio.EndOfStream, anyio.ClosedResourceError):
                return

    async def _answer(self, stream) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += await stream.receive()
        self.heads.append(head)
        line = head.split(b"\r\n", 1)[0].decode()
        self.asked.append(line)
        answer = self.pages.get(line.split(" ")[1], page("no such page", status="404 Not Found"))
        if isinstance(answer, bytes):
            await stream.send(answer)
            await stream.send_eof()
            await stream.receive()
        else:
            await answer(stream)
