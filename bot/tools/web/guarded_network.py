"""The egress guard as the network of the HTTP library: it connects where the guard says, or not at all.

There are no unix sockets and no proxies in it. TLS is made over the guarded connection, with the name asked for.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from typing import Any

import anyio
import httpcore2
from anyio.abc import ByteStream
from anyio.streams.tls import TLSStream

from bot.guards.egress import Egress
from bot.ports.errors import ToolError

MAX_HEAD, MAX_WIRE = 150_000, 10_000_000
"""Bytes that are taken before an answer begins, and of the answer."""

PIECE = 8_192
"""Bytes read at once: what hostile framing of one piece can cost the event loop stays in the milliseconds."""

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
    """A connection in the library's terms, which ends when ``left`` bytes were read."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream, self.left = stream, MAX_HEAD

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        if self.left <= 0:
            raise httpcore2.ReadError("too much")
        try:
            with anyio.fail_after(timeout):
                data = await self._stream.receive(min(max_bytes, PIECE))
        except TimeoutError as error:
            raise httpcore2.ReadTimeout from error
        except anyio.EndOfStream:
            return b""
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, ssl.SSLError) as error:
            raise httpcore2.ReadError from error
        self.left -= len(data)
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        try:
            with anyio.fail_after(timeout):
                await self._stream.send(buffer)
        except TimeoutError as error:
            raise httpcore2.WriteTimeout from error
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, ssl.SSLError) as error:
            raise httpcore2.WriteError from error

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> httpcore2.AsyncNetworkStream:
        try:
            with anyio.fail_after(timeout):
                wrapped = await TLSStream.wrap(
                    self._stream, hostname=server_hostname, ssl_context=ssl_context, standard_compatible=False
                )
        except ssl.SSLCertVerificationError as error:
            await self.aclose()
            raise ToolError(
                f"The certificate of {server_hostname} is not valid.", suggestion="Try another source."
            ) from error
        except (anyio.BrokenResourceError, anyio.EndOfStream, ssl.SSLError) as error:
            await self.aclose()
            raise httpcore2.ConnectError from error
        except BaseException:
            await self.aclose()
            raise
        return BoundedStream(wrapped)

    async def aclose(self) -> None:
        with anyio.move_on_after(CLOSE_S, shield=True):
            await self._stream.aclose()

    def get_extra_info(self, info: str) -> Any:
        """Return nothing: the library asks for HTTP/2 and idle connections, and there are none."""
