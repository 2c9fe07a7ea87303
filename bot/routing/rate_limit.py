"""How many messages one person may have answered in a minute: judged before anything is spent on one."""

from __future__ import annotations

from collections.abc import Callable

import anyio
from cachetools import TTLCache

from threads.journal.records import PendingMessage

MOST_KNOWN = 10_000
"""People whose bucket is kept; beyond, the one that was used longest ago is forgotten."""

MINUTE_S = 60.0


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
        # After a minute without a message a bucket is full again, as a new one is.
        self._buckets: TTLCache[str, tuple[float, float]] = TTLCache(MOST_KNOWN, MINUTE_S, timer=clock)

    def limit_of(self, sender: str) -> int | None:
        """Return how many messages a minute holds for the sender; None is no limit."""
        return None if self._exempt(sender) else self._size

    def allows(self, pending: PendingMessage) -> bool:
        """Return whether a message may be answered; a new one is counted here if the store did not count it."""
        if pending.over_rate is None:
            return pending.recovered or self.take(pending.incoming.author.id)
        return not pending.over_rate

    def take(self, sender: str) -> bool:
        """Count one message; False when the sender has had what a minute holds."""
        if self._size is None or self._exempt(sender):
            return True
        now = self._clock()
        tokens, at = self._buckets.get(sender, (self._size, now))
        tokens = min(self._size, tokens + (now - at) * self._size / MINUTE_S)
        if tokens < 1:
            return False
        self._buckets[sender] = (tokens - 1, now)
        return True
