"""Workers of one database in one process, each with a core that only notes what it is told."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import psycopg

from bot.extensions.postgres.store import PostgresStore
from bot.extensions.postgres.worker import Worker
from tests.patience import WITHIN_S, until
from threads.journal.records import Intent, PendingMessage, Settled
from threads.model import Author, Deleted, Edited, Incoming, Message, Text, ThreadId

THREAD = ThreadId("slack", "W", "C", "1")
OTHER = ThreadId("slack", "W", "C", "2")


def message(number: int, thread: ThreadId = THREAD, text: str = "hi \u2028 \x00") -> Incoming:
    return Incoming(f"m{number}", thread, Author("U1", "ann"), text, "2026-11-23T10:00:00+00:00")


def intent(pending: PendingMessage) -> Intent:
    received = pending.received
    return Intent(
        thread_id=received.thread_id,
        message_id=received.message_id,
        text="yes",
        post="reply",
        outcome="answered",
    )


def said(text: str, source: str = "") -> Message:
    return Message("user" if source else "assistant", (Text(text),), source=source)


def rows(dsn: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        return connection.execute(statement.encode()).fetchall()


class Seat:
    """A worker with its store, and all that it was told, in order. It is a `Taker`."""

    told = anyio.Event()
    """Set when any worker is told something, and then replaced."""

    def __init__(
        self, dsn: str, data: Path = Path("/nowhere"), name: str = "w", *, pool_dsn: str = ""
    ) -> None:
        self.dsn, self.name = dsn, name
        now = partial(datetime.now, UTC)
        self.store = PostgresStore(dsn, data, name=name, version="1", now=now, pool_dsn=pool_dsn)
        self.journal = self.store.journal
        self.routed: list[PendingMessage] = []
        self.taken: list[PendingMessage] = []
        self.ends: list[tuple[str, Settled]] = []
        self.changes: list[Edited | Deleted] = []
        self.lost: list[ThreadId] = []
        self.busy: set[ThreadId] = set()
        self._wake_all()
        self._tasks, self._over = anyio.CancelScope(), anyio.Event()
        self.died: BaseException | None = None

    @property
    def worker(self) -> Worker:
        return self.store.worker

    @staticmethod
    async def until(predicate: Callable[[], object]) -> None:
        """Wait until that is true, of whichever workers."""
        with anyio.fail_after(WITHIN_S):
            while not predicate():
                await Seat.told.wait()

    async def until_share(self) -> None:
        """Wait until the worker knows how much the others have to do."""
        await until(lambda: self.journal.share != math.inf)

    def route(self, pending: PendingMessage) -> None:
        self._note(self.routed, pending)
        self.busy.add(pending.incoming.thread)

    def take_up(self, pending: list[PendingMessage]) -> None:
        for one in pending:
            self._note(self.taken, one)
            self.busy.add(one.incoming.thread)

    def settled(self, pending: PendingMessage, end: Settled) -> None:
        self._note(self.ends, (pending.received.message_id, end))

    def release(self, thread: ThreadId) -> None:
        self.busy.discard(thread)
        self._note(self.lost, thread)

    def serves(self, thread: ThreadId) -> bool:
        return thread in self.busy

    async def changed(self, event: Edited | Deleted) -> None:
        self._note(self.changes, event)

    def _note(self, notes: list[object], one: object) -> None:
        notes.append(one)
        self._wake_all()

    @staticmethod
    def _wake_all() -> None:
        told, Seat.told = Seat.told, anyio.Event()
        told.set()

    async def settle(self, pending: PendingMessage) -> None:
        """Answer a message: the five records that a core would write."""
        await self.journal.append(pending.start(pending.attempts + 1, "ref"))
        await self.journal.append(intent(pending))
        pending.platform_id = "p1"
        await self.journal.append(pending.posted(), pending.settled("answered"))

    async def run(self) -> None:
        with self._tasks:
            try:
                async with anyio.create_task_group() as tasks:
                    self.store.start(tasks, self)
            except BaseExceptionGroup as group:
                [self.died] = group.exceptions
                self._note([], None)
            finally:
                self._over.set()

    async def kill(self) -> None:
        """End it as kill -9 would: the sockets close, and nothing is said."""
        self._tasks.cancel()
        await self._over.wait()  # or a connection that is just being made would stay open
        await self.store.abort()


@asynccontextmanager
async def workers(
    dsn: str,
    count: int,
    data: Callable[[int], Path] = lambda _: Path("/nowhere"),
    name: Callable[[int], str] = lambda _: "w",
    pool_dsn: str = "",
) -> AsyncIterator[list[Seat]]:
    """Run so many workers until the block ends; *data* and *name* return the folder and the name of each."""
    seats = [Seat(dsn, data(number), name(number), pool_dsn=pool_dsn) for number in range(count)]
    async with anyio.create_task_group() as tasks:
        for seat in seats:
            await seat.store.open(["slack"])
            tasks.start_soon(seat.run)
        try:
            yield seats
        finally:
            with anyio.CancelScope(shield=True):
                for seat in seats:
                    await seat.kill()
