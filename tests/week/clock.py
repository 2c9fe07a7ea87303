"""Virtual time for a whole process, with real sockets: `install` it before anything else is imported.

See `tests.week.loop` for how it moves.
"""

from __future__ import annotations

import datetime as dt
import time

_real = dt.datetime


class Clock:
    """``now`` are seconds since the process began to run in virtual time, at ``start`` in Unix time.

    While it has ``children``, the clock stands still.
    """

    children = 0

    def __init__(self, start: float) -> None:
        self.start, self.now = start, 0.0

    def wall(self) -> float:
        return self.start + self.now

    def monotonic(self) -> float:
        return 1_000.0 + self.now


class _OfAnyDate(type):
    def __instancecheck__(cls, one: object) -> bool:
        return isinstance(one, _real)


class _Datetime(_real, metaclass=_OfAnyDate):
    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> _real:
        return cls.fromtimestamp(time.time(), tz)

    @classmethod
    def utcnow(cls) -> _real:
        return cls.fromtimestamp(time.time(), dt.UTC).replace(tzinfo=None)


def install(start: _real) -> Clock:
    """Make *start* the time of day, for all that is imported from now on."""
    clock = Clock(start.timestamp())
    time.time, time.time_ns = clock.wall, lambda: int(clock.wall() * 1e9)
    time.monotonic, time.monotonic_ns = clock.monotonic, lambda: int(clock.monotonic() * 1e9)
    time.perf_counter = clock.monotonic
    dt.datetime = _Datetime
    return clock
