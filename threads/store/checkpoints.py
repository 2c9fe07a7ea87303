"""Replaces the conversation files of all threads. A few tasks write at a time, each a share of the files that wait.

A task writes its own file where it need not wait: an idle bot pays for no hop to another task.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import anyio

from .disk import Bytes, Disk, Offload, Replacement, replace_files

WRITERS = 3
"""While the disk works for one, the others prepare files. More writers cost CPU and gain nothing."""

SHARE = 8
"""Files that one writer takes if so many wait. Fewer are not worth another thread."""


@dataclass(slots=True, eq=False)
class _Job(Replacement):
    """A replacement in the queue. ``wake`` is set when it is done, or when its task may be the next to write."""

    taken: bool = False
    done: bool = False
    wake: anyio.Event | None = None


class Checkpoints:
    """Use it on the event loop only."""

    def __init__(self, disk: Disk, offload: Offload) -> None:
        self._disk, self._offload = disk, offload
        self._queue: deque[_Job] = deque()
        self._writers = 0

    async def replace(self, path: Path, data: Bytes, new: bool) -> None:
        """Replace the file, or create a *new* one, durably. Raises OSError, and leaves the old one in place.

        It waits even if the task is cancelled: the next replacement of the file must not overtake this one.
        """
        job = _Job(path, data, new)
        self._queue.append(job)
        with anyio.CancelScope(shield=True):
            while not job.done:
                # Only the first in the queue: a writer always has its own file in its share.
                if job.taken or self._writers == WRITERS or self._queue[0] is not job:
                    job.wake = anyio.Event()
                    await job.wake.wait()
                else:
                    await self._write_share()
        if job.error:
            raise job.error

    async def _write_share(self) -> None:
        size = min(len(self._queue), max(SHARE, ceil(len(self._queue) / WRITERS)))
        share = [self._queue.popleft() for _ in range(size)]
        self._writers += 1
        for job in share:
            job.taken = True
        self._wake_first()
        try:
            await self._offload(replace_files, self._disk, share)
        except BaseException:  # a bug: nobody may take a file for durable
            for job in share:
                job.error = job.error or OSError("the write was interrupted")
            raise
        finally:
            self._writers -= 1
            for job in share:
                job.done = True
                if job.wake:
                    job.wake.set()
            self._wake_first()

    def _wake_first(self) -> None:
        if self._queue and self._writers < WRITERS and (wake := self._queue[0].wake):
            wake.set()
