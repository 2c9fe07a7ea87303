"""One websocket of the bot, and the ways in which it dies."""

from __future__ import annotations

import asyncio
import contextlib
import json
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aiohttp import web

from tests.fakes.sockets import reset

if TYPE_CHECKING:
    from tests.fakes.discord.session import Session

RECONNECT_OP, INVALID_OP, HELLO_OP, ACK_OP = 7, 9, 10, 11


class Link:
    """One websocket of the bot. ``frozen``: half-open, no frames come and none are read."""

    def __init__(
        self, number: int, request: web.Request, socket: web.WebSocketResponse, compress: str
    ) -> None:
        self.number = number
        self.frozen = self._over = False
        self.heartbeats = 0
        self.session: Session | None = None
        self.ready = False
        self.forget: Callable[[Session], None] = lambda session: None
        self._request, self._socket = request, socket
        self._pack = packer(compress)
        self._outgoing: asyncio.Queue[str] = asyncio.Queue()
        self._closing: asyncio.Future[bool] | None = None

    def say(self, op: int, data: Any) -> None:
        """Send a frame that is no event."""
        self.send(json.dumps({"op": op, "d": data, "s": None, "t": None}))

    def send(self, frame: str) -> None:
        if not self._over:
            self._outgoing.put_nowait(frame)

    def gone(self) -> None:
        """The websocket ended: nobody waits for its frames any more."""
        self._over = True
        while not self._outgoing.empty():
            self._outgoing.get_nowait()
            self._outgoing.task_done()

    async def pump(self) -> None:
        """Put frames on the wire, one by one, until the link is gone."""
        with contextlib.suppress(ConnectionError):
            while True:
                frame = await self._outgoing.get()
                try:
                    if not self.frozen:
                        await self._put(self._pack(frame))
                finally:
                    self._outgoing.task_done()

    async def _put(self, packed: str | bytes) -> None:
        if isinstance(packed, bytes):
            await self._socket.send_bytes(packed)
        else:
            await self._socket.send_str(packed)

    async def drained(self) -> None:
        """Every frame is on the wire (or lost in the ice)."""
        await self._outgoing.join()

    def freeze(self) -> None:
        """A zombie: the socket stays, nothing comes from it any more, heartbeats are not acknowledged."""
        self.frozen = True

    def abort(self) -> None:
        """RST, without a close frame."""
        if transport := self._request.transport:
            reset(transport)

    async def close(self, code: int = 4000) -> None:
        """A close frame with that code."""
        await self._socket.close(code=code, drain=False)

    def close_soon(self, code: int) -> None:
        self._closing = asyncio.ensure_future(self._socket.close(code=code, drain=False))

    def reconnect(self) -> None:
        """Op 7: the client is to reconnect and resume."""
        self.say(RECONNECT_OP, None)

    def invalidate(self) -> None:
        """Op 9: the session is gone."""
        if self.session:
            self.forget(self.session)
        self.say(INVALID_OP, False)

    async def hung_up(self) -> None:
        """Wait until the client has closed the connection itself (asyncio tells a server no other way)."""
        while (transport := self._request.transport) and not transport.is_closing():
            await asyncio.sleep(0.02)


def packer(compress: str) -> Callable[[str], str | bytes]:
    """How frames are packed: plain text, or one stream over the whole link, flushed after each frame."""
    if compress == "zlib-stream":
        deflate = zlib.compressobj()
        return lambda frame: deflate.compress(frame.encode()) + deflate.flush(zlib.Z_SYNC_FLUSH)
    return str
