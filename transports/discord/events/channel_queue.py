"""One queue of work per channel: in order within a channel, and independent of the others."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable

from anyio.abc import TaskGroup

log = logging.getLogger(__name__)

MOST_HELD = 10_000
"""Queued work of all channels together."""

Work = Callable[[], Awaitable[None]]


class ChannelQueues:
    def __init__(self, tasks: TaskGroup) -> None:
        self._tasks = tasks
        self._queues: dict[str, deque[Work]] = {}
        self._held = 0

    def busy(self, channel: str) -> bool:
        """Return whether work waits or runs in a channel."""
        return channel in self._queues

    def put(self, channel: str, work: Work) -> bool:
        """Queue work for a channel. Returns False if too much is waiting already."""
        if self._held >= MOST_HELD:
            return False
        self._held += 1
        if channel in self._queues:
            self._queues[channel].append(work)
        else:
            self._queues[channel] = deque([work])
            self._tasks.start_soon(self._drain, channel)
        return True

    async def _drain(self, channel: str) -> None:
        queue = self._queues[channel]
        try:
            while queue:
                try:
                    await queue[0]()
                except Exception:
                    # The boundary of a transport: one event fails, and the next one is taken in.
                    log.exception("intake.failed: an event in %s was not taken in", channel)
                queue.popleft()
                self._held -= 1
        finally:
            self._held -= len(queue)
            del self._queues[channel]
