"""Listens on 127.0.0.1 for the browser of a person at this machine, who comes back from a sign-in."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
from anyio.abc import SocketStream

from threads.background import background_tasks
from threads.errors import StoreUnavailable

log = logging.getLogger(__name__)

HEAD_BYTES, HEAD_S = 16_384, 10.0
"""Bytes and seconds of one request that are read."""
PAGE = b"<!doctype html><title>Threadfast</title><p>%s</p>"
HEADERS = (
    b"Content-Type: text/html\r\nCache-Control: no-store\r\n"
    b"Referrer-Policy: no-referrer\r\nConnection: close\r\n"
)

TakeAddress = Callable[[str], Awaitable[bool]]
"""Takes the address that a browser asked for; returns whether a sign-in waits for it."""


@asynccontextmanager
async def listen(port: int, take: TakeAddress) -> AsyncIterator[None]:
    """Pass the addresses that browsers ask for to *take*. If the port is taken, nothing is listened to."""

    async def serve(stream: SocketStream) -> None:
        async with stream:
            with anyio.move_on_after(HEAD_S):
                await _answer(stream, port, take)

    try:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port)
    except OSError as error:
        log.info(
            "mcp.not_listening: port %d is taken, so the address has to be copied: %s", port, error.strerror
        )
        yield
        return
    async with listener, background_tasks() as tasks:
        tasks.start_soon(listener.serve, serve)
        yield


async def _answer(stream: SocketStream, port: int, take: TakeAddress) -> None:
    head = b""
    try:
        while b"\r\n\r\n" not in head and len(head) < HEAD_BYTES:
            head += await stream.receive()
        method, _, rest = head.split(b"\r\n", 1)[0].decode("ascii", "replace").partition(" ")
        target = rest.rpartition(" ")[0]
        known = method == "GET" and await _taken(take, f"http://127.0.0.1:{port}{target}")
        words = b"You can close this window and go back." if known else b"No sign-in waits for this."
        body, status = PAGE % words, b"200 OK" if known else b"404 Not Found"
        await stream.send(
            b"HTTP/1.1 %s\r\n%sContent-Length: %d\r\n\r\n%s" % (status, HEADERS, len(body), body)
        )
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        pass  # the browser has left


async def _taken(take: TakeAddress, address: str) -> bool:
    try:
        return await take(address)
    except StoreUnavailable as error:
        log.warning("mcp.not_signed_in: the address of a sign-in could not be stored: %s", error)
        return False
