"""Seeing what blocks the event loop, while it is blocked: from a thread beside it.

The thread asks the loop for a sign, again and again, and watches the clock meanwhile. A clock alone cries wolf when
the machine slept or the whole process was stopped, so it is read in short slices:

| a slice took               | meanwhile the process                   | for how long the loop was blocked      |
|----------------------------|-----------------------------------------|----------------------------------------|
| about as long as it should | (does not matter)                       | for all of it                          |
| much longer                | worked: something held the interpreter  | for as long as the process worked      |
| much longer                | did little: stopped, asleep, or starved | for a slice, as it should have been    |

Whatever blocks for longer than ``slow_s`` and the time between two questions is always seen, something shorter
sometimes. A stall is logged once with the stack, when it is seen, and once more when it is over.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

log = logging.getLogger(__name__)

SLICES = 5
"""How many slices make the time that is too long."""
LATE = 4.0
LEAST_S = 0.05
"""A sharper watch would cost more than what it finds."""
FRAMES = 25
"""Of the stack, the innermost ones."""
QUIET_S = 10.0
"""At most one stack in this time; what comes between is counted."""
REMEMBERED_S = 60


class Stall:
    """How long something has been in the way, as far as it is the loop's fault. Times are seconds; no clock in here.

    A wait of ``slice_s`` that took more than ``late`` times as long was not only a busy machine's.
    """

    def __init__(self, slice_s: float, now: float, cpu: float, late: float = LATE) -> None:
        self.lasted_s = 0.0
        self._slice_s, self._late_s = slice_s, late * slice_s
        self._now, self._cpu = now, cpu

    def look(self, now: float, cpu: float) -> float:
        """Take in what the clocks say, and return how long the loop has been blocked."""
        took, worked = now - self._now, cpu - self._cpu
        self._now, self._cpu = now, cpu
        self.lasted_s += took if took <= self._late_s else max(self._slice_s, min(worked, took))
        return self.lasted_s


class LoopLag:
    """Watches one loop's thread. ``now_s`` is how late its last sign was, `worst_s` the most in the last minute."""

    def __init__(self, slow_s: float) -> None:
        self.now_s = 0.0
        self._slow_s = max(slow_s, LEAST_S)
        self._slice_s = self._slow_s / SLICES
        self._ended = threading.Event()
        self._seconds: deque[tuple[int, float]] = deque([(0, 0.0)], maxlen=REMEMBERED_S)
        self._told_at, self._untold = -math.inf, 0

    def worst_s(self) -> float:
        oldest = time.monotonic() - REMEMBERED_S
        return max((lag for second, lag in list(self._seconds) if second >= oldest), default=0.0)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the loop that runs here, until the block ends."""
        given = (asyncio.get_running_loop(), threading.get_ident())
        thread = threading.Thread(target=self._watch, args=given, name="loop lag", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()  # the thread ends by itself within a slice, even if it is just writing a log line

    def _watch(self, loop: asyncio.AbstractEventLoop, ident: int) -> None:
        sign, pause_s = threading.Event(), self._slow_s / 2
        while True:
            pause = Stall(pause_s, *_clocks(), late=1.0)
            if self._ended.wait(pause_s):
                return
            if (held_s := pause.look(*_clocks()) - pause_s) >= self._slow_s:  # we were not even let in
                self._note(held_s)
                self._tell(held_s, ident)
            sign.clear()
            try:
                loop.call_soon_threadsafe(sign.set)
            except RuntimeError:  # the loop is closed: the process ends
                return
            self._await(sign, ident)

    def _await(self, sign: threading.Event, ident: int) -> None:
        """Wait for the loop's sign, and say what is in its way if it does not come."""
        stall, slow, told, answered = Stall(self._slice_s, *_clocks()), False, False, False
        while not answered:
            answered = sign.wait(self._slice_s)
            if self._ended.is_set():
                return
            if stall.look(*_clocks()) >= self._slow_s and not slow:
                slow, told = True, self._tell(stall.lasted_s, ident)
        self._note(stall.lasted_s)
        if told:
            log.warning("loop.freed: the event loop turns again", extra={"blocked_s": round(self.now_s, 3)})

    def _note(self, lag_s: float) -> None:
        self.now_s, now = lag_s, int(time.monotonic())
        second, worst_s = self._seconds[-1]
        if second == now:
            self._seconds[-1] = now, max(worst_s, lag_s)
        else:
            self._seconds.append((now, lag_s))

    def _tell(self, lasted_s: float, ident: int) -> bool:
        """Log the stack, unless one was logged just now, or the loop only waits for its turn on a busy machine."""
        frame = sys._current_frames().get(ident)  # noqa: SLF001 - it has no other name
        if frame is None or frame.f_globals.get("__name__") == "selectors":
            return False
        if time.monotonic() - self._told_at < QUIET_S:
            self._untold += 1
            return False
        stack = traceback.StackSummary.extract(islice(traceback.walk_stack(frame), FRAMES))
        where = [f"{at.filename}:{at.lineno} {at.name}: {at.line}" for at in stack]
        given = {"blocked_s": round(lasted_s, 3), "stack": where, "untold": self._untold}
        log.warning("loop.blocked: the event loop does not turn", extra=given)
        self._told_at, self._untold = time.monotonic(), 0
        return True


def _clocks() -> tuple[float, float]:
    """Return the time, and how long this process has worked."""
    return time.monotonic(), time.process_time()
