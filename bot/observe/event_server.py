"""Streams the events as JSON lines to followers on the socket of the data folder.

| parameter       | meaning                                                                  |
|-----------------|--------------------------------------------------------------------------|
| `since=SEQ`     | only events after this number; without it, all that the ring has         |
| `kind=KIND`     | only this kind; may be repeated. Gaps are always told                    |
| `thread=ID`     | only this thread: its id, or the end of it                               |
| `follow=1`      | go on with new events until one of the two hangs up                      |

At most `MOST_FOLLOWERS` are served. One that reads nothing for `STUCK_S` is cut. One that reads too slowly for the
ring is cut with a last line that says how many events it lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import parse_qs

import anyio
import h11
from anyio.abc import ByteStream
from pydantic import JsonValue

from bot.guards.redaction import Masker
from bot.observe.event_lines import KINDS, encode
from bot.observe.event_stream import EventStream, WantedKinds
from bot.observe.logs import cleaned
from threads.background import background_tasks

log = logging.getLogger(__name__)

MOST_FOLLOWERS = 8
STUCK_S = 60.0
REMEMBERED = 10_000
"""Masked texts. To mask one takes 50 microseconds, and the ids and names of many events are the same."""

_GONE = (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)


@dataclass(frozen=True, slots=True)
class Following:
    """A request: which events, after which number, and whether to go on with new ones."""

    wanted: WantedKinds
    since: int | None
    follow: bool


@dataclass(slots=True)
class EventServer:
    """Serves one stream. ``mask`` removes secrets from every text."""

    events: EventStream
    mask: Masker
    followers: int = field(default=0, init=False)
    _masked: Callable[[str, int], str] = field(init=False)

    def __post_init__(self) -> None:
        self._masked = lru_cache(REMEMBERED)(lambda text, _: self.mask(text))

    def parse(self, query: str) -> Following | str:
        """Return what is asked for, or what is wrong with that."""
        given: Mapping[str, list[str]] = parse_qs(query, keep_blank_values=True, errors="replace")
        if odd := [kind for kind in given.get("kind", ()) if kind not in KINDS]:
            return f"there is no kind {odd[0][:40]!r}; there are: {', '.join(KINDS)}"
        since = given.get("since", [""])[-1]
        if since and not (since.isascii() and since.isdecimal() and len(since) < 18):
            return "since must be the seq of an event"
        if self.followers >= MOST_FOLLOWERS:
            return f"{MOST_FOLLOWERS} others follow the events already"
        wanted = WantedKinds(frozenset(given.get("kind", ())), given.get("thread", [""])[-1])
        return Following(wanted, int(since) if since else None, "follow" in given)

    async def stream(self, stream: ByteStream, peer: h11.Connection, asked: Following) -> None:
        """Send lines until the end, the follower hangs up, or it is cut."""
        self.followers += 1
        try:
            async with background_tasks() as tasks:
                tasks.start_soon(_until_gone, stream, tasks.cancel_scope)
                with suppress(*_GONE):
                    await self._send(stream, peer, asked)
        finally:
            self.followers -= 1

    async def _send(self, stream: ByteStream, peer: h11.Connection, asked: Following) -> None:
        headers = {"Content-Type": "application/x-ndjson", "Cache-Control": "no-store", "Connection": "close"}
        await stream.send(peer.send(h11.Response(status_code=200, headers=list(headers.items()))) or b"")
        async with aclosing(self.events.read(asked.wanted, asked.since, follow=asked.follow)) as batches:
            async for lines in batches:
                data = b"".join(encode(line, self._clean) for line in lines)
                with anyio.move_on_after(STUCK_S) as scope:
                    await stream.send(peer.send(h11.Data(data=data)) or b"")
                if scope.cancelled_caught:
                    log.info("events.follower_cut: it has read nothing for %.0f s", STUCK_S)
                    return
        await stream.send(peer.send(h11.EndOfMessage()) or b"")

    def _clean(self, line: dict[str, JsonValue]) -> dict[str, JsonValue]:
        generation = self.mask.generation
        return {
            name: cleaned(value, lambda text: self._masked(text, generation)) for name, value in line.items()
        }


async def _until_gone(stream: ByteStream, scope: anyio.CancelScope) -> None:
    """Cancel *scope* when the follower hangs up: an idle bot would notice it at the next event only."""
    with suppress(*_GONE):
        while True:
            await stream.receive()
    scope.cancel()
