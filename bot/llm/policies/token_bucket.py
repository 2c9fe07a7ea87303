"""Limits of one provider: a congestion window for parallel calls, and a token bucket per minute; both pure."""

from __future__ import annotations

from collections.abc import Callable

FIRST_WINDOW = 16
NEARLY = 1e-3
"""Tolerance of a bucket: clocks and sums are not exact."""


class CongestionWindow:
    """How many calls may be out at once, found as TCP does.

    A success widens it by one up to the last good size, and from there by one for each window of successes. An
    overload halves it, once for all calls that were out together. After an outage it starts with one call.
    """

    def __init__(self, widest: int) -> None:
        self._widest = widest
        self._size = float(min(FIRST_WINDOW, widest))
        self._threshold = float(widest)
        self.shrunk = 0
        """How often it was halved; calls that went out under the same number were out together."""

    @property
    def size(self) -> int:
        return int(self._size)

    def widen(self) -> None:
        step = 1.0 if self._size < self._threshold else 1.0 / self._size
        self._size = min(self._widest, self._size + step)

    def halve(self) -> None:
        self._size = self._threshold = max(1.0, self._size / 2)
        self.shrunk += 1

    def restart(self) -> None:
        if self._size > 1:
            self._size, self._threshold = 1.0, self._size


class TokenBucket:
    """An amount per minute, refilled all the time; it holds a quarter of a minute's worth.

    A larger amount may go when the bucket is full, and leaves a debt. Each of so many *sharers* has its part.
    """

    def __init__(self, per_minute: int, sharers: Callable[[], int] = lambda: 1) -> None:
        self._per_minute, self._sharers = per_minute, sharers
        self._level = self._capacity
        self._at = 0.0

    @property
    def _rate(self) -> float:
        return self._per_minute / 60 / self._sharers()

    @property
    def _capacity(self) -> float:
        return self._per_minute / 4 / self._sharers()

    def ready_at(self, amount: float, now: float) -> float:
        """Return when *amount* may be taken."""
        self._refill(now)
        missing = min(amount, self._capacity) - self._level
        return now if missing <= NEARLY else now + missing / self._rate

    def take(self, amount: float, now: float) -> None:
        """Take *amount*; a negative one is given back."""
        self._refill(now)
        self._level = min(self._capacity, self._level - amount)

    def _refill(self, now: float) -> None:
        self._level = min(self._capacity, self._level + max(0.0, now - self._at) * self._rate)
        self._at = max(self._at, now)
