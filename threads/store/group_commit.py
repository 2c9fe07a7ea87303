"""Group commit: items that arrive while a batch is being written share the next batch.

Its events are asyncio's: each message makes some, and one of anyio's takes six times as long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import anyio
import anyio.lowlevel

Item = TypeVar("Item")

RETRY_S = 2.0
"""Seconds that carried items wait after a failed write, unless others arrive."""

LAST_WRITE_S = 3.0
"""Seconds that the end of the process waits for the last write to begin. `DiskThreads.end_within` bounds its end."""

CLOSED = OSError("the writer is closed")


@dataclass(slots=True)
class Batch(Generic[Item]):
    """Items that are written together. After an ``error`` the next batch begins with the ``carried`` items."""

    items: list[Item] = field(default_factory=list)
    carried: list[Item] = field(default_factory=list)
    done: asyncio.Event = field(default_factory=asyncio.Event)
    error: OSError | None = None


class GroupWriter(Generic[Item]):
    """Gathers items into batches and passes them to *write*, one batch at a time. Keep `run` going in a task.

    The last batch may be empty. *written* is called with the items when their waiters are woken, before they run.
    """

    def __init__(
        self,
        write: Callable[[list[Item]], Awaitable[None]],
        written: Callable[[list[Item]], None] = lambda _: None,
    ) -> None:
        self.filling: Batch[Item] = Batch()
        self._write, self._written = write, written
        self._wake = asyncio.Event()

    def put(self, *items: Item) -> Batch[Item]:
        """Add items to the current batch, and return it. Wait for its ``done``."""
        self.filling.items.extend(items)
        self._wake.set()
        return self.filling

    def carry(self, *items: Item) -> Batch[Item]:
        """As `put`, but if the batch fails these items are written with the next one, first."""
        self.put(*items).carried.extend(items)
        return self.filling

    async def run(self) -> None:
        """Write batches until cancelled, then the last one. An error other than OSError ends the writer."""
        try:
            while True:
                if self._wake.is_set():
                    await anyio.lowlevel.checkpoint_if_cancelled()
                else:
                    with anyio.move_on_after(RETRY_S) if self.filling.carried else nullcontext():
                        await self._wake.wait()
                await self._next()
        finally:
            with anyio.move_on_after(LAST_WRITE_S, shield=True):
                await self._next()
            self.filling.error = CLOSED  # later callers of `put` see it at once
            self.filling.done.set()

    async def _next(self) -> None:
        self._wake = asyncio.Event()
        batch, self.filling = self.filling, Batch()
        batch.error = CLOSED  # if the write is cancelled
        try:
            await self._write(batch.items)
            batch.error = None
            batch.done.set()
            self._written(batch.items)
        except OSError as error:
            batch.error = error
        finally:
            if batch.error is not None:  # also if it is cancelled: the last write has the carried items then
                self.filling.items[:0] = batch.carried
                self.filling.carried[:0] = batch.carried
            batch.done.set()
