"""What a page is told: the events of its threads, numbered, so that a lost connection goes on without gap or double.

Text is told as changes of its Markdown (`transports.web.live_markdown`). They are made when a page reads, so that
many pieces of a fast answer are one change.

A feed is a bounded ring of events. A page reads it at its own pace from the last number that it has seen; one that
has fallen behind the ring, or comes from before a restart, begins with a snapshot. So a page that stops reading costs
one number. Of an unsettled message a feed keeps all that the page has to know, with the pieces of its text joined.
"""

from __future__ import annotations

import json
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice, takewhile
from time import perf_counter
from typing import cast

from cachetools import FIFOCache
from pydantic import JsonValue

from transports.shared.buttons import is_control
from transports.web.live_markdown import Change, LiveMarkdown

Event = dict[str, JsonValue]

RING_EVENTS, RING_BYTES = 2_000, 1_000_000
MOST_FEEDS = 500
"""Threads without a page and without a running turn whose last events stay in memory."""

MOST_RINGS = 50
"""Of these threads, those used last: a page that comes back gets what it missed. Of others it gets a snapshot."""

MOST_MESSAGES = 20
"""Settled messages of a thread that are remembered with their tools; older ones come from the thread's log."""

MOST_OVER = 5
"""Settled messages of a thread that other workers are told of; older ones come from the thread's log."""

MOST_POSTS = 1_000
TITLE = 80
"""Characters of a thread's first message that its list shows."""

MOST_NOTED = 500
"""Events of one message that are remembered for a snapshot."""


class Ring:
    """The last events of one feed. ``last`` is the number of the newest."""

    def __init__(self) -> None:
        self.last = 0
        self._events: deque[bytes] = deque()
        self._bytes = 0
        self._watching: set[Callable[[], None]] = set()

    def append(self, event: Event) -> None:
        line = json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        self.last += 1
        self._events.append(line)
        self._bytes += len(line)
        while len(self._events) > RING_EVENTS or (self._bytes > RING_BYTES and len(self._events) > 1):
            self._bytes -= len(self._events.popleft())
        self.wake()

    def wake(self) -> None:
        """Wake the pages: there is something for them."""
        for wake in self._watching:
            wake()

    def clear(self) -> None:
        """Forget the events. A page that has not seen all of them gets a snapshot."""
        self._events.clear()
        self._bytes = 0

    def reset(self) -> None:
        """Begin again: every page gets a snapshot."""
        self.clear()
        self.last += 1
        self.wake()

    def since(self, number: int) -> list[bytes] | None:
        """Return the events after that number; None if some of them are gone."""
        missed = self.last - number
        if not 0 <= missed <= len(self._events):
            return None
        return [self._events[place] for place in range(len(self._events) - missed, len(self._events))]

    @property
    def watched(self) -> bool:
        return bool(self._watching)

    @contextmanager
    def watch(self, wake: Callable[[], None]) -> Iterator[None]:
        """Call *wake* for each new event during this block."""
        self._watching.add(wake)
        try:
            yield
        finally:
            self._watching.discard(wake)


@dataclass(slots=True)
class _Message:
    """What a page has to know of a message. ``began``: its turn has begun. ``origin``: the worker that tells.

    ``parts`` are its answer so far, between tools, the last of which ``goes_on``. The events of a settled one are
    stored as JSON, which takes a fraction of the memory.
    """

    origin: str = ""
    began: bool = False
    settled: bool = False
    parts: list[LiveMarkdown] = field(default_factory=list)
    goes_on: bool = False
    _live: list[Event] = field(default_factory=list)
    _stored: str = "[]"

    @property
    def events(self) -> list[Event]:
        stored: list[Event] = json.loads(self._stored) if self.settled else self._live
        return stored

    def note(self, event: Event) -> None:
        match event["op"]:
            case "delta":
                if not self.goes_on:
                    self.parts.append(LiveMarkdown())
                self.parts[-1].grow(str(event["text"]))
                self.goes_on = True
            case "tool":
                self.goes_on = False
            case "reset" if self.goes_on:
                self.parts[-1] = LiveMarkdown()
            case "settled":
                self.parts = []
            case _:
                pass
        events = self._after(event, self.events)
        self._live, self._stored = ([], json.dumps(events)) if self.settled else (events, "[]")

    def changes(self, message_id: str) -> Iterator[Event]:
        """Yield what pages have not been told of the answer so far."""
        for place, part in enumerate(self.parts):
            if changes := part.changes():
                yield _draft(message_id, place, changes)

    def draft(self, message_id: str) -> Iterator[Event]:
        """Yield the answer so far, for a page that has nothing of it."""
        for place, part in enumerate(self.parts):
            yield _draft(message_id, place, [[[], 0, "", part.nodes]])

    def empty_part(self, message_id: str) -> Event:
        """Return what takes the text since the last tool back."""
        return _draft(message_id, len(self.parts) - 1, [[[], 0, "", []]] if self.goes_on else [])

    def same_blocks(self, tree: Sequence[object]) -> int:
        """Return how many blocks of *tree* are shown already, at its beginning."""
        shown = (node for part in self.parts for node in part.nodes)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(tree, shown, strict=False)))

    def _after(self, event: Event, events: list[Event]) -> list[Event]:
        match event["op"]:
            case "delta" if events and events[-1]["op"] == "delta":
                events[-1] = {**event, "text": f"{events[-1]['text']}{event['text']}"}
                return events
            case "thinking" if events and events[-1]["op"] in {"thinking", "delta"}:
                return (
                    events  # a thought is thousands of them, and a page shows it only where it has no words
                )
            case "reset":
                while events and events[-1]["op"] == "delta":
                    events.pop()
            case "resumed":
                return [noted for noted in events if noted["op"] not in {"wait", "resumed"}]
            case "started":
                self.began = True
            case "settled":
                self.settled = True
                events = [noted for noted in events if noted["op"] not in {"delta", "wait"}]
            case _:
                pass
        if len(events) < MOST_NOTED or event["op"] in {"settled", "post", "closed"}:
            events.append(event)
        return events


def _draft(message_id: str, place: int, changes: Sequence[Change]) -> Event:
    return {"op": "draft", "id": message_id, "part": place, "changes": cast("JsonValue", changes)}


class Feed:
    """The events of one thread, its first words here, and which of its last ``posts`` are shown, by key.

    ``cost_s`` is how long the last reading of its text took.
    """

    def __init__(self) -> None:
        self.title, self.cost_s = "", 0.0
        self.ring = Ring()
        self.posts: FIFOCache[str, str] = FIFOCache(MOST_POSTS)
        self._unheard: Event | None = None
        self._written: set[str] = set()
        self._messages: OrderedDict[str, _Message] = OrderedDict()

    @property
    def running(self) -> bool:
        return any(not message.settled for message in self._messages.values())

    @property
    def asks(self) -> bool:
        """Whether a question of a running turn is open."""
        live = [
            event for message in self._messages.values() if not message.settled for event in message.events
        ]
        asked = {event["key"] for event in live if event["op"] == "post" and event["choices"]}
        return bool(asked - {event["key"] for event in live if event["op"] == "closed"})

    @property
    def at_rest(self) -> bool:
        """Return whether no page shows the thread, and nothing of it is unsettled."""
        return not self.ring.watched and not self.running

    def knows(self, message_id: str) -> bool:
        """Return whether anything was told of a message here."""
        return message_id in self._messages

    def began(self, message_id: str) -> bool:
        """Return whether the turn of a message has begun, or is over."""
        message = self._messages.get(message_id)
        return message is not None and (message.began or message.settled)

    def settled(self, message_id: str) -> bool:
        """Return whether a message has an outcome that was told here."""
        return message_id in self._messages and self._messages[message_id].settled

    def publish(self, event: Event, origin: str = "", *, anew: bool = False) -> None:
        """Add an event; ``op`` is its kind, and ``id`` the message that it belongs to.

        Who serves a message tells of it: what another worker, or *anew* the same, had told before is forgotten.
        """
        if event["op"] == "erased":
            self.title, self._unheard = "", None
            for noted in (self.posts, self._written, self._messages):
                noted.clear()
            self.ring.reset()
            return
        known = self._messages.get(str(event["id"]))
        if known is None and event["op"] in {"settled", "reset"}:
            return  # it was settled before this process began: the thread's log has all of it
        if event["op"] == "told":
            self._unheard = event
            self.ring.append(event)
        elif known and event["op"] != "edit" and (anew or known.origin != origin):
            self._messages[str(event["id"])] = _Message(origin)
            self._note(event, origin)
            self.ring.reset()
        elif event["op"] == "delta":
            self._note(event, origin)
            self._written.add(str(event["id"]))
            self.ring.wake()
        else:
            self.write_out()
            told = self._as_told(event, known)
            self._note(event, origin)
            self.ring.append(told)

    def _as_told(self, event: Event, known: _Message | None) -> Event:
        """Return an event as pages are told that have seen all before it."""
        if known and event["op"] == "reset":
            return known.empty_part(str(event["id"]))
        if known and event["op"] == "post" and event.get("key") == event["id"]:
            return {**event, "same": known.same_blocks(cast("list[object]", event["tree"]))}
        return event

    def write_out(self) -> None:
        """Put the text that came since the last time into the ring, for the pages that read it now."""
        began = perf_counter()
        for message_id in self._written:
            if message := self._messages.get(message_id):
                for change in message.changes(message_id):
                    self.ring.append(change)
        if self._written:
            self.cost_s = perf_counter() - began
        self._written.clear()

    def _note(self, event: Event, origin: str) -> None:
        text = str(event.get("text", ""))
        if not self.title and event["op"] in {"message", "started"} and not is_control(text):
            self.title = " ".join(text.split())[:TITLE]
        self._messages.setdefault(str(event["id"]), _Message(origin)).note(event)
        if event["op"] == "settled":
            over = [one for one, message in self._messages.items() if message.settled]
            for message_id in over[:-MOST_MESSAGES]:
                del self._messages[message_id]

    def take_unheard(self) -> list[Event]:
        """Return the reply to a press that no page has read so far: its page may be on its way back."""
        unheard, self._unheard = self._unheard, None
        return [unheard] if unheard else []

    def own(self) -> dict[str, list[Event]]:
        """Return what is noted of the messages that no other worker tells of, of settled ones the newest."""
        own = {one: message for one, message in self._messages.items() if not message.origin}
        old = [one for one, message in own.items() if message.settled][:-MOST_OVER]
        return {one: message.events for one, message in own.items() if one not in old}

    def forget_others(self) -> None:
        """Forget what other workers have told, at the pages too: all of it is told again."""
        others = [one for one, message in self._messages.items() if message.origin]
        for message_id in others:
            del self._messages[message_id]
        if others:
            self.ring.reset()

    def events_of(self, message_id: str) -> list[Event]:
        """Return what is noted of a message."""
        return self._messages[message_id].events if message_id in self._messages else []

    def started_with(self, message_id: str) -> str | None:
        """Return the text with which the turn of a message began, None if it has not begun here."""
        started = (event for event in self.events_of(message_id) if event["op"] == "started")
        return next((str(event.get("text", "")) for event in started), None)

    def noted(self) -> Iterator[Event]:
        """Yield all that is known of the recent messages, in an order that leads to their present state."""
        self.write_out()
        for message_id, message in self._messages.items():
            yield from (event for event in message.events if event["op"] != "delta")
            yield from message.draft(message_id)


class Feeds:
    """The feed of each thread, and the list of threads of each person. The names are those of threads and people."""

    def __init__(self) -> None:
        self._threads: OrderedDict[str, Feed] = OrderedDict()
        self._lists: dict[str, Ring] = {}

    def of(self, thread: str) -> Feed:
        """Return the feed of a thread."""
        if thread not in self._threads:
            if len(self._threads) >= MOST_FEEDS:
                self._drop_oldest()
            self._threads[thread] = Feed()
        self._threads.move_to_end(thread)
        old = next(islice(reversed(self._threads.values()), MOST_RINGS, None), None)
        if old and old.at_rest:
            old.ring.clear()
        return self._threads[thread]

    def list_of(self, person: str) -> Ring:
        """Return the changes of a person's list of threads."""
        return self._lists.setdefault(person, Ring())

    @property
    def known(self) -> Mapping[str, Feed]:
        """The feeds in memory, by thread."""
        return self._threads

    def _drop_oldest(self) -> None:
        for name, feed in self._threads.items():
            if feed.at_rest:
                del self._threads[name]
                return
