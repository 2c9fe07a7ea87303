"""What a run took."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cost:
    """What a run took: seconds of wall time, and of CPU over all of the process's threads."""

    wall: float
    cpu: float


class Stopwatch:
    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def read(self) -> Cost:
        return Cost(time.perf_counter() - self._wall, time.process_time() - self._cpu)
