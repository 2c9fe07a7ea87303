"""One line of work per channel: in each, one thing after the other; none waits for another channel."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable

from anyio.abc import TaskGroup

log = logging.getLogger(__name__)

MOST_HELD = 10_000
"""Things that wait in all lanes together."""

Work = Callable[[], Awaitable[None]]


class ChannelQueues:
    def __init__(self, tasks: TaskGroup, most: int = MOST_HELD) -> None:
        self._tasks, self._most = tasks, most
        self._lanes: dict[str, deque[Work]] = {}
        self._held = 0

    def busy(self, channel: str) -> bool:
        """Return whether something waits or is at work in a channel."""
        return channel in self._lanes

    def put(self, channel: str, work: Work) -> bool:
        """Put it at the end of its channel's lane; False when too much waits already."""
        if self._held >= self._most:
            return False
        self._held += 1
        if channel in self._lanes:
            self._lanes[channel].append(work)
        else:
            self._lanes[channel] = deque([work])
            self._tasks.start_soon(self._drain, channel)
        return True

    async def _drain(self, channel: str) -> None:
        lane = self._lanes[channel]
        try:
            while lane:
                try:
                    await lane[0]()
                except Exception:  # the boundary of a transport: one was not taken in, and the next one is
                    log.exception("intake.failed: what came in %s was not taken in", channel)
                lane.popleft()
                self._held -= 1
        finally:
            self._held -= len(lane)
            del self._lanes[channel]
