"""One side of HTTP/1.1 over a connection: for `web_fetch`, and for the proxy of the browser."""

from __future__ import annotations

from dataclasses import dataclass

import anyio
import h11
from anyio.abc import ByteStream

PIECE = 8_192
"""Bytes read at once: hostile framing of one piece costs the event loop milliseconds at most."""

LOST = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, TimeoutError)
"""The errors of a connection that is over."""


@dataclass(slots=True)
class Peer:
    """The other side of an exchange; ``received`` counts the bytes that it has sent."""

    http: h11.Connection
    stream: ByteStream
    received: int = 0

    async def receive(self) -> h11.Event | None:
        """Return the next event, or None at the end; raises `h11.RemoteProtocolError`."""
        while True:
            event = self.http.next_event()
            if isinstance(event, h11.Event):
                return event
            if event is h11.PAUSED:
                return None
            try:
                data = await self.stream.receive(PIECE)
            except anyio.EndOfStream:
                data = b""
            self.received += len(data)
            self.http.receive_data(data)

    async def send(self, event: h11.Event) -> None:
        if data := self.http.send(event):
            await self.stream.send(data)
