"""Whether the worker threads answer: everything that touches a disk goes through them.

| the threads      | the disk, asked by a thread of its own | means                                   | `Workers`   |
|------------------|----------------------------------------|-----------------------------------------|-------------|
| answer           | (not asked)                            | all is well                             | ``free``    |
| do not for 60 s  | does not either                        | the disk hangs: a new process would too | ``waiting`` |
| do not for 60 s  | answers, be it with an error           | they are stuck over something of ours   | ``stuck``   |
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Literal

import anyio
import anyio.to_thread

ASK_EVERY_S = 5.0
PATIENCE_S = 60.0

Ask = Callable[[], Awaitable[None]]


class Workers:
    """Asks the threads for nothing, every few seconds, while `run` runs. ``disk`` asks the disk."""

    def __init__(self, threads: Ask, disk: Ask) -> None:
        self.state: Literal["free", "waiting", "stuck"] = "free"
        self._threads, self._disk = threads, disk

    async def run(self) -> None:
        while True:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._suspect)
                await self._threads()
                tasks.cancel_scope.cancel()
            self.state = "free"
            await anyio.sleep(ASK_EVERY_S)

    async def _suspect(self) -> None:
        await anyio.sleep(PATIENCE_S)
        self.state = "waiting"
        await self._disk()
        self.state = "stuck"


def workers_over(data: Path) -> Workers:
    """Return what looks after the threads of this process, with its data on that disk."""
    # Not waited for when the bot stops: a thread that hangs would hold up the end.
    own = partial(anyio.to_thread.run_sync, abandon_on_cancel=True)
    alone = anyio.CapacityLimiter(1)
    return Workers(lambda: own(_nothing), lambda: own(_write, data, limiter=alone))


def _nothing() -> None:
    pass


def _write(data: Path) -> None:
    try:
        with tempfile.TemporaryFile(dir=data) as file:
            file.write(b"1")
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        pass  # an answer, too: that the disk is full or broken is told by whoever needs it
