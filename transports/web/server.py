"""The HTTP server of the page: uvicorn in our own process and under our own signals."""

from __future__ import annotations

import os
import re
import resource
import socket
import time
from asyncio import Transport
from collections.abc import Callable, Generator
from contextlib import contextmanager
from email.utils import formatdate
from operator import attrgetter

import anyio
import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from threads.errors import TransportFatal
from transports.web.address import Address

REQUEST_S = 15.0
"""Seconds in which a new connection has to send the head of its first request."""

KEEP_ALIVE_S = 30
HEAD_BYTES = 16_384
BACKLOG = 128
MOST_CONNECTIONS = 1_500
"""Connections at once, or half of the files that the process may open."""


_ODD_HEAD = re.compile(rb"(?<!\r)\n|\r\n[ \t]")
"""A bare line feed, or a line that goes on in the next: a proxy may read such a head in another way."""


class _Protocol(H11Protocol):
    """HTTP/1.1, with a deadline for the first request: a connection that says nothing ends.

    If there are too many, the oldest one without a request makes room for a new one.
    """

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        self.app_state = {**self.app_state, "abort": transport.abort}
        super().connection_made(transport)
        self.made_at = self.loop.time()
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if len(self.connections) > min(MOST_CONNECTIONS, files // 2):
            idle = [one for one in self.connections if isinstance(one, _Protocol) and one.idle]
            min(idle, key=attrgetter("made_at")).leave()
        self.loop.call_later(REQUEST_S, self._close_silent)

    @property
    def idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def leave(self) -> None:
        """Close the connection, and count it no more at once."""
        self.connections.discard(self)
        self.transport.abort()

    def handle_events(self) -> None:
        if self.conn.their_state is h11.IDLE:
            head = self.conn.trailing_data[0].partition(b"\r\n\r\n")[0]
            if _ODD_HEAD.search(head):
                self.send_400_response("Invalid HTTP request received.")
                return
        super().handle_events()

    def data_received(self, data: bytes) -> None:
        self.server_state.default_headers = [(b"date", formatdate(time.time(), usegmt=True).encode())]
        super().data_received(data)

    def _close_silent(self) -> None:
        if not bool(self.scope):  # None until the first request
            self.transport.close()


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave signals to the bot."""
        yield

    async def main_loop(self) -> None:
        """Serve until cancelled. The inherited loop looks ten times a second for what only a signal changes."""
        await anyio.sleep_forever()


def listen(address: Address) -> socket.socket:
    """Return a socket that listens at the address. Raises `TransportFatal` if it cannot."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        listening = socket.create_server((address.host, address.port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        why = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else error
        raise TransportFatal(
            f"cannot listen at {address.host}:{address.port}: {why}; "
            "choose another port with --port, or with transports.web.port"
        ) from error
    # What it accepts inherits this; else the second write of an answer waits 40 ms for the first's acknowledgement.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


async def serve(
    app: ASGIApp, listening: socket.socket, tls: tuple[str, str] | None, end_streams: Callable[[], None]
) -> None:
    """Serve until cancelled. *tls* are the files of a certificate and its key. *end_streams* ends what has no end."""
    config = uvicorn.Config(
        app,
        http=_Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=HEAD_BYTES,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=1,
        ssl_certfile=tls[0] if tls else None,
        ssl_keyfile=tls[1] if tls else None,
    )
    server = _Server(config)
    try:
        await server.serve([listening])
    finally:
        end_streams()
        with anyio.CancelScope(shield=True):
            await server.shutdown([listening])
