"""A chat platform that outlives the bot: it delivers until acknowledged, and keeps every post it took.

Events that were not acknowledged come again, acknowledged ones too; posts are refused, lost, late, or stored without
anyone being told. What was on its way when the process died lands within three seconds of the death, or never.
"""

from __future__ import annotations

import heapq
import random
import re
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import anyio

from threads.errors import (
    PostFailed,
    StoreUnavailable,
    TransportRateLimited,
    TransportRejected,
    TransportUnavailable,
)
from threads.model import (
    Author,
    Deleted,
    Inbound,
    Incoming,
    Outgoing,
    Sink,
    TextDelta,
    ThreadId,
    ToolStarted,
    TurnEvent,
    TurnSettled,
)
from transports.base.transport import Capabilities

from .fate import Died, Fate
from .plan import Plan
from .record import REACTIONS_FROM, Post, Record, Sent
from .write_ahead import WriteAhead

ACK_DEADLINE_S = 3.0
LATE_S = 2.99


People = Callable[[Outgoing], Iterable[tuple[float, str, str]]]
"""From a post with choices to what people do about it: after how many seconds, who, and what they write."""


class TransportBug(Exception):
    """Stands for what a client library throws at its caller."""


@dataclass(slots=True)
class Event:
    payload: Inbound
    key: str
    acknowledged: bool = False
    under_way: int = 0
    tries: int = 0


class Platform:
    """A `transports.base.transport.Transport`."""

    name = "sim"
    state = "connected"
    trouble = ""
    silent_s: float | None = None

    def __init__(self, plan: Plan, fate: Fate, record: Record, write_ahead: WriteAhead) -> None:
        self._write_ahead = write_ahead
        self.capabilities = Capabilities(find=plan.find)
        self.calm = False
        self.watch: Callable[[], None] = lambda: None
        self.settled_on_disk: AbstractSet[str] = frozenset()
        self._plan, self._rates, self._fate, self._record = plan, plan.rates, fate, record
        self._rng: random.Random = fate.rng
        self.people: People = lambda _: ()
        self._count = 0
        self._due: list[tuple[float, int, Event]] = []
        self.events = [Event(payload, _key(payload)) for _, payload in plan.events]
        for event, (at, _) in zip(self.events, plan.events, strict=True):
            self._push(at, event)
        self._pushed = anyio.Event()
        self._settled_now: set[str] = set()
        self._flying: list[Outgoing] = []
        self._sent_at: dict[str, float] = {}

    @property
    def quiet(self) -> bool:
        """Whether everything was delivered."""
        return not self._due and not any(event.under_way for event in self.events)

    def open(self) -> None:
        self._pushed, self._settled_now, self._flying = anyio.Event(), set(), []

    def process_died(self) -> None:
        """Decide what becomes of what was under way, and deliver again what was not acknowledged."""
        now = self._fate.now
        for outgoing in self._flying:
            if self._rng.random() < 0.5:
                self._keep(outgoing, now + self._rng.uniform(0, LATE_S))
        self._record.doubtful |= self._record.sent.keys() - self.settled_on_disk
        waiting = {id(event) for _, _, event in self._due}
        for event in self.events:
            event.under_way = 0
            self._forget_delete(event)
            if not event.acknowledged and id(event) not in waiting:
                self._push(now + self._rng.choice((0.0, 1.0, 60.0)) * self._rng.random(), event)

    def deliver_all_again(self) -> None:
        for event in self.events:
            self._push(self._fate.now + self._rng.random(), event)

    async def serve(self, sink: Sink) -> None:
        async with anyio.create_task_group() as deliveries:
            while True:
                while self._due and self._due[0][0] <= anyio.current_time():
                    event = heapq.heappop(self._due)[2]
                    event.under_way += 1
                    deliveries.start_soon(self._deliver, event, sink)
                    await anyio.sleep(1e-6)
                self._pushed = anyio.Event()
                wait = self._due[0][0] - anyio.current_time() if self._due else float("inf")
                with anyio.move_on_after(wait):
                    await self._pushed.wait()

    async def post(self, outgoing: Outgoing) -> str:
        self._write_ahead.before_post(outgoing)
        dies = self._fate.step(f"post {outgoing.key} {outgoing.kind}")
        self._sent_at[outgoing.key] = self._fate.now
        self._flying.append(outgoing)
        if dies:
            if self._rng.random() < 0.3:
                self._flying.remove(outgoing)
                self._keep(outgoing)
            self._fate.die()
        try:
            return await self._post(outgoing)
        except PostFailed as error:
            self._record.refused[outgoing.key] += 1
            if error.maybe_posted:
                self._record.doubtful.add(outgoing.key)
            self._fate.note(f"refused {outgoing.key} {error}")
            raise
        finally:
            if outgoing in self._flying and not (self._fate.dead or self._fate.leaving):
                self._flying.remove(outgoing)

    async def find(self, thread: ThreadId, key: str) -> str | None:
        if self._fate.step(f"find {key}"):
            self._fate.die()
        await anyio.sleep(self._rng.uniform(0, 0.2))
        if self._down() or (not self.calm and self._rng.random() < self._rates.find):
            self._record.refused[key] += 1
            self._record.blind.add(key)
            raise TransportUnavailable("cannot look")
        now = anyio.current_time()
        posts = (n for n, post in enumerate(self._record.posts) if post.key == key and post.at <= now)
        return next((f"p{n}" for n in posts), None)

    async def reconnected(self) -> None:
        """Return at once."""

    def show(self, thread: ThreadId, message_id: str, event: TurnEvent) -> None:
        if self._fate.dead:
            raise Died
        key = f"{thread.transport}:{thread.workspace}:{thread.channel}:{message_id}"
        if isinstance(event, TextDelta | ToolStarted):
            self._write_ahead.before_effect(key, type(event).__name__)
        if not isinstance(event, TurnSettled):
            return
        self._fate.note(f"settled {key} {event.outcome}")
        if key in self._settled_now:
            self._record.violations.append(f"{key} settled twice in one process")
        self._settled_now.add(key)
        before = self._record.shown.setdefault(key, event.outcome)
        if before != event.outcome and key not in self._record.doubtful:
            self._record.violations.append(
                f"{key} settled as {self._record.shown[key]}, then {event.outcome}"
            )

    async def _post(self, outgoing: Outgoing) -> str:
        rng = self._rng
        await anyio.sleep(rng.uniform(0, 0.5))
        if str(outgoing.thread) in self._plan.rejecting:
            self._record.rejected.add(outgoing.key)
            raise TransportRejected("channel is gone")
        match self._fault():
            case "limited":
                raise TransportRateLimited("slow down", retry_after=rng.uniform(0.1, 30))
            case "too_long":
                self._record.rejected.add(outgoing.key)
                raise TransportRateLimited("come back tomorrow", retry_after=50_000)
            case "before":
                raise TransportUnavailable("503")
            case "unknown":
                raise TransportUnavailable("reset", maybe_posted=True)
            case "after":
                self._keep(outgoing)
                raise TransportUnavailable("500 after the fact", maybe_posted=True)
            case "hang":
                await self._hang(outgoing)
            case "bug":
                if rng.random() < 0.5:
                    self._keep(outgoing)
                self._record.doubtful.add(outgoing.key)
                self._record.refused[outgoing.key] += 1
                raise TransportBug("secret payload")
            case _:
                pass
        post_id = self._keep(outgoing)
        await anyio.sleep(rng.uniform(0, 0.5))
        return post_id

    async def _hang(self, outgoing: Outgoing) -> None:
        self._record.refused[outgoing.key] += 1
        self._record.doubtful.add(outgoing.key)
        await anyio.sleep(self._rng.uniform(0, 20))
        if self._rng.random() < 0.5:
            self._keep(outgoing)
        await anyio.sleep_forever()

    def _fault(self) -> str:
        if self._down():
            return "before"
        if not self.calm:
            for fault, rate in self._rates.post.items():
                if rate and self._rng.random() < rate:
                    return fault
        return ""

    def _down(self) -> bool:
        start, end = self._plan.outage
        return start <= self._fate.clock() < end

    def _keep(self, outgoing: Outgoing, at: float | None = None) -> str:
        if outgoing in self._flying:
            self._flying.remove(outgoing)
        at = self._fate.clock() if at is None else at
        place = outgoing.key, str(outgoing.thread)
        self._record.posts.append(
            Post(at, *place, outgoing.text, outgoing.kind, self._sent_at.get(place[0], at))
        )
        self._fate.note(f"kept {outgoing.key} {outgoing.text!r}")
        for delay, author, text in self.people(outgoing):
            self._react(outgoing.thread, at + delay, author, text)
        return f"p{len(self._record.posts) - 1}"

    def _react(self, thread: ThreadId, at: float, author: str, text: str) -> None:
        """Have somebody write a command because of a post."""
        number = REACTIONS_FROM + len(self.events)
        incoming = Incoming(f"m{thread.root.partition('.')[0]}-{number}", thread, Author(author), text)
        self._record.sent[incoming.key] = Sent(
            incoming.key, incoming.id, str(thread), number, text, author=author
        )
        self.events.append(event := Event(incoming, incoming.key))
        self._push(at, event)

    async def _deliver(self, event: Event, sink: Sink) -> None:
        rng = self._rng
        event.tries += 1
        if not event.acknowledged and event.tries < 4:
            self._push(anyio.current_time() + ACK_DEADLINE_S * rng.uniform(1, 2), event)
            if rng.random() < self._rates.twin:
                self._push(anyio.current_time() + rng.choice((0.0, 0.01)), event)
        if isinstance(event.payload, Deleted):
            self._record.sent[event.key].deleted = True
        patience = (
            rng.uniform(0, 1) if rng.random() < self._rates.cut_sink and not self.calm else float("inf")
        )
        self._fate.note(f"deliver {type(event.payload).__name__} {event.key}")
        try:
            with anyio.move_on_after(patience) as cut:
                await sink(event.payload)
        except StoreUnavailable:
            self._not_taken(event)
        else:
            if cut.cancelled_caught:
                self._not_taken(event)
            else:
                self._acknowledge(event)
        event.under_way -= 1

    def _not_taken(self, event: Event) -> None:
        """Deliver the event again, unless another copy of it was acknowledged."""
        self._forget_delete(event)
        if not event.acknowledged:
            self._push(anyio.current_time() + self._rng.uniform(0.1, 30), event)

    def _acknowledge(self, event: Event) -> None:
        if self._fate.step(f"ack {type(event.payload).__name__} {event.key}"):
            self._fate.die()
        self.watch()
        first, event.acknowledged = not event.acknowledged, True
        sent = self._record.sent[event.key]
        if isinstance(event.payload, Incoming):
            sent.acknowledged = True
        elif isinstance(event.payload, Deleted) and sent.deleted_at is None and self._knows(event.key):
            sent.deleted_at = self._fate.clock()
        while first and self._rng.random() < self._rates.duplicate:
            self._push(self._fate.clock() + self._rng.choice((0.0, 1.0, 400.0)) * self._rng.random(), event)

    def _knows(self, key: str) -> bool:
        """Say whether the bot has the message, or is just taking it."""
        mine = (event for event in self.events if event.key == key and isinstance(event.payload, Incoming))
        return any(event.acknowledged or event.under_way for event in mine)

    def _forget_delete(self, event: Event) -> None:
        """A message that was not taken after all comes as a new one: its delete did not count."""
        if isinstance(event.payload, Incoming) and not event.acknowledged:
            self._record.sent[event.key].deleted_at = None

    def _push(self, at: float, event: Event) -> None:
        self._count += 1
        heapq.heappush(self._due, (at, self._count, event))
        if hasattr(self, "_pushed"):
            self._pushed.set()


def _key(payload: Inbound) -> str:
    thread = payload.thread
    return f"{thread.transport}:{thread.workspace}:{thread.channel}:{payload.id}"


def tokens(text: str) -> list[tuple[int, int, int]]:
    """Return the (thread, message, version) marks in *text*."""
    return [(int(a), int(b), int(c)) for a, b, c in re.findall(r"tk(\d+)x(\d+)x(\d+)z", text)]
