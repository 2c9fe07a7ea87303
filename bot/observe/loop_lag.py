"""Measures the lag of the event loop from a separate thread, and logs the stack of whatever blocks it.

The thread asks the loop for a reply, again and again. The lag is the time from when it meant to ask to the reply: a
call that holds the interpreter, and this thread with it, is found too. A process that was stopped counts as blocked.

A stall longer than ``slow_s`` plus the time between two requests is always found, a shorter one sometimes. Each stall
is logged twice: with the stack when it is found, and when it ends.
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
"""Slices in ``slow_s``."""
LEAST_S = 0.05
"""The lowest ``slow_s``. Measuring more finely would cost more than it finds."""
FRAMES = 25
"""Logged frames of the stack, innermost first."""
QUIET_S = 10.0
"""At most one stack is logged in this time. The others are counted."""
REMEMBERED_S = 60


class LoopLag:
    """Watches one event loop. ``now_s`` is the lag of its last reply, `worst_s` the maximum of the last minute."""

    def __init__(self, slow_s: float) -> None:
        self.now_s = 0.0
        self._slow_s = max(slow_s, LEAST_S)
        self._slice_s = self._slow_s / SLICES
        self._ended = threading.Event()
        self._seconds: deque[tuple[int, float]] = deque([(0, 0.0)], maxlen=REMEMBERED_S)
        self._logged_at, self._skipped = -math.inf, 0

    def worst_s(self) -> float:
        oldest = time.monotonic() - REMEMBERED_S
        return max((lag for second, lag in list(self._seconds) if second >= oldest), default=0.0)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the loop that runs here, until the block ends."""
        loop = asyncio.get_running_loop(), threading.get_ident()
        threading.Thread(target=self._watch, args=loop, name="loop lag", daemon=True).start()
        try:
            yield
        finally:
            self._ended.set()  # the thread ends within one slice

    def _watch(self, loop: asyncio.AbstractEventLoop, ident: int) -> None:
        reply, pause_s = threading.Event(), self._slow_s / 2
        while True:
            due_at = time.monotonic() + pause_s
            if self._ended.wait(pause_s):
                return
            reply.clear()
            try:
                loop.call_soon_threadsafe(reply.set)
            except RuntimeError:  # the loop is closed: the process ends
                return
            self._await(reply, due_at, ident)

    def _await(self, reply: threading.Event, due_at: float, ident: int) -> None:
        """Wait for the loop's reply, and log what blocks it if the reply is late."""
        lag_s, slow, logged, replied = 0.0, False, False, False
        while not replied:
            replied = reply.wait(self._slice_s)
            if self._ended.is_set():
                return
            if (lag_s := time.monotonic() - due_at) >= self._slow_s and not slow:
                slow, logged = True, self._log_stack(lag_s, ident)
        self._note(lag_s)
        if logged:
            log.warning("loop.freed: the event loop turns again", extra={"blocked_s": round(lag_s, 3)})

    def _note(self, lag_s: float) -> None:
        self.now_s, now = lag_s, int(time.monotonic())
        second, worst_s = self._seconds[-1]
        if second == now:
            self._seconds[-1] = now, max(worst_s, lag_s)
        else:
            self._seconds.append((now, lag_s))

    def _log_stack(self, lasted_s: float, ident: int) -> bool:
        """Log the stack, unless one was just logged or the loop only waits for a CPU.

        Return whether it was logged.
        """
        frame = sys._current_frames().get(ident)  # noqa: SLF001 - it has no other name
        if frame is None or frame.f_globals.get("__name__") == "selectors":
            return False
        if time.monotonic() - self._logged_at < QUIET_S:
            self._skipped += 1
            return False
        stack = traceback.StackSummary.extract(islice(traceback.walk_stack(frame), FRAMES))
        where = [f"{at.filename}:{at.lineno} {at.name}: {at.line}" for at in stack]
        fields = {"blocked_s": round(lasted_s, 3), "stack": where, "untold": self._skipped}
        log.warning("loop.blocked: the event loop does not turn", extra=fields)
        self._logged_at, self._skipped = time.monotonic(), 0
        return True
