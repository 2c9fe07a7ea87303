"""Checks that the worker threads respond: those of the disk, and those for everything else that blocks.

| worker threads   | disk, tested separately | meaning                              | ``state``   |
|------------------|-------------------------|--------------------------------------|-------------|
| respond          | (not tested)            | all is well                          | ``free``    |
| hang for 60 s    | hangs                   | the disk; a restart would hang too   | ``waiting`` |
| hang for 60 s    | responds, or fails      | our own code blocks the threads      | ``stuck``   |
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import anyio
import anyio.to_thread

from threads.background import background_tasks
from threads.store.disk_threads import DiskThreads

PROBE_EVERY_S = 5.0
PATIENCE_S = 60.0

Probe = Callable[[], Awaitable[None]]


class WorkerWatch:
    """Sends an empty job to the worker threads every few seconds. *probe_disk* writes to the disk."""

    def __init__(self, probe_threads: Probe, probe_disk: Probe) -> None:
        self.state: Literal["free", "waiting", "stuck"] = "free"
        self.probe_threads, self.probe_disk = probe_threads, probe_disk

    async def run(self) -> None:
        while True:
            async with background_tasks() as tasks:
                tasks.start_soon(self._suspect)
                await self.probe_threads()
            self.state = "free"
            await anyio.sleep(PROBE_EVERY_S)

    async def _suspect(self) -> None:
        await anyio.sleep(PATIENCE_S)
        self.state = "waiting"
        await self.probe_disk()
        self.state = "stuck"


def watch_workers(data: Path, disk_threads: Sequence[DiskThreads]) -> WorkerWatch:
    """Return a watch over this process's worker threads and the disk that holds *data*."""
    # Abandoned on cancel: a hanging thread must not delay the shutdown.
    run = partial(anyio.to_thread.run_sync, abandon_on_cancel=True)
    alone = anyio.CapacityLimiter(1)

    async def probe_threads() -> None:
        await run(_nothing)
        for threads in disk_threads:
            await threads.respond()

    return WorkerWatch(probe_threads, lambda: run(_write, data, limiter=alone))


def _nothing() -> None:
    pass


def _write(data: Path) -> None:
    try:
        with tempfile.TemporaryFile(dir=data) as file:
            file.write(b"1")
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        pass  # an error is a response too; whoever needs the disk reports that it is full or broken
