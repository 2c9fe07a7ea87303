"""Many waiters, one writer: what comes while a batch is being written shares the next one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import anyio

Item = TypeVar("Item")


@dataclass(slots=True)
class Batch(Generic[Item]):
    """Items that are written together; ``error`` is why they were not."""

    items: list[Item] = field(default_factory=list)
    done: anyio.Event = field(default_factory=anyio.Event)
    error: OSError | None = None


class GroupWriter(Generic[Item]):
    """Gathers items into batches and hands them to *write*, one batch at a time; keep `run` going in a task."""

    def __init__(self, write: Callable[[list[Item]], Awaitable[None]]) -> None:
        self.filling: Batch[Item] = Batch()
        self._writing = self.filling
        self._write = write
        self._wake = anyio.Event()

    def put(self, *items: Item) -> Batch[Item]:
        """Add items to the batch that is being filled, and return it: wait for its ``done``."""
        self.filling.items.extend(items)
        self._wake.set()
        return self.filling

    async def run(self) -> None:
        """Write batches until cancelled; an OSError is the batch's, anything else ends the writer."""
        try:
            while True:
                await self._wake.wait()
                self._wake = anyio.Event()
                batch = self._writing = self.filling
                self.filling = Batch()
                try:
                    await self._write(batch.items)
                except OSError as error:
                    batch.error = error
                batch.done.set()
        finally:
            self._close()

    def _close(self) -> None:
        """Wake whoever still waits, shielded even: nobody writes any more."""
        for batch in (self._writing, self.filling):
            if not batch.done.is_set():
                batch.error = OSError("the writer is closed")
                batch.done.set()
