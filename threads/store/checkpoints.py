"""Replaces the conversations' files for all threads: one writer, which takes all that waits."""

from __future__ import annotations

from pathlib import Path

import anyio

from .disk import Disk, Offload, Replacement, replace_files
from .group_commit import GroupWriter


class Checkpoints:
    """Keep `run` going in a task. One writer, as several of them cost more and replace no more files a second."""

    def __init__(self, disk: Disk, offload: Offload) -> None:
        self._disk, self._offload = disk, offload
        self._group = GroupWriter(self._commit)

    async def replace(self, path: Path, data: bytes, new: bool) -> None:
        """Return when the file, maybe a *new* one, holds the data, durably. Raises OSError with the old one in place.

        Waits even if the task is cancelled: the next one of the same file must not overtake this one.
        """
        replacement = Replacement(path, data, new)
        batch = self._group.put(replacement)
        with anyio.CancelScope(shield=True):
            await batch.done.wait()
        if error := batch.error or replacement.error:
            raise error

    async def run(self) -> None:
        """Write until cancelled."""
        await self._group.run()

    async def _commit(self, replacements: list[Replacement]) -> None:
        if replacements:
            await self._offload(replace_files, self._disk, replacements)
