"""Starts the turns of accepted events: a post in the channel, then a message in the thread of that post.

The post has a key, so after a crash it is found again. The message has the id of the post, so the journal takes it
once. What was sent is in it as text from outside: no command in it is obeyed, and tools ask before they change
things.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import UTC, datetime

import anyio

from bot.extensions.events.accepted import AcceptedEvents, Event
from bot.host.extension import Host
from threads.delivery import LATE_POST_S
from threads.errors import Fenced, PostFailed, StoreUnavailable, error_fields
from threads.model import Author, Incoming, Outgoing, Sink, ThreadId
from threads.scheduled_messages import scheduled_id, shortened

log = logging.getLogger(__name__)

POLL_S = 10.0
AGAIN_S = 30.0
"""Pause after an event could not be started."""

LATE_S = 60.0
GIVEN_UP_S = 24 * 3600.0

PROMPT = "An event came from outside. Say what it is about, and what follows from it."


def author_of(source: str) -> Author:
    """Return who the turns of a source belong to: access, scopes and budgets know it by this id."""
    return Author(f"event:{source}", source)


def post_of(event: Event) -> Outgoing:
    """Return the post of an event, whose words are shown as code: they link, mention and imitate nothing."""
    due = datetime.fromtimestamp(event.at, UTC)
    # Platforms look for a post from the time on that its key names, as for those of schedules.
    key = f"event:{event.source}:{scheduled_id(event.id.partition(':')[2], due)}"
    asks = f": {shortened(event.asks)}" if event.asks else ""
    text = f"📨 Event from {event.source}{asks}\n`{shortened(event.text).replace('`', chr(39))}`"
    return Outgoing(ThreadId.parse(f"{event.channel}:"), key, text, "notice", again=event.tried)


@dataclass(slots=True)
class Starter:
    host: Host
    accepted: AcceptedEvents
    _sink: Sink | None = None
    _served: anyio.Event = field(default_factory=anyio.Event)
    _at_work: set[str] = field(default_factory=set)

    def receiving(self, sink: Sink) -> Sink:
        """Take the sink of all events, through which the turns begin."""
        self._sink = sink
        self._served.set()
        return sink

    def troubles(self) -> str:
        """Return a clause on events that could not be started, or a blank."""
        late = sum(self.accepted.now() - event.at > LATE_S for event in self.accepted.state.value.waiting)
        return f"{late} events wait to be posted; the log says why (event.not_started)" if late else ""

    async def run(self) -> None:
        """Start what is accepted, until cancelled."""
        await self._served.wait()
        async with anyio.create_task_group() as tasks:
            while True:
                changed = self.accepted.changed
                try:
                    for event in await self.accepted.claim(self._at_work):
                        self._at_work.add(event.id)
                        tasks.start_soon(self._start, event)
                except StoreUnavailable as error:
                    log.warning("event.waits: for the store: %s", error, extra=error_fields(error))
                with anyio.move_on_after(POLL_S):
                    await changed.wait()

    async def _start(self, event: Event) -> None:
        """Start an event, however often it takes: a post has a key, and the journal takes a message once."""
        while True:
            try:
                if self.accepted.now() - event.at > GIVEN_UP_S:
                    log.error("event.given_up: %s: it could not be posted for a day", event.id)
                else:
                    await self._begin(event)
                await self.accepted.update(event.id)
                return self._at_work.discard(event.id)
            except (PostFailed, StoreUnavailable, Fenced) as error:
                log.warning("event.not_started: %s: %s", event.id, error, extra=error_fields(error))
            event = event.model_copy(update={"tried": True})
            await anyio.sleep(AGAIN_S)

    async def _begin(self, event: Event) -> None:
        """Post it, and make its turn durable. Raises `PostFailed`, `StoreUnavailable` and `Fenced`."""
        assert self._sink is not None
        if not (root := event.root):
            if event.tried:
                await anyio.sleep(LATE_POST_S)  # a post may still land after its process died
            root = await self.host.post(post_of(event))
            await self.accepted.update(event.id, root=root)
        thread, author = ThreadId.parse(f"{event.channel}:{root}"), author_of(event.source)
        at, asks = datetime.fromtimestamp(event.at, UTC).isoformat(), event.asks or PROMPT
        await self._sink(Incoming(root, thread, author, asks, at, via="mention", quoted=event.text))
