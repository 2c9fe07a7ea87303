"""The store of one machine: the files of a data folder. The process owns every thread for as long as it lives."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import closing
from datetime import date
from functools import partial
from pathlib import Path

import anyio
from anyio.abc import TaskGroup

from .errors import StoreUnavailable
from .journal.journal import FileJournal
from .journal.ports import Taker
from .log import Log
from .model import ThreadId, WallClock
from .store.checkpoints import Checkpoints
from .store.context import ContextFile
from .store.data_folder import conversation_exists, recent_threads, thread_folder
from .store.disk import Disk, Offload
from .store.mark_file import MarkFile

log = logging.getLogger(__name__)


class FileStore:
    """A `threads.ports.Store`. The journal has a disk thread of its own, so that no other disk work delays it."""

    workers, others_seen = 1, 0

    def __init__(
        self, data: Path, disk: Disk, *, offload: Offload, journal_offload: Offload, now: WallClock
    ) -> None:
        self._data, self._disk, self._offload, self._now = data, disk, offload, now
        self._today, self._first = date.min, dict[str, str]()
        self._folder = partial(thread_folder, data)
        self.journal = FileJournal(disk, data / "journal.jsonl", offload=journal_offload, now=now)
        self.history = Log(disk, folder=self._folder, offload=offload)
        self._checkpoints = Checkpoints(disk, offload)

    async def open(self, transports: Iterable[str]) -> None:
        data, threads = self._data, self._data / "threads"
        for path in (*reversed(data.parents), data, threads, *(threads / name for name in transports)):
            await self._offload(self._disk.mkdir, path)
        if damaged := await self._offload(self.journal.open):
            log.warning("journal.damaged: %d damaged lines put aside in journal.jsonl.broken", damaged)

    async def leave(self) -> None:
        """Do nothing. No other process serves these threads."""

    def start(self, tasks: TaskGroup, taker: Taker) -> None:
        last = anyio.CancelScope(shield=True)

        async def write_journal() -> None:
            try:
                with closing(self.journal):
                    await self.journal.run(taker)
            finally:
                last.cancel()  # whatever closing the file raises: the shielded writer of logs would never end

        async def write_logs() -> None:
            with last:  # they end after the journal, because they log its last records
                await self.history.run()

        # Not in a group of their own: anyio would not cancel what a last record starts in the group of the actors.
        tasks.start_soon(write_journal)
        tasks.start_soon(write_logs)

    def context(self, thread: ThreadId) -> ContextFile:
        return ContextFile(self._disk, self._folder(thread), self._offload, self._checkpoints.replace)

    def marks(self, transport: str) -> MarkFile:
        return MarkFile(self._disk, self._data / f"{transport}-marks.json")

    async def begun(self, thread: ThreadId, before: str = "") -> bool:
        if (known := self.journal.ledger.knows_thread(str(thread), before)) or before:
            return known
        try:
            return await self._offload(conversation_exists, self._disk, self._folder(thread))
        except OSError as error:
            raise StoreUnavailable(f"context: {error}") from error

    async def first_today(self, what: str, key: str) -> bool:
        if (today := self._now().date()) != self._today:
            self._today, self._first = today, {}
        return self._first.setdefault(what, key) == key

    async def recent(self, transport: str, within_s: float, most: int) -> Sequence[ThreadId]:
        return await self._offload(recent_threads, self._data, transport, within_s, most)

    async def workspace(self, thread: ThreadId) -> Path:
        return self._folder(thread) / "workspace"

    async def keep_workspace(self, thread: ThreadId) -> None:
        """Do nothing. The files are in place already."""

    async def hold(self, _: str, work: Callable[[], Awaitable[None]], __: Callable[[], None]) -> None:
        await work()

    async def take_token(self, _: str, __: float, ___: float) -> float:
        return 0.0  # no other process takes tokens

    async def try_token(self, _: str, __: float, ___: float, ____: float) -> bool:
        return True

    async def ensure_ownership(self) -> None:
        """Do nothing. The process holds the lock of the data folder for life."""
