"""What happens to a thread in one worker reaches the pages that are open at another.

| notice | from                    | when                                        | says                              |
|--------|-------------------------|---------------------------------------------|-----------------------------------|
| ask    | a worker with pages     | as one opens, and every `ASK_S`             | whose lists and threads they show |
| told   | a worker that was asked | at a fresh ask, and for `LASTS_S` after any | events of a message               |
| listed | a worker that was asked | as above                                    | a thread's place in a list        |

A fresh ask is answered with all that is noted, ``whole``, in place of what the page knew. So a notice may be lost:
who notices that asks afresh, and who could not send forgets the asks, so that the next one is fresh. What is over is
in the thread's history for all. No turn waits for a notice.
"""

from __future__ import annotations

import json
import logging
import secrets
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import anyio
from cachetools import LRUCache

from transports.base.notices import Notices
from transports.web.feed import Event

log = logging.getLogger(__name__)

ASK_S, LASTS_S = 10.0, 30.0
"""Seconds between the asks of a page that stays open, and how long an ask counts."""

PACE_S = 0.05
"""The least time between two sends: what came meanwhile goes out together."""

PIECE = 7_000
"""Characters of one notice; PostgreSQL carries less than 8,000 bytes."""

MOST_PIECES = 200
"""Notices of one text. A longer one is not sent."""

MOST_QUEUED = 20_000
"""Events that wait to be sent. Beyond, all are dropped, and told whole at the next ask."""

AT_ONCE = 50
MOST_WORKERS = 1_000
TOO_LONG = "This is too long to be shown here while it is new. Reload the page when the turn is over."


class Pages(Protocol):
    """What one worker knows of threads, and has pages of. Threads go by their names."""

    def watched(self) -> tuple[set[str], set[str]]:
        """Return the threads that pages here show, and whose lists."""

    def own(self, thread: str) -> Mapping[str, list[Event]]:
        """Return what is noted of the messages that this worker serves."""

    def busy(self, person: str) -> list[Event]:
        """Return the places in a person's list of the threads that this worker serves now."""

    def forget(self, threads: Iterable[str], people: Iterable[str]) -> None:
        """Forget what other workers have told."""

    def take(self, origin: str, thread: str, message_id: str, event: Event, *, whole: bool) -> None:
        """Show what another worker tells; if *whole*, in place of all that was told of the message."""

    def take_listed(self, person: str, event: Event) -> None:
        """Show a place in a person's list."""


@dataclass(slots=True)
class _Told:
    """Events of a message, or all that is noted of it, for the worker *to* that asked."""

    thread: str
    message_id: str
    events: list[Event]
    to: str = ""

    def joins(self, later: _Told) -> bool:
        """Add what comes later if it is of the same message, and return whether it was."""
        if self.to or later.to or (self.thread, self.message_id) != (later.thread, later.message_id):
            return False
        for event in later.events:
            if event["op"] == "delta" and self.events[-1:] and self.events[-1]["op"] == "delta":
                self.events[-1] = {**event, "text": f"{self.events[-1]['text']}{event['text']}"}
            else:
                self.events.append(event)
        return True

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield a line an event, so that a long state is many texts and not one too long."""
        for place, event in enumerate(self.events):
            about = {"told": [self.thread, self.message_id], "to": self.to}
            yield {**about, "whole": bool(self.to) and not place, "event": event}


class Relay:
    """The notices of one worker. Without *notices* it is the only one, and nothing is sent."""

    def __init__(self, pages: Pages, notices: Notices | None = None) -> None:
        self._pages, self._notices, self._origin = pages, notices, secrets.token_hex(6)
        self._threads, self._people = dict[str, float](), dict[str, float]()
        self._queue: list[_Told | dict[str, Any]] = []
        self._news, self._sent = anyio.Event(), 0
        self._halves: LRUCache[str, list[str]] = LRUCache(MOST_WORKERS)
        self._afresh = True
        if notices:
            notices.heard, notices.missed = self._hear, self._missed

    async def run(self) -> None:
        """Send until cancelled."""
        if self._notices is None:
            return
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._send, self._notices)
            while True:
                await anyio.sleep(ASK_S)
                self.ask(*self._pages.watched(), afresh=self._afresh)

    def ask(self, threads: Iterable[str], people: Iterable[str], *, afresh: bool) -> None:
        """Ask the other workers for these threads and lists; *afresh* if no page here has shown them."""
        wanted = {"threads": sorted(threads), "people": sorted(people)}
        if self._notices is None or not any(wanted.values()):
            return
        if afresh:
            self._pages.forget(wanted["threads"], wanted["people"])
        self._put({"ask": wanted, "afresh": afresh})

    def tell(self, thread: str, event: Event) -> None:
        """Tell an event to the workers that have a page of its thread."""
        if self._threads.get(thread, 0.0) > anyio.current_time():
            self._put(_Told(thread, str(event["id"]), [event]))

    def list(self, person: str, event: Event) -> None:
        """Tell a place in a person's list to the workers that have a page of theirs."""
        if self._people.get(person, 0.0) > anyio.current_time():
            self._put({"listed": person, "event": event})

    def _put(self, notice: _Told | dict[str, Any]) -> None:
        last = self._queue[-1] if self._queue else None
        if isinstance(notice, _Told) and isinstance(last, _Told) and last.joins(notice):
            return
        self._queue.append(notice)
        if len(self._queue) > MOST_QUEUED:
            self._drop()
        self._news.set()

    def _drop(self) -> None:
        """Give up what waits: the asks to come are answered whole."""
        self._queue.clear()
        self._threads.clear()
        self._people.clear()
        self._afresh = True

    async def _send(self, notices: Notices) -> None:
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            queue, self._queue = self._queue, []
            self._afresh = False
            try:
                texts = [piece for notice in queue for piece in self._pieces(notice)]
                for start in range(0, len(texts), AT_ONCE):
                    await notices.send(texts[start : start + AT_ONCE])
            except OSError as error:
                log.debug("web.not_told: %s", error)
                self._drop()
            await anyio.sleep(PACE_S)

    def _pieces(self, notice: _Told | dict[str, Any]) -> Iterator[str]:
        for line in notice.lines() if isinstance(notice, _Told) else [notice]:
            text = json.dumps(line, separators=(",", ":"))
            if len(text) > PIECE:
                text = b64encode(zlib.compress(text.encode(), 1)).decode()
            if len(text) > PIECE * MOST_PIECES:
                text = json.dumps({**line, "event": _shortened(line["event"])})
            self._sent += 1
            starts = range(0, len(text), PIECE)
            for left, start in zip(reversed(range(len(starts))), starts, strict=True):
                yield f"{self._origin} {self._sent} {left} {text[start : start + PIECE]}"

    def _missed(self) -> None:
        self._halves.clear()
        self.ask(*self._pages.watched(), afresh=True)

    def _hear(self, text: str) -> None:
        try:
            self._read(text)
        except Exception:  # the boundary of other workers: what one of another version says ends no task here
            log.warning("web.odd_notice: a notice of another worker cannot be read", exc_info=True)

    def _read(self, text: str) -> None:
        origin, number, left, piece = text.split(" ", 3)
        if origin == self._origin:
            return
        begun = self._halves.pop(origin, [])
        pieces = [*begun, piece] if begun[:1] == [number] else [number, piece]
        if left != "0":
            self._halves[origin] = pieces
        else:
            whole = "".join(pieces[1:])
            if not whole.startswith("{"):
                whole = zlib.decompress(b64decode(whole)).decode()
            self._take(origin, json.loads(whole))

    def _take(self, origin: str, line: dict[str, Any]) -> None:
        own = self._origin
        match line:
            case {"ask": {"threads": threads, "people": people}, "afresh": afresh}:
                for thread in threads:
                    if self._note(self._threads, thread) or afresh:
                        for message_id, events in self._pages.own(thread).items():
                            self._put(_Told(thread, message_id, list(events), to=origin))
                for person in people:
                    if self._note(self._people, person) or afresh:
                        for event in self._pages.busy(person):
                            self._put({"listed": person, "event": event})
            case {"told": [thread, message_id], "to": to, "event": event, "whole": whole} if to in {"", own}:
                self._pages.take(origin, thread, message_id, event, whole=whole)
            case {"listed": person, "event": event}:
                self._pages.take_listed(person, event)
            case _:
                pass  # a newer worker's notice

    @staticmethod
    def _note(asked: dict[str, float], name: str) -> bool:
        """Note an ask, and return whether nobody had asked."""
        now = anyio.current_time()
        fresh = asked.get(name, 0.0) <= now
        for old in [one for one, until in asked.items() if until <= now]:
            del asked[old]
        asked[name] = now + LASTS_S
        return fresh


def _shortened(event: Event) -> Event:
    """Return an event that says that it is too long."""
    words: Event = {"tree": [["p", {}, TOO_LONG]], "text": TOO_LONG, "result": TOO_LONG}
    return {name: words.get(name, value) for name, value in event.items()}
