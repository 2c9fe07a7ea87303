"""The five durable points of a message over PostgreSQL: messages a second, and a worker's CPU time for each.

One worker and the server share the machine. `received`, `started`, `intent`, `posted` and `settled` are each waited
for; those that wait at the same time share a commit.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import anyio

from benchmarks.figures import Conditions, Figure
from bot.store.postgres.store import PostgresStore
from tests.fakes.postgres import Server
from threads.journal.records import Intent, PendingMessage, Settled
from threads.model import Author, Deleted, Edited, Incoming, ThreadId

THREADS = 256


class Taker:
    """A core that serves nothing: the benchmark writes the records itself."""

    def __init__(self) -> None:
        self.routed: dict[str, anyio.Event] = {}

    def route(self, pending: PendingMessage) -> None:
        self.routed.setdefault(pending.incoming.key, anyio.Event()).set()

    def take_up(self, pending: Sequence[PendingMessage]) -> None:
        for one in pending:
            self.route(one)

    def settled(self, _: PendingMessage, __: Settled) -> None: ...
    def lose(self, _: ThreadId) -> None: ...
    def serves(self, _: ThreadId) -> bool:
        return True

    async def changed(self, _: Edited | Deleted) -> None: ...


async def serve(store: PostgresStore, taker: Taker, thread: ThreadId, messages: int) -> None:
    journal = store.journal
    for number in range(messages):
        incoming = Incoming(
            f"{thread.root}.{number}", thread, Author("U1"), "What is the plan for today? " * 4
        )
        routed = taker.routed.setdefault(incoming.key, anyio.Event())
        await journal.receive(incoming)
        await routed.wait()
        pending = journal.ledger.pending[incoming.key]
        ids = {"thread_id": str(thread), "message_id": incoming.id}
        await journal.append(pending.start(1, "c"))
        await journal.append(Intent(**ids, text="The plan. " * 20, post="reply", outcome="answered"))
        pending.platform_id = "p"
        await journal.append(pending.posted())
        await journal.append(pending.settled("answered"))


async def _measure(dsn: str, messages: int) -> tuple[float, float]:
    """Return the seconds that all took, and the CPU seconds of the worker."""
    store = PostgresStore(dsn, Path("/nowhere"), name="bench", version="0", now=partial(datetime.now, UTC))
    taker = Taker()
    await store.open(["slack"])
    try:
        async with anyio.create_task_group() as tasks:
            store.start(tasks, taker)
            began, cpu = time.perf_counter(), time.process_time()
            async with anyio.create_task_group() as serving:
                for number in range(THREADS):
                    thread = ThreadId("slack", "T1", "C1", str(number))
                    serving.start_soon(serve, store, taker, thread, messages // THREADS)
            took, used = time.perf_counter() - began, time.process_time() - cpu
            tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await store.abort()
    return took, used


def measure(conditions: Conditions) -> Iterator[Figure]:
    server, messages = Server(), THREADS * (8 if conditions.quick else 40)
    server.start()
    try:
        took, used = anyio.run(_measure, server.new_database(), messages)
    finally:
        server.close()
    yield Figure("messages", messages / took, "1/s", at_least=1_500)
    yield Figure("worker CPU a message", used / messages * 1000, "ms", at_most=1)
