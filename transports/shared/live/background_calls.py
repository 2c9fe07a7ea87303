"""Calls that run in the background: many at once, none waited for, and a failure does no harm."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import anyio
from anyio.abc import TaskGroup

from threads.errors import PostFailed, retry_fields
from threads.model import ThreadId

log = logging.getLogger(__name__)

Job = Callable[[], Awaitable[None]]
Soon = Callable[[Job], bool]
"""Runs a job in the background; returns False, and drops it, if there are too many."""

AGAIN_S = (5.0, 30.0, 120.0)
"""Waits before a sweep is repeated: what is left unfinished looks like a second answer."""

TIDY_AFTER_S = 10.0
"""When what killed processes left unfinished is first swept: all they sent has landed, and outcomes came first."""


async def retry_sweep(work: Callable[[], Awaitable[object]], thread: ThreadId) -> None:
    """Sweep a thread, a few times if the platform refuses; the last refusal is logged."""
    for tried, pause in enumerate((*AGAIN_S, None), 1):
        try:
            await work()
        except PostFailed as error:
            if pause is None:
                log.warning("live.left: %s", error, extra={"thread_id": str(thread)})
                return
            fields = {"thread_id": str(thread), **retry_fields(error.code, tried + 1, pause)}
            log.info("live.unswept: looked for again: %s", error, extra=fields)
            await anyio.sleep(pause)
        else:
            return


class BackgroundCalls:
    """Holds at most *most* jobs, running or waiting for `run`."""

    def __init__(self, most: int) -> None:
        self._most, self._held = most, 0
        self._tasks: TaskGroup | None = None
        self._early: list[Job] = []  # from before `run`

    async def run(self) -> None:
        """Run the jobs, until cancelled."""
        try:
            async with anyio.create_task_group() as self._tasks:
                for job in self._early:
                    self._tasks.start_soon(self._guarded, job)
                self._early.clear()
                await anyio.sleep_forever()
        finally:
            self._tasks = None

    def soon(self, job: Job) -> bool:
        """Run the job in the background; return False, and drop it, if there are too many."""
        if self._held >= self._most:
            log.info("live.full: too much to show at once")
            return False
        self._held += 1
        if self._tasks is None:
            self._early.append(job)
        else:
            self._tasks.start_soon(self._guarded, job)
        return True

    async def _guarded(self, job: Job) -> None:
        try:
            await job()
        except Exception:  # the boundary of a transport: what cannot be shown costs nothing else
            log.exception("live.failed: not shown")
        finally:
            self._held -= 1
