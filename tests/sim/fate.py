"""When a process dies: at the n-th operation on the world, never at a random time.

A crash between two operations looks to the world like a crash before the second one, so operations are all the
places there are. Random times would hit the narrow windows, an acknowledged message that is not on disk, hardly ever.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NoReturn

from .record import Record


class Died(BaseException):
    """The process is gone: no `except Exception` may catch this, and no `finally` can reach the world."""


class Fate:
    """Counts operations; `step` says whether this is the one that the process does not survive."""

    def __init__(self, rng: random.Random, record: Record) -> None:
        self.rng, self.record = rng, record
        self.now = 0.0
        self.clock: Callable[[], float] = lambda: self.now
        self.stop_loop: Callable[[], None] = lambda: None
        self.leave: Callable[[], None] = lambda: None
        self.dead = self.leaving = self._gently = False
        self._left = 0

    def live(self, operations: int, *, gently: bool = False) -> None:
        """Begin a life of so many operations, 0 is for ever; *gently*: then it is asked to stop, and not killed."""
        self.dead = self.leaving = False
        self._left, self._gently = operations, gently

    def step(self, what: str) -> bool:
        if self.dead:
            raise Died
        self.record.trace.append(f"{self.clock():.6f} {what}")
        self._left -= 1
        if self._left == 0 and self._gently:
            self.note("ASKED TO STOP")
            self.leaving = True
            self.leave()
            return False
        return self._left == 0

    def die(self) -> NoReturn:
        self.dead = True
        self.record.trace.append(f"{self.clock():.6f} DIED")
        self.stop_loop()
        raise Died

    def note(self, what: str) -> None:
        """Leave a line in the trace that is no operation."""
        self.record.trace.append(f"{self.clock():.6f} {what}")
