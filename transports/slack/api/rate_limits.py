"""Slack's rate limits: token buckets per workspace and method, shared by all threads.

Slack counts calls a minute per method, workspace and app, and posts about one a second per channel (docs.slack.dev,
"Rate limits"; else what live clients report). A `Bucket` is pure, `Limits` waits. `take` waits in line for a token;
`try_take` is refused when only the reserve is left. A 429 pauses the bucket until its Retry-After is over.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio
from cachetools import LRUCache

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

READS = Rate(50, 10, first=20)
"""Of tier 3 too; after a start many threads are looked into at once."""

RATES: dict[str, Rate] = {
    "chat.postMessage": Rate(240, 60),  # "several hundred" a minute in the workspace
    **dict.fromkeys(("chat.startStream", "chat.stopStream", "reactions.remove"), TIER_2),
    **dict.fromkeys(
        ("chat.update", "chat.delete", "reactions.add", "users.conversations", "agents.sessions.setStatus"),
        TIER_3,
    ),
    **dict.fromkeys(("conversations.history", "conversations.replies"), READS),
    "assistant.threads.setStatus": Rate(60, 10),
}
"""Other methods are tier 4."""

FLOORS_S: dict[str, float] = {"chat.update": 1.5}
"""An edit redraws the whole message on every screen and marks it; live clients get 429 below 1.5 s."""

FLOOR_S = 1.0
"""Nobody reads faster than one update a second, and a faster stream would use up the workspace's budget."""


def rate_of(method: str) -> Rate:
    return RATES.get(method, TIER_4)


class Bucket:
    """A token bucket, full at first or fuller; ``now`` in seconds of any clock that does not go back."""

    __slots__ = ("_at", "_level", "rate")

    def __init__(self, rate: Rate, now: float) -> None:
        self.rate = rate
        self._level = float(rate.burst + rate.first)
        self._at = now

    def wait(self, now: float, *, beyond: int = 0) -> float:
        """Return the seconds until there is a token besides *beyond* others; 0.0 if there is one now."""
        self._refill(now)
        missing = beyond + 1 - self._level
        return missing / self.rate.per_second if missing > TOLERANCE else 0.0

    def take(self, now: float) -> None:
        self._refill(now)
        self._level -= 1

    def pause(self, now: float, seconds: float) -> None:
        """Leave no token for so long, and one then: Slack has counted more than we."""
        self._refill(now)
        self._level = min(self._level, 1 - seconds * self.rate.per_second)

    def _refill(self, now: float) -> None:
        filled = self._level + (now - self._at) * self.rate.per_second
        self._level = max(self._level, min(self.rate.burst, filled))
        self._at = now


class Lane:
    """A bucket and the line before it.

    Of the patient calls only the first stands in the common line, so an urgent call never waits for more than one.
    """

    __slots__ = ("_line", "_patient", "bucket")

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket
        self._line, self._patient = anyio.Lock(), anyio.Lock()

    async def take(self, clock: Callable[[], float], *, urgent: bool) -> None:
        async with self._line if urgent else self._patient:
            if not urgent:
                await self.take(clock, urgent=True)
                return
            while wait := self.bucket.wait(clock()):  # noqa: ASYNC110 - a pause may come while it sleeps
                await anyio.sleep(wait)
            self.bucket.take(clock())

    def has_spare(self, now: float) -> bool:
        """Return whether a token beyond the reserve is left and nobody waits."""
        return not self._line.locked() and not self.bucket.wait(now, beyond=self.bucket.rate.reserve)


class Limits:
    """All buckets of one workspace; *clock* must be the one that `anyio.sleep` sleeps by."""

    def __init__(self, clock: Callable[[], float] = anyio.current_time) -> None:
        self._clock = clock
        self._methods: dict[str, Lane] = {}
        self._channels: LRUCache[str, Lane] = LRUCache(MOST_CHANNELS)

    async def take(self, method: str, channel: str = "", *, urgent: bool = True) -> None:
        """Wait for a call of *method*, in order; urgent calls go first."""
        for lane in self._lanes_of(method, channel):
            await lane.take(self._clock, urgent=urgent)

    def try_take(self, method: str, channel: str = "") -> bool:
        """Take a call only if nobody waits and the reserve stays untouched: for calls that may be dropped."""
        lanes, now = self._lanes_of(method, channel), self._clock()
        if not all(lane.has_spare(now) for lane in lanes):
            return False
        for lane in lanes:
            lane.bucket.take(now)
        return True

    def pause(self, method: str, seconds: float, channel: str = "") -> None:
        """Stop *method* for all threads, or only posts to *channel*: a 429 and its Retry-After."""
        for lane in self._lanes_of(method, channel)[:1]:
            lane.bucket.pause(self._clock(), min(seconds, LONGEST_PAUSE_S))

    def spacing(self, method: str, sharers: int) -> float:
        """Return the seconds between calls of *method* for each of *sharers* live drafts."""
        return max(FLOORS_S.get(method, FLOOR_S), sharers / rate_of(method).per_second)

    def _lanes_of(self, method: str, channel: str) -> list[Lane]:
        """Return the lanes of a call, the narrowest first."""
        if (lane := self._methods.get(method)) is None:
            lane = self._methods[method] = Lane(Bucket(rate_of(method), self._clock()))
        return [self._channel(channel), lane] if channel and method == "chat.postMessage" else [lane]

    def _channel(self, channel: str) -> Lane:
        if (lane := self._channels.get(channel)) is None:
            lane = self._channels[channel] = Lane(Bucket(CHANNEL, self._clock()))
        return lane


POSTING = ("chat.postMessage", "files.completeUploadExternal")
"""Methods that put an answer into a thread."""

TakeShared = Callable[[str, float, float], Awaitable[float]]
"""Takes a token of all workers, by name, rate per second and burst; returns the seconds until it may be used."""


class SharedLimits(Limits):
    """The limits where several workers call for one app.

    Half of each method's rate is for the `take` of all workers together, and of the other half each has its part for
    `try_take`. Posts to one channel are all taken together.

    A post may wait here for longer than a lease lasts, so *ensure_ownership* is awaited once more at the end.
    """

    def __init__(
        self,
        take_shared: TakeShared,
        workers: Callable[[], int],
        ensure_ownership: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__()
        self._take_shared, self.workers = take_shared, workers
        self._ensure_ownership = ensure_ownership
        self._droppable: dict[str, Bucket] = {}

    async def take(self, method: str, channel: str = "", *, urgent: bool = True) -> None:
        await super().take(method, channel, urgent=urgent)
        lanes = self._lanes_of(method, channel)
        for lane, name, part in zip(reversed(lanes), (method, f"{method} {channel}"), (2, 1), strict=False):
            rate = lane.bucket.rate
            burst = max(1, rate.burst // part)
            await anyio.sleep(await self._take_shared(f"slack {name}", rate.per_second / part, burst))
        if method in POSTING:
            await self._ensure_ownership()

    def try_take(self, method: str, channel: str = "") -> bool:
        now, per_minute = self._clock(), max(2, rate_of(method).per_minute // (2 * self.workers()))
        bucket = self._droppable.get(method)
        if bucket is None or bucket.rate.per_minute != per_minute:
            bucket = self._droppable[method] = Bucket(Rate(per_minute, 1), now)
        if bucket.wait(now) or not super().try_take(method, channel):
            return False
        bucket.take(now)
        return True
