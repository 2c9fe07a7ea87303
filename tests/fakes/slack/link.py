"""One websocket of the bot, and the ways in which it dies."""

from __future__ import annotations

import asyncio
import contextlib
import json

from aiohttp import web

from tests.fakes.sockets import reset


class Link:
    """One websocket of the bot. ``frozen``: no data, no pongs; ``silent``: pongs, but no events."""

    def __init__(self, number: int, request: web.Request, socket: web.WebSocketResponse) -> None:
        self.number = number
        self.frozen = self.silent = False
        self.acks = 0
        self.pings = 0
        self._request, self._socket = request, socket
        self._outgoing: asyncio.Queue[str] = asyncio.Queue()
        self._closing: asyncio.Future[None] | None = None

    def send(self, frame: str) -> None:
        self._outgoing.put_nowait(frame)

    async def pump(self) -> None:
        """Put frames on the wire, one by one, until the link is gone."""
        with contextlib.suppress(ConnectionError):
            while True:
                frame = await self._outgoing.get()
                if not self.frozen:
                    await self._socket.send_str(frame)

    def freeze(self) -> None:
        """Half-open: the socket stays, nothing comes from it any more."""
        self.frozen = True

    def silence(self) -> None:
        """Pings are answered, events never come."""
        self.silent = True

    def reset(self) -> None:
        """RST, without a close frame."""
        if transport := self._request.transport:
            reset(transport)

    async def close(self, code: int = 1000) -> None:
        """A close frame."""
        await self._socket.close(code=code, drain=False)

    async def hung_up(self) -> None:
        """Wait until the client has closed the connection itself (asyncio tells a server no other way)."""
        while (transport := self._request.transport) and not transport.is_closing():
            await asyncio.sleep(0.02)

    def disconnect(self, reason: str = "refresh_requested", closes_after: float | None = None) -> None:
        """A disconnect frame: refresh_requested, warning, link_disabled; the link is closed soon after it.

        A warning comes about 10 s ahead, the others at once (here: a tenth of a second, so that the frame is read).
        """
        debug = {"host": "applink-fake"}
        self.send(json.dumps({"type": "disconnect", "reason": reason, "debug_info": debug}))
        if closes_after is None:
            closes_after = 10.0 if reason == "warning" else 0.1
        self._closing = asyncio.ensure_future(self._close_after(closes_after))

    async def _close_after(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self.close()

    def gone(self) -> None:
        if self._closing:
            self._closing.cancel()
