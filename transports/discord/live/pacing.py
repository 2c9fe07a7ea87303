"""The pace of signs of work, none of which is urgent: one limit in each channel, another for all of them.

Discord takes about 5 posts and 5 edits in 5 s in a channel, and 50 requests a second from a bot
(docs.discord.com/developers/topics/rate-limits; measured: the call that empties a bucket returns when it is full
again). Beyond that a final text would wait. So most of both limits is left free, and in a channel no sign goes out
before the last one was answered: a final text waits for one sign at most.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import anyio
from cachetools import LRUCache

CHANNEL_S = 1.3
"""Seconds between an answer and the next call: four calls in any 5 s."""

EVERY_S = 0.05
"""Seconds between any two calls."""

REST_FACTOR = 4.0
"""The pause after a sign is so many times what it took to make: signs take a fifth of the time at most."""

MOST_CHANNELS = 4_096
"""Channels whose lane is remembered: a lane that is forgotten has been idle for minutes."""


class EditLane:
    """A queue in which callers are served one after another."""

    __slots__ = ("_lock", "_next_at")

    def __init__(self) -> None:
        self._next_at = 0.0
        self._lock = anyio.Lock()

    @asynccontextmanager
    async def turn(self, pause: float) -> AsyncIterator[None]:
        """Wait for a turn; the next one comes *pause* seconds after its end."""
        async with self._lock:
            while self._next_at > anyio.current_time():  # noqa: ASYNC110 - a pause may come while it sleeps
                await anyio.sleep_until(self._next_at)
            try:
                yield
            finally:
                self._next_at = anyio.current_time() + pause

    def pause(self, seconds: float) -> None:
        """Give no turn for so long."""
        self._next_at = max(self._next_at, anyio.current_time() + seconds)

    @property
    def waiting(self) -> int:
        return self._lock.statistics().tasks_waiting


class Pace:
    """The pace of all signs of a bot."""

    def __init__(self) -> None:
        self._all = EditLane()
        self._channels: LRUCache[str, EditLane] = LRUCache(MOST_CHANNELS)

    @property
    def has_capacity(self) -> bool:
        """Return whether a call would have its turn within a second."""
        return self._all.waiting * EVERY_S < 1

    async def turn(self) -> None:
        """Wait for a call that is no post and no edit."""
        async with self._all.turn(EVERY_S):
            pass

    @asynccontextmanager
    async def turn_in(self, channel: str) -> AsyncIterator[None]:
        """Wait for a post or an edit in the channel; the block makes it."""
        async with self._channels.setdefault(channel, EditLane()).turn(CHANNEL_S):
            await self.turn()
            yield

    @contextmanager
    def work(self) -> Iterator[None]:
        """Measure the block, which makes a sign, and pause all others for some time after it."""
        began = anyio.current_time()
        yield
        self._all.pause(REST_FACTOR * (anyio.current_time() - began))
