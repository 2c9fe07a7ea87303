"""The pages that a running bot answers: over a socket in its data folder, and on a loopback port if one is set.

| path       | answer                                                                                 |
|------------|----------------------------------------------------------------------------------------|
| `/healthz` | 200 while systemd's watchdog would be fed, else 503 and why; see `bot.observe.watchdog`  |
| `/readyz`  | 200 when a transport is connected and nothing stops, else 503 and why                  |
| `/status`  | all of `bot.ports.status.Status`, as JSON                                            |
| `/metrics` | for Prometheus, where there are metrics                                                |

Nothing can be changed here, and nothing is read but the first line and the ``Host``. A port is open to every page
that a browser on this machine shows, so a request over it must call us by a loopback name. One request a connection,
5 s for it, 16 at once: whoever asks oddly is hung up on, and the bot never notices.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import anyio
import h11
from anyio.abc import ByteStream
from pydantic import TypeAdapter

from bot.observe.watchdog import Vitals
from bot.ports.status import Status

log = logging.getLogger(__name__)

PLAIN = "text/plain; charset=utf-8"
WITHIN_S = 5.0
AT_ONCE = 16
MAX_HEAD = 8_192
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_GONE = (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, h11.ProtocolError)


@dataclass(frozen=True, slots=True)
class Page:
    body: bytes
    status: int = 200
    kind: str = PLAIN


Pages = Mapping[str, Callable[[], Page]]
Metrics = Callable[[Status], tuple[bytes, str]]
"""Returns what Prometheus reads, and its content type."""


def pages(vitals: Vitals, metrics: Metrics | None) -> Pages:
    def verdict(trouble: str) -> Page:
        return Page(f"{trouble or 'ok'}\n".encode(), 503 if trouble else 200)

    def told(metrics: Metrics) -> Page:
        body, kind = metrics(vitals.status())
        return Page(body, kind=kind)

    adapter = TypeAdapter(Status)
    own: Pages = {
        "/healthz": lambda: verdict(vitals.ailment),
        "/readyz": lambda: verdict(vitals.unready),
        "/status": lambda: Page(adapter.dump_json(vitals.status()), kind="application/json"),
    }
    return own if metrics is None else {**own, "/metrics": lambda: told(metrics)}


class Answering:
    """Answers one connection after the other, side by side; ``checks_host`` is for where a browser could ask."""

    def __init__(self, given: Pages, *, checks_host: bool) -> None:
        self._pages, self._checks_host = given, checks_host
        self._open = 0

    async def answer(self, stream: ByteStream) -> None:
        """Answer one request and hang up. Raises nothing."""
        self._open += 1
        try:
            async with stream:
                if self._open <= AT_ONCE:
                    with anyio.move_on_after(WITHIN_S):
                        await self._converse(stream)
        except _GONE as error:
            log.debug("health.hung_up: %s", error)
        finally:
            self._open -= 1

    async def _converse(self, stream: ByteStream) -> None:
        peer = h11.Connection(h11.SERVER, MAX_HEAD)
        while (event := peer.next_event()) is h11.NEED_DATA:
            peer.receive_data(await stream.receive(MAX_HEAD))
        if not isinstance(event, h11.Request):
            return
        page = self._page(event)
        headers = {
            "Content-Type": page.kind,
            "Content-Length": str(len(page.body)),
            "Cache-Control": "no-store",
            "Connection": "close",
        }
        said = peer.send(h11.Response(status_code=page.status, headers=list(headers.items()))) or b""
        if event.method != b"HEAD":
            said += peer.send(h11.Data(data=page.body)) or b""
        await stream.send(said)

    def _page(self, asked: h11.Request) -> Page:
        if self._checks_host and _host(asked) not in LOOPBACK:
            return Page(b"ask by a loopback name\n", 403)
        if asked.method not in (b"GET", b"HEAD"):
            return Page(b"nothing can be changed here\n", 405)
        page = self._pages.get(asked.target.decode("ascii").partition("?")[0])
        if page is None:
            return Page(b"there is no such page\n", 404)
        try:
            return page()
        except (
            Exception
        ):  # the boundary of a page: it looks into everything, and must not end what it looks at
            log.exception("health.page_failed")
            return Page(b"this page has failed, see the log\n", 500)


def _host(asked: h11.Request) -> str:
    """Return the name that we are called by, without the port."""
    host = next((value.decode("latin-1") for name, value in asked.headers if name == b"host"), "")
    name, _, port = host.rpartition(":")
    return (name if name and port.isdecimal() else host).lower()
