"""Replaces the conversation files of all threads. Each of a few writers takes a share of those that wait."""

from __future__ import annotations

from pathlib import Path

import anyio

from .disk import Bytes, Disk, Offload, Replacement, replace_files
from .group_commit import GroupWriter

WRITERS = 2
"""While the disk works for one, the other prepares files. More writers cost CPU and gain nothing."""

SHARE = 8
"""Files that one writer takes before the next one is used. Fewer are not worth another thread."""


class Checkpoints:
    """Keep `run` going in a task."""

    def __init__(self, disk: Disk, offload: Offload) -> None:
        self._disk, self._offload = disk, offload
        self._groups = [GroupWriter(self._commit) for _ in range(WRITERS)]

    async def replace(self, path: Path, data: Bytes, new: bool) -> None:
        """Replace the file, or create a *new* one, durably. Raises OSError, and leaves the old one in place.

        It waits even if the task is cancelled: the next replacement of the file must not overtake this one.
        """
        replacement = Replacement(path, data, new)
        group = min(self._groups, key=lambda one: len(one.filling.items) // SHARE)
        batch = group.put(replacement)
        with anyio.CancelScope(shield=True):
            await batch.done.wait()
        if error := batch.error or replacement.error:
            raise error

    async def run(self) -> None:
        """Write until cancelled."""
        async with anyio.create_task_group() as tasks:
            for group in self._groups:
                tasks.start_soon(group.run)

    async def _commit(self, replacements: list[Replacement]) -> None:
        if replacements:
            await self._offload(replace_files, self._disk, replacements)
