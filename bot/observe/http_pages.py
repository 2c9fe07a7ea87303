"""The HTTP pages of the running bot, on a socket in its data folder and, if one is set, on a loopback port.

| path       | answer                                                                                 |
|------------|----------------------------------------------------------------------------------------|
| `/healthz` | 200 while systemd's watchdog is fed, else 503 and the reason; see `bot.observe.watchdog` |
| `/readyz`  | 200 if a transport is connected and the bot is not stopping, else 503 and the reason    |
| `/status`  | `bot.ports.status.Status` as JSON                                                       |
| others     | of extensions, such as `/metrics` for Prometheus                                        |
| `/events`  | a stream of `bot.observe.event_lines`, on the socket only; see `bot.observe.event_server` |
| a POST     | what an extension takes, on the socket only                                             |

The pages are read-only, and of a request for one only its line and the ``Host`` header are read. Every web page in a
browser on this machine can reach a port, so requests to the port must use a loopback host name. Each connection
serves one request within 5 s, and at most 16 are served at once. Anything else is closed. A stream and a POST are not
among these 16.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from json import dumps
from types import MappingProxyType

import anyio
import h11
from anyio.abc import ByteStream

from bot.observe.event_server import EventServer
from bot.observe.live_parts import Posts
from bot.observe.watchdog import Watchdog
from bot.ports.status import EVENTS, Status

log = logging.getLogger(__name__)

PLAIN = "text/plain; charset=utf-8"
WITHIN_S = 5.0
AT_ONCE = 16
MAX_HEAD = 8_192
CLOSING = ("Cache-Control", "no-store"), ("Connection", "close")
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_GONE = (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, h11.ProtocolError)


@dataclass(frozen=True, slots=True)
class HttpPage:
    body: bytes
    status: int = 200
    kind: str = PLAIN


Pages = Mapping[str, Callable[[], HttpPage]]
StatusPages = Mapping[str, Callable[[Status], HttpPage]]

NO_POSTS: Posts = MappingProxyType({})


def pages(watchdog: Watchdog, others: StatusPages) -> Pages:
    def verdict(trouble: str) -> HttpPage:
        return HttpPage(f"{trouble or 'ok'}\n".encode(), 503 if trouble else 200)

    def of(page: Callable[[Status], HttpPage]) -> Callable[[], HttpPage]:
        return lambda: page(watchdog.status())

    return {
        "/healthz": lambda: verdict(watchdog.fault),
        "/readyz": lambda: verdict(watchdog.unready),
        "/status": lambda: HttpPage(dumps(watchdog.status().document()).encode(), kind="application/json"),
        **{path: of(page) for path, page in others.items()},
    }


class PageServer:
    """Serves the pages. ``checks_host`` is for ports, which a browser can reach; *events* and *posts* are not."""

    def __init__(
        self, pages: Pages, *, checks_host: bool, events: EventServer | None = None, posts: Posts = NO_POSTS
    ) -> None:
        self._pages, self._checks_host, self._events, self._posts = pages, checks_host, events, posts
        self._open = 0

    async def serve(self, stream: ByteStream) -> None:
        """Serve one request and close the connection. Raises nothing."""
        try:
            async with stream:
                if self._open < AT_ONCE and (follow := await self._serve_page(stream)):
                    await follow()
        except _GONE as error:
            log.debug("health.hung_up: %s", error)

    async def _serve_page(self, stream: ByteStream) -> Callable[[], Awaitable[None]] | None:
        """Serve a page in time, or return what streams the events or takes a POST."""
        self._open += 1
        try:
            with anyio.move_on_after(WITHIN_S):
                return await self._respond(stream)
        finally:
            self._open -= 1
        return None

    async def _respond(self, stream: ByteStream) -> Callable[[], Awaitable[None]] | None:
        peer = h11.Connection(h11.SERVER, MAX_HEAD)
        while (event := peer.next_event()) is h11.NEED_DATA:
            peer.receive_data(await stream.receive(MAX_HEAD))
        if not isinstance(event, h11.Request):
            return None
        path, _, query = event.target.decode("ascii").partition("?")
        if event.method == b"POST" and path in self._posts:
            return partial(self._posts[path], stream, peer, event)
        if self._events is not None and path == EVENTS and event.method == b"GET":
            wanted = self._events.parse(query)
            if not isinstance(wanted, str):
                return partial(self._events.stream, stream, peer, wanted)
            page = HttpPage(f"{wanted}\n".encode(), 400)
        else:
            page = self._page(event)
        await stream.send(encoded(page, peer, head_only=event.method == b"HEAD"))
        return None

    def _page(self, request: h11.Request) -> HttpPage:
        if self._checks_host and _host(request) not in LOOPBACK:
            return HttpPage(b"use a loopback host name\n", 403)
        if request.method not in (b"GET", b"HEAD"):
            return HttpPage(b"this page is read-only\n", 405)
        if (page := self._pages.get(request.target.decode("ascii").partition("?")[0])) is None:
            return HttpPage(b"no such page\n", 404)
        try:
            return page()
        except Exception:  # the boundary of a page: a failing page must not end the bot
            log.exception("health.page_failed")
            return HttpPage(b"this page failed; see the log\n", 500)


def encoded(page: HttpPage, peer: h11.Connection, *, head_only: bool = False) -> bytes:
    """Return the bytes of the answer that this page is. The connection ends after it."""
    headers = [("Content-Type", page.kind), ("Content-Length", str(len(page.body))), *CLOSING]
    head = peer.send(h11.Response(status_code=page.status, headers=headers)) or b""
    return head if head_only else head + (peer.send(h11.Data(data=page.body)) or b"")


def _host(request: h11.Request) -> str:
    """Return the host name of a request, without the port."""
    host = next((value.decode("latin-1") for name, value in request.headers if name == b"host"), "")
    name, _, port = host.rpartition(":")
    return (name if name and port.isdecimal() else host).lower()
