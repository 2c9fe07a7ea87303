"""The store of many workers: one PostgreSQL, which any number of processes serve threads from."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path

import anyio.to_thread
from anyio.abc import TaskGroup

from threads.errors import StoreUnavailable
from threads.journal.ports import Taker
from threads.log import Entry
from threads.model import ThreadId
from threads.store.data_folder import thread_folder

from .context import PostgresContext
from .journal import PostgresJournal
from .migrations import migrate
from .session import Session
from .worker import Worker

log = logging.getLogger(__name__)

BEGUN = "SELECT EXISTS (SELECT FROM context WHERE thread = %s)"
RECENT = (
    "SELECT id FROM thread WHERE starts_with(id, %s) AND changed_at > clock_timestamp() - %s * interval '1s' "
    "ORDER BY changed_at DESC LIMIT %s"
)


class MessageRows:
    """A `threads.stores.History` that writes nothing: the rows of the messages are the history."""

    def put(self, _: ThreadId, __: list[Entry], then: Callable[[], None]) -> None:
        then()

    def repair(self, _: ThreadId, __: dict[str, list[Entry]], then: Callable[[], None]) -> None:
        then()


class PostgresStore:
    """A `threads.stores.Store`. Files of threads lie under *scratch*, on this machine."""

    def __init__(
        self, dsn: str, scratch: Path, *, name: str, version: str, now: Callable[[], datetime]
    ) -> None:
        self._dsn, self._scratch = dsn, scratch
        self.worker = Worker(dsn, name, version)
        self.journal = PostgresJournal(dsn, lambda: self.worker.number, now)
        self.history = MessageRows()
        self._reader = Session(dsn)

    async def open(self, transports: Iterable[str]) -> None:
        """Bring the tables up to date and enter the workers. Raises OSError or `NewerSchema`."""
        await anyio.to_thread.run_sync(migrate, self._dsn)
        await self.worker.enter(transports)

    async def leave(self) -> None:
        try:
            await self.worker.leave()
        except OSError as error:
            log.warning("worker.not_left: the others find out within the lease: %s", error)
        await self.abort()

    def start(self, tasks: TaskGroup, taker: Taker) -> None:
        self.journal.start(tasks, taker)
        self.worker.start(tasks, self.journal)

    async def abort(self) -> None:
        """Close all connections, as the end of the process would."""
        for part in (self.journal, self.worker, self._reader):
            await part.close()

    def context(self, thread: ThreadId) -> PostgresContext:
        return PostgresContext(thread, self.journal, self._reader, lambda: self.worker.number)

    async def begun(self, thread: ThreadId) -> bool:
        try:
            [[begun]] = await self._reader.rows(BEGUN, (str(thread),))
        except OSError as error:
            raise StoreUnavailable(str(error)) from error
        return bool(begun)

    async def recent(self, transport: str, within_s: float, most: int) -> Sequence[ThreadId]:
        rows = await self._reader.rows(RECENT, (f"{transport}:", within_s, most))
        return [ThreadId.parse(thread) for (thread,) in rows]

    async def workspace(self, thread: ThreadId) -> Path:
        return thread_folder(self._scratch, thread) / "workspace"

    async def keep_workspace(self, thread: ThreadId) -> None:
        """Do nothing yet: files stay on the machine that made them."""

    async def ensure_ownership(self) -> None:
        await self.worker.ensure_ownership()
