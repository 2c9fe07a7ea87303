"""Calls that run in the background: many at once, none waited for, and a failure does no harm."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping

import anyio
from anyio.abc import TaskGroup

from threads.errors import PostFailed, TransportRejected
from threads.model import ThreadId
from transports.shared.retry import retry

log = logging.getLogger(__name__)

Job = Callable[[], Awaitable[None]]
Soon = Callable[[Job], bool]
"""Runs a job in the background; returns False, and drops it, if there are too many."""

AGAIN_S = (5.0, 30.0, 120.0)
"""Waits before a cleanup is repeated: a draft that stays looks like a second answer, a button like a question."""

TIDY_AFTER_S = 10.0
"""When the unfinished messages of killed processes are first swept: by then all posts of theirs have landed."""


async def retry_cleanup(work: Callable[[], Awaitable[object]], thread: ThreadId) -> None:
    """Take away what is over in a thread, in a few tries if the platform cannot do it now.

    What is gone already is no failure. The last refusal is logged.
    """

    def log_retry(error: PostFailed, fields: Mapping[str, object]) -> None:
        fields = {"thread_id": str(thread), **fields}
        log.info("live.cleanup_retried: %s", error, extra=fields)

    try:
        await retry(work, AGAIN_S, log_retry)
    except PostFailed as error:
        if not (isinstance(error, TransportRejected) and error.gone):
            log.warning("live.left: %s", error, extra={"thread_id": str(thread)})


class BackgroundCalls:
    """Holds at most *most* jobs, running or waiting for `run`."""

    def __init__(self, most: int) -> None:
        self._most, self._held = most, 0
        self._waiting: list[Job] = []
        self._tasks: TaskGroup | None = None

    async def run(self) -> None:
        """Run the jobs, until cancelled."""
        async with anyio.create_task_group() as tasks:
            for job in self._waiting:
                tasks.start_soon(self._guarded, job)
            self._tasks, self._waiting = tasks, []
            try:
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
            self._waiting.append(job)
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
