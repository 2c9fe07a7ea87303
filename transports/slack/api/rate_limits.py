"""Slack's rate limits: token buckets per workspace and method, shared by all threads.

Slack counts calls a minute per method, workspace and app, and posts about one a second per channel (docs.slack.dev,
"Rate limits"; else what live clients report). A `Bucket` is pure, `RateLimits` waits. `take` waits in line for a
token; `try_take` is refused when only the reserve is left. A 429 pauses the bucket until its Retry-After is over. If
several workers call for one app, each token is one of all of them.
"""

from __future__ import annotations

import itertools
from bisect import insort
from collections.abc import AsyncIterator, Callable, Iterator, MutableMapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import anyio
from cachetools import LRUCache

Clock = Callable[[], float]

TOLERANCE = 1e-6
"""Tolerance for inexact clocks and sums. The bucket keeps the debt, so it never adds up."""

MOST_CHANNELS = 4_096
"""Channels whose bucket is cached. Posts to this many channels take a quarter of an hour, longer than any pause."""

LONGEST_PAUSE_S = 120.0
"""The cap of a Retry-After; then one call goes out to ask again."""


@dataclass(frozen=True, slots=True)
class Rate:
    """At most ``per_minute`` calls in any minute, ``burst`` of them at once after a rest.

    ``first`` more may go at once when a process begins.
    """

    per_minute: int
    burst: int
    first: int = 0

    @property
    def per_second(self) -> float:
        """The steady rate: a burst and the minute after it stay within ``per_minute``."""
        return (self.per_minute - self.burst) / 60

    @property
    def reserve(self) -> int:
        """Half of the burst is for `take`: final texts pass while live edits use all they can."""
        return self.burst // 2


CHANNEL = Rate(56, 1)
"""chat.postMessage in one channel: one a second, with some room for network jitter."""

TIER_2, TIER_3, TIER_4 = Rate(20, 5), Rate(50, 10), Rate(100, 15)

RATES: dict[str, Rate] = {
    "chat.postMessage": Rate(240, 40),  # "several hundred" a minute in the workspace
    **dict.fromkeys(("chat.startStream", "chat.stopStream", "reactions.remove", "usergroups.list"), TIER_2),
    **dict.fromkeys(
        ("chat.update", "chat.delete", "reactions.add", "users.conversations", "agents.sessions.setStatus"),
        TIER_3,
    ),
    **dict.fromkeys(("conversations.history", "conversations.replies"), Rate(50, 10, first=20)),
    "users.info": Rate(100, 40),
    "conversations.info": TIER_3,
    "assistant.threads.setStatus": Rate(60, 10),
}
"""Other methods are tier 4. After a start many threads are looked into at once, and the people of a thread always."""

SHOWING = ("chat.", "files.completeUploadExternal")
"""How the methods begin that show something in a thread, or take it away."""

FLOORS_S: dict[str, float] = {"chat.update": 1.5}
"""An edit redraws the whole message on every screen and marks it; live clients get 429 below 1.5 s."""

FLOOR_S = 1.0
"""Nobody reads faster than one update a second, and a faster stream would use up the workspace's budget."""


def rate_of(method: str) -> Rate:
    return RATES.get(method, TIER_4)


class Bucket:
    """A token bucket, full at first or fuller; ``now`` in seconds of any clock that does not go back."""

    __slots__ = ("_at", "level", "rate")

    def __init__(self, rate: Rate, now: float) -> None:
        self.rate = rate
        self.level = float(rate.burst + rate.first)
        self._at = now

    def wait(self, now: float, *, beyond: int = 0) -> float:
        """Return the seconds until there is a token besides *beyond* others; 0.0 if there is one now."""
        self._refill(now)
        missing = beyond + 1 - self.level
        return missing / self.rate.per_second if missing > TOLERANCE else 0.0

    def take(self, now: float) -> None:
        self._refill(now)
        self.level -= 1

    def pause(self, now: float, seconds: float) -> None:
        """Leave no token for so long, and one then: Slack has counted more than we."""
        self._refill(now)
        self.level = min(self.level, 1 - seconds * self.rate.per_second)

    def _refill(self, now: float) -> None:
        filled = self.level + (now - self._at) * self.rate.per_second
        self.level = max(self.level, min(self.rate.burst, filled))
        self._at = now


class Shared(Protocol):
    """The tokens of all workers together. A rate is a number of tokens a second, and how many may go at once."""

    async def take_token(self, name: str, per_second: float, burst: float) -> float:
        """Take a token; return the seconds until it may be used."""

    async def try_token(self, name: str, per_second: float, burst: float, reserve: float) -> bool:
        """Take a token if that leaves so many. Returns False as well if nobody can tell."""

    async def ensure_ownership(self) -> None:
        """Return once this process is sure of its threads. Raises `Fenced` if it lost them."""


class RateLane:
    """A bucket and the line before it. If *shared* returns any, each token is one of all workers, of that *name*.

    The lowest place goes first. Of the patient calls only the first stands in the common line, so an urgent call
    never waits for more than one here, and another worker's for no more than its first.
    """

    __slots__ = ("_clock", "_line", "_name", "_patient", "_shared", "bucket")

    def __init__(self, rate: Rate, clock: Clock, name: str, shared: Callable[[], Shared | None]) -> None:
        self.bucket, self._clock, self._name, self._shared = Bucket(rate, clock()), clock, name, shared
        self._patient, self._line = anyio.Lock(), list[tuple[int, anyio.Event]]()

    @asynccontextmanager
    async def take(self, places: Iterator[int], *, urgent: bool) -> AsyncIterator[None]:
        """Take a token at the next of *places*, and let nobody else take one within the block."""
        async with nullcontext() if urgent else self._patient:
            insort(self._line, (next(places), turn := anyio.Event()))
            try:
                self._call_first()
                if not turn.is_set():
                    await turn.wait()
                while wait := self.bucket.wait(self._clock()):  # noqa: ASYNC110 - a pause may come while it sleeps
                    await anyio.sleep(wait)
                self.bucket.take(self._clock())
                if shared := self._shared():
                    await anyio.sleep(await shared.take_token(self._name, *self._all))
                yield
            finally:
                self._line = [waiting for waiting in self._line if waiting[1] is not turn]
                self._call_first()

    def _call_first(self) -> None:
        for _, turn in self._line[:1]:
            self._line[0] = (-1, turn)  # it is not passed any more
            turn.set()

    def begin_second(self) -> None:
        """Leave no token for the time of one: the second of a channel begins when its post goes out."""
        self.bucket.pause(self._clock(), 1 / self.bucket.rate.per_second)

    def has_spare(self, now: float) -> bool:
        """Return whether a token beyond the reserve is left, as far as this worker knows, and nobody waits here."""
        return not self._line and not self.bucket.wait(now, beyond=self.bucket.rate.reserve)

    async def take_spare(self, now: float) -> bool:
        self.bucket.take(now)
        shared = self._shared()
        return shared is None or await shared.try_token(self._name, *self._all, self.bucket.rate.reserve)

    @property
    def _all(self) -> tuple[float, float]:
        """Tokens a second, and how many may go at once: no more than there were here, who may have been alone."""
        return self.bucket.rate.per_second, self.bucket.level + 1


class RateLimits:
    """All buckets of one workspace; *clock* must be the one that `anyio.sleep` sleeps by.

    Where several workers call for one app, its rates are *shared*: so much for all of them together. *name* is what
    the settings call the workspace.
    """

    def __init__(
        self,
        clock: Clock = anyio.current_time,
        *,
        shared: Shared | None = None,
        workers: Callable[[], int] = lambda: 1,
        name: str = "slack",
    ) -> None:
        self._clock, self._shared, self.workers, self._name = clock, shared, workers, name
        self._methods, self._places = dict[str, RateLane](), itertools.count()
        self._channels: LRUCache[str, RateLane] = LRUCache(MOST_CHANNELS)

    @property
    def is_shared(self) -> bool:
        """Whether other workers call for the app too."""
        return self._shared is not None

    async def take(self, method: str, channel: str = "", *, urgent: bool = True) -> None:
        """Wait for a call of *method*, in order; urgent calls go first.

        A call that shows something may wait for longer than a lease lasts. Raises `Fenced` if the worker lost it.
        """
        first, *wider = lanes = self._lanes_of(method, channel)
        if not self._sharing() and all(lane.has_spare(self._clock()) for lane in lanes):
            for lane in lanes:  # nobody waits: the usual way, and the cheap one
                lane.bucket.take(self._clock())
            if wider:
                first.begin_second()
        else:
            places = itertools.repeat(next(self._places)) if urgent else self._places
            async with first.take(places, urgent=urgent):
                for lane in wider:
                    async with lane.take(places, urgent=urgent):
                        first.begin_second()
        if self._shared and method.startswith(SHOWING):
            await self._shared.ensure_ownership()

    async def try_take(self, method: str, channel: str = "") -> bool:
        """Take a call only if nobody waits and the reserve stays untouched: for calls that may be dropped."""
        lanes, now = self._lanes_of(method, channel), self._clock()
        if not all(lane.has_spare(now) for lane in lanes):
            return False
        for lane in reversed(lanes):
            if not await lane.take_spare(now):
                return False
        return True

    def pause(self, method: str, seconds: float, channel: str = "") -> None:
        """Stop *method* for all threads, or only posts to *channel*: a 429 and its Retry-After."""
        self._lanes_of(method, channel)[0].bucket.pause(self._clock(), min(seconds, LONGEST_PAUSE_S))

    def spacing(self, method: str, sharers: int) -> float:
        """Return the seconds between calls of *method* for each of *sharers* live drafts here."""
        return max(FLOORS_S.get(method, FLOOR_S), sharers * self.workers() / rate_of(method).per_second)

    def _lanes_of(self, method: str, channel: str) -> list[RateLane]:
        """Return the lanes of a call, the narrowest first."""
        lane = self._lane(self._methods, method, rate_of(method))
        if not channel or method != "chat.postMessage":
            return [lane]
        return [self._lane(self._channels, f"{method} {channel}", CHANNEL), lane]

    def _lane(self, lanes: MutableMapping[str, RateLane], name: str, rate: Rate) -> RateLane:
        if name not in lanes:
            lanes[name] = RateLane(rate, self._clock, f"{self._name} {name}", self._sharing)
        return lanes[name]

    def _sharing(self) -> Shared | None:
        """Return the tokens of all workers. A worker that is alone counts for all of them."""
        return self._shared if self.workers() > 1 else None
