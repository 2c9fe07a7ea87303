"""The egress guard as the network of the HTTP library: it connects where the guard says, or not at all.

It has no unix sockets and no proxies. TLS runs over the guarded connection, with the name of the request.
"""

from __future__ import annotations

import ssl
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any

import anyio
import httpcore2
from anyio.abc import ByteStream
from anyio.streams.tls import TLSStream

from bot.guards.egress import Egress
from bot.ports.errors import ToolError

MAX_HEAD, MAX_WIRE = 150_000, 10_000_000
"""Bytes that are read before a response begins, and of the response."""

PIECE = 8_192
"""Bytes read at once: hostile framing of one piece costs the event loop milliseconds at most."""

CLOSE_S = 1.0


class GuardedBackend(httpcore2.AsyncNetworkBackend):
    """The network as the guard allows it."""

    def __init__(self, egress: Egress) -> None:
        self._egress = egress

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the library's signature
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        del local_address, socket_options
        with anyio.fail_after(timeout):
            return BoundedStream(await self._egress.open_connection(host, port))


class BoundedStream(httpcore2.AsyncNetworkStream):
    """A connection in the library's terms that ends after ``left`` bytes."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream, self.left = stream, MAX_HEAD

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        if self.left <= 0:
            raise httpcore2.ReadError("too much")
        with _translated(timeout, httpcore2.ReadTimeout, httpcore2.ReadError):
            try:
                data = await self._stream.receive(min(max_bytes, PIECE))
            except anyio.EndOfStream:
                return b""
        self.left -= len(data)
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        with _translated(timeout, httpcore2.WriteTimeout, httpcore2.WriteError):
            await self._stream.send(buffer)

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> httpcore2.AsyncNetworkStream:
        try:
            with _translated(timeout, httpcore2.ConnectTimeout, httpcore2.ConnectError):
                wrapped = await TLSStream.wrap(
                    self._stream, hostname=server_hostname, ssl_context=ssl_context, standard_compatible=False
                )
        except BaseException as error:
            await self.aclose()
            if isinstance(error.__cause__, ssl.SSLCertVerificationError):
                raise ToolError(
                    f"The certificate of {server_hostname} is not valid.", suggestion="Try another source."
                ) from error
            raise
        return BoundedStream(wrapped)

    async def aclose(self) -> None:
        with anyio.move_on_after(CLOSE_S, shield=True):
            await self._stream.aclose()

    def get_extra_info(self, info: str) -> Any:
        """Return None: the library asks about HTTP/2 and idle connections, and there are none."""


@contextmanager
def _translated(timeout: float | None, late: type[Exception], broken: type[Exception]) -> Generator[None]:
    """Raise the library's errors in place of anyio's; *late* after *timeout* seconds."""
    try:
        with anyio.fail_after(timeout):
            yield
    except TimeoutError as error:
        raise late from error
    except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, ssl.SSLError) as error:
        raise broken from error
