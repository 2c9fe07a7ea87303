"""A page's stream of events, as server-sent events over one response that does not end.

Its first event is a snapshot, unless the page says what it has seen and the feed still has all that came after. The
id of an event is ``<process>.<number in the list>.<number in the thread>``.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack

import anyio
import anyio.lowlevel
from starlette.types import Receive, Scope, Send

from threads.background import background_tasks
from transports.web.events import in_order
from transports.web.feed import Event, Feed, Ring

log = logging.getLogger(__name__)

PROCESS = secrets.token_hex(6)
"""Numbers of another process mean nothing here."""

PACE_S, WRITES_PER_S = 0.04, 1_000
"""The least time between two writes of text to a page, and how many writes all pages together may cost the turns.

The first text goes out at once. What comes meanwhile goes out together, after that time.
"""

SHARE, SHARE_OF_ALL = 10, 4
"""Reading text as Markdown takes at most a tenth of the time of one page, and a quarter of that of all together."""

PING_S = 20.0
"""Seconds of silence after which a line without meaning goes out, so that a dead connection is noticed."""

WRITE_S = 30.0
"""A page that takes nothing for so long is cut off."""

RETRY_MS = 1_000
_ID = re.compile(rf"{PROCESS}\.(\d{{1,15}})\.(\d{{1,15}})")
_DRAFT = b'{"op":"draft"'
_HEADERS = [(b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"no")]


class Stream:
    """An ASGI response. *snapshot* returns what a page without a past has to know of the thread.

    Without a *feed* it tells of the list of threads alone. It is one of *streams* while it is open. It ends once
    *may_go_on* says no: a page that asks again is told why.
    """

    def __init__(
        self,
        person: str,
        thread: str,
        names: Ring,
        feed: Feed | None,
        snapshot: Callable[[], Awaitable[list[Event]]],
        last_id: str,
        streams: set[Stream],
        may_go_on: Callable[[], bool],
    ) -> None:
        self.person, self.thread = person, thread
        self._names, self._feed, self._snapshot, self._streams = names, feed, snapshot, streams
        self._may_go_on = may_go_on
        seen = _ID.fullmatch(last_id)
        self._seen = (int(seen[1]), int(seen[2])) if seen else (-1, -1)
        self._news = anyio.Event()
        self._ended = False

    @property
    def _pace_s(self) -> float:
        pages, cost_s = len(self._streams), self._feed.cost_s if self._feed else 0.0
        return max(PACE_S, pages / WRITES_PER_S, cost_s * max(SHARE, SHARE_OF_ALL * pages))

    def end(self) -> None:
        """End the stream: the bot stops."""
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        self._news.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        with ExitStack() as watching:
            for ring in (self._names, *([self._feed.ring] if self._feed else [])):
                watching.enter_context(ring.watch(self._wake))
            self._streams.add(self)
            watching.callback(self._streams.discard, self)
            async with background_tasks() as tasks:
                tasks.start_soon(_until_left, receive, tasks.cancel_scope)
                try:
                    await self._write(send)
                except TimeoutError:
                    scope["state"]["abort"]()  # what is on its way to it would stay in memory
                    await anyio.sleep_forever()  # until the server says that it is gone
                except OSError as error:  # the page asks again by itself
                    log.warning("web.not_read: %s", error)
                    await send({"type": "http.response.body", "body": b""})

    async def _write(self, send: Send) -> None:
        async for chunk in self._chunks():
            with anyio.fail_after(WRITE_S):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _chunks(self) -> AsyncIterator[bytes]:
        yield b"retry: %d\n\n" % RETRY_MS
        while not self._ended and self._may_go_on():
            self._news = anyio.Event()
            if lines := await self._lines():
                yield _chunk(lines, self._seen)
                if lines[-1].startswith(_DRAFT):
                    await anyio.sleep(self._pace_s)
                else:
                    await anyio.lowlevel.checkpoint()
                continue
            with anyio.move_on_after(PING_S):
                await self._news.wait()
                continue
            yield b": \n\n"

    async def _lines(self) -> list[bytes]:
        """Return the events that the page has not seen."""
        names, number = self._seen
        listed = self._names.since(names)
        told = [_line({"op": "list"})] if listed is None else listed
        names = self._names.last
        if self._feed:
            self._feed.write_out()
            events = self._feed.ring.since(number)
            if events is None:
                # What came while the log was read is in the feed, and is told once more: that changes nothing.
                known = in_order([*await self._snapshot(), *self._feed.noted()])
                events = [
                    _line({"op": "snapshot", "events": [*known]}),
                    *map(_line, self._feed.take_unheard()),
                ]
            self._feed.take_unheard()  # the ring has it too
            told, number = [*told, *events], self._feed.ring.last
        self._seen = (names, number)
        return told


async def _until_left(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


def _line(event: Event) -> bytes:
    return json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _chunk(lines: list[bytes], seen: tuple[int, int]) -> bytes:
    """Return some events as one, so that its id holds for all of them."""
    return b"id: %s.%d.%d\ndata: [%s]\n\n" % (PROCESS.encode(), *seen, b",".join(lines))
