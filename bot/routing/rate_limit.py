"""How many messages one person may have answered in a minute: judged before anything is spent on one."""

from __future__ import annotations

from collections.abc import Callable

import anyio

MOST_KNOWN = 10_000
"""People whose bucket is kept; of so many, those that are full again are forgotten first, then all."""


class RateLimiter:
    """A token bucket for each sender, filled evenly; None is no limit, and *exempt* senders have none."""

    def __init__(
        self,
        per_minute: int | None,
        clock: Callable[[], float] = anyio.current_time,
        *,
        exempt: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._size, self._clock, self._exempt = per_minute, clock, exempt
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, sender: str) -> bool:
        """Count one message; False when the sender has had what a minute holds."""
        if self._size is None or self._exempt(sender):
            return True
        now = self._clock()
        left = self._left(self._buckets.get(sender), now)
        if left < 1:
            return False
        if len(self._buckets) >= MOST_KNOWN:
            self._forget(now)
        self._buckets[sender] = (left - 1, now)
        return True

    def _left(self, bucket: tuple[float, float] | None, now: float) -> float:
        assert self._size is not None
        if bucket is None:
            return self._size
        left, at = bucket
        return min(self._size, left + (now - at) * self._size / 60)

    def _forget(self, now: float) -> None:
        size = self._size
        kept = {who: bucket for who, bucket in self._buckets.items() if self._left(bucket, now) != size}
        self._buckets = kept if len(kept) < MOST_KNOWN else {}
