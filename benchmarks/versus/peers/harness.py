"""What every measured process shares: its task, its stopwatch and the lines that it prints. Standard library only.

A peer runs in its own environment, so nothing of ours may be imported here. A process gets one `Task` as JSON and
prints one JSON object a line:

* step ``converse``: threads talk side by side, each sends its next message after the answer; ends with ``measured``.
* step ``accept``: one message a thread, all at once, and a model that takes its time: ``accepted`` when the product
  would acknowledge the message to the platform, ``answered`` when it posts the answer. The parent kills the process.
* step ``resume``: a start over the same folder, no new messages: ``started``, then ``answered`` for every answer.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

ANSWER = "All right, that is done."
WARM_UP = 10
"""Threads that send one message each before the stopwatch starts: imports and caches are not what is compared."""


@dataclass(frozen=True)
class Task:
    step: Literal["converse", "accept", "resume"]
    data: str
    threads: int
    messages: int = 1
    posted: tuple[str, ...] = ()
    """For ``resume``: the messages whose answers the platform already shows."""
    model_url: str = ""
    """An OpenAI-compatible server on loopback; blank for a model inside the process."""

    @classmethod
    def read(cls) -> Task:
        return cls(**json.loads(sys.argv[1]))


def text(thread: int, n: int) -> str:
    return f"please have a look at the build {message_id(thread, n)}"


def message_id(thread: int, n: int) -> str:
    return f"q-{thread}-{n}-q"


def say(event: str, **fields: Any) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


class Fsyncs:
    """Counts the process's calls to `os.fsync` and `os.fdatasync`, from any thread."""

    def __init__(self) -> None:
        self._calls = itertools.count()
        self._reads = 0
        for name in ("fsync", "fdatasync"):
            setattr(os, name, self._counting(getattr(os, name)))

    def _counting(self, function: Callable[[Any], None]) -> Callable[[Any], None]:
        def counting(file: Any) -> None:
            next(self._calls)
            function(file)

        return counting

    def count(self) -> int:
        self._reads += 1
        return next(self._calls) - self._reads + 1


class Meter:
    """What the work costs from here on: wall time, CPU time of all threads of the process, fsyncs."""

    def __init__(self, fsyncs: Fsyncs) -> None:
        self._fsyncs, self._before = fsyncs, fsyncs.count()
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def say(self, version: str) -> None:
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        fsyncs = self._fsyncs.count() - self._before
        say("measured", version=version, wall=wall, cpu=cpu, rss=resident(), fsyncs=fsyncs)


def resident() -> int:
    """Return the bytes of memory that this process holds right now (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class SlowDown:
    """How long the model of step ``accept`` thinks: each call longer than the one before, so that answers trickle."""

    def __init__(self, step: str) -> None:
        self._calls = 0
        self._slow = step == "accept"

    async def think(self) -> None:
        if self._slow:
            self._calls += 1
            await asyncio.sleep(0.5 + self._calls * 0.2)
