"""Limits how many turns run at once, in all and per person, in the order of request.

When the process stops, the slots are closed: no new turn begins, and running turns go on.
"""

from __future__ import annotations

from collections import Counter, deque

import anyio
import anyio.lowlevel


class Slots:
    """A fair pool of turn slots. A turn is passed over only while its person runs the most that one may."""

    def __init__(self, total: float, per_user: float) -> None:
        self._total, self._per_user = total, per_user
        self._running: Counter[str] = Counter()
        self._queue: deque[tuple[str, anyio.Event]] = deque()
        self._closed = False

    @property
    def running(self) -> int:
        return self._running.total()

    @property
    def queued(self) -> int:
        return len(self._queue)

    @property
    def _free(self) -> float:
        return 0 if self._closed else self._total - self._running.total()

    def close(self) -> None:
        """Grant no more slots."""
        self._closed = True

    async def acquire(self, user: str) -> None:
        """Wait for a slot. A cancellation always counts, also in the instant in which the slot is granted."""
        await anyio.lowlevel.checkpoint_if_cancelled()
        if not self._queue and self._free > 0 and self._running[user] < self._per_user:
            self._running[user] += 1
            return
        place = (user, anyio.Event())
        self._queue.append(place)
        self._grant()
        try:
            await place[1].wait()
            await anyio.lowlevel.checkpoint_if_cancelled()
        except BaseException:
            if place[1].is_set():
                self.release(user)
            else:
                self._queue.remove(place)
            raise

    def retake(self, user: str) -> None:
        """Take a slot at once for a turn that goes on after a wait, because it may hold other resources.

        There may be more turns than slots for a moment.
        """
        self._running[user] += 1

    def release(self, user: str) -> None:
        self._running[user] -= 1
        if not self._running[user]:
            del self._running[user]
        if self._queue:
            self._grant()

    def _grant(self) -> None:
        passed: deque[tuple[str, anyio.Event]] = deque()
        free = self._free
        while self._queue and free > 0:
            user, granted = place = self._queue.popleft()
            if self._running[user] < self._per_user:
                self._running[user] += 1
                free -= 1
                granted.set()
            else:
                passed.append(place)
        self._queue.extendleft(reversed(passed))
