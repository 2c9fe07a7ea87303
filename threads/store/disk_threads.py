"""The threads for all disk work, so that the event loop never waits for the disk.

A job costs one hand-over, and the loop is woken once for all jobs that are done by then. Under load a job costs a
fifth of one in `anyio.to_thread`.
"""

from __future__ import annotations

import asyncio
import errno
import math
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread
from typing import TypeVar, TypeVarTuple

import anyio
import anyio.lowlevel

Arguments = TypeVarTuple("Arguments")
T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Job:
    """A call. ``over`` wakes the task that waits for it."""

    call: Callable[[], object]
    over: asyncio.Future[None]
    error: BaseException | None = None


class DiskThreads:
    """An `Offload` with threads of its own, for the event loop in which it is made. `close` it at the end.

    The threads are daemons, so a disk that hangs does not keep the process alive.
    """

    def __init__(self, threads: int) -> None:
        self._size = threads
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._done: deque[_Job] = deque()
        self._waiting = set[_Job]()
        self._announced = self._given_up = False
        self._loop = asyncio.get_running_loop()
        for _ in range(threads):
            Thread(target=self._work, name="disk", daemon=True).start()

    def close(self) -> None:
        """End the threads once their jobs are done. Does not wait."""
        for _ in range(self._size):
            self._jobs.put(None)

    def end_within(self, seconds: float) -> None:
        """Wait only so long for jobs from now on: the process ends, and a disk that hangs must not delay it for ever.

        Jobs that are not done by then, and all later ones, raise TimeoutError.
        """
        self._loop.call_later(seconds, self._give_up)

    async def __call__(self, function: Callable[[*Arguments], T], /, *args: *Arguments) -> T:
        result: list[T] = []
        context = copy_context()  # log lines of the thread have the ids of the turn
        await anyio.lowlevel.checkpoint_if_cancelled()
        job = self._start(lambda: result.append(context.run(function, *args)))
        try:
            await job.over
        except asyncio.CancelledError:
            await self._wait_although_cancelled(job)
        if job.error is not None:
            raise job.error
        return result[0]

    async def _wait_although_cancelled(self, job: _Job) -> None:
        """Return when the job is over: the caller's next call must not overtake it.

        Raises CancelledError if no scope is cancelled: only a scope cancels what the caller awaits next, too.
        """
        if job in self._waiting:
            job.over = self._loop.create_future()
            with anyio.CancelScope(shield=True):  # only now: it costs more than all of a call
                await job.over
        if anyio.current_effective_deadline() > -math.inf:
            raise asyncio.CancelledError

    async def respond(self) -> None:
        """Return when a thread has answered. A cancelled caller does not wait for one that hangs."""
        await self._start(lambda: None).over

    def _start(self, call: Callable[[], object]) -> _Job:
        job = _Job(call, self._loop.create_future())
        self._waiting.add(job)
        if self._given_up:
            self._give_up()
        else:
            self._jobs.put(job)
        return job

    def _give_up(self) -> None:
        self._given_up = True
        while self._waiting:
            job = self._waiting.pop()
            job.error = TimeoutError(errno.ETIMEDOUT, "the disk hangs")
            self._finish(job)

    def _finish(self, job: _Job) -> None:
        self._waiting.discard(job)
        if not job.over.done():
            job.over.set_result(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job.call()
            except BaseException as error:  # noqa: BLE001 - raised in the caller
                job.error = error
            self._done.append(job)
            if not self._announced:
                self._announced = True
                with suppress(RuntimeError):  # the loop is closed, so nobody waits
                    self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._announced = False  # before the loop: a job that is appended now announces itself
        while self._done:
            self._finish(self._done.popleft())
