"""The messages per minute of one person, checked before anything is spent on a message."""

from __future__ import annotations

from collections.abc import Callable

import anyio
from cachetools import TTLCache

from threads.journal.records import PendingMessage

MOST_KNOWN = 10_000
"""People whose bucket is in memory. Beyond, the least recently used bucket is dropped."""

MINUTE_S = 60.0


class RateLimiter:
    """A token bucket for each sender, filled evenly. None means no limit. *exempt* senders have no limit."""

    def __init__(
        self,
        per_minute: int | None,
        clock: Callable[[], float] = anyio.current_time,
        *,
        exempt: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._size, self._clock, self._exempt = per_minute, clock, exempt
        # After a minute without a message a bucket is full, like a new one.
        self._buckets: TTLCache[str, tuple[float, float]] = TTLCache(MOST_KNOWN, MINUTE_S, timer=clock)

    def limit_of(self, sender: str) -> int | None:
        """Return the sender's messages per minute. None means no limit."""
        return None if self._exempt(sender) else self._size

    def allows(self, pending: PendingMessage) -> bool:
        """Return whether a message may be answered. A new message is counted here unless the store counted it."""
        if pending.over_rate is None:
            return pending.recovered or self.take(pending.incoming.author.id)
        return not pending.over_rate

    def take(self, sender: str) -> bool:
        """Count one message. Returns False if the sender has used up the minute."""
        if self._size is None or self._exempt(sender):
            return True
        now = self._clock()
        tokens, at = self._buckets.get(sender, (self._size, now))
        tokens = min(self._size, tokens + (now - at) * self._size / MINUTE_S)
        if tokens < 1:
            return False
        self._buckets[sender] = (tokens - 1, now)
        return True
