"""Many workers over PostgreSQL, beside the server on one machine.

The five durable points of a message: messages a second, and a worker's CPU time for each. `received`, `started`,
`intent`, `posted` and `settled` are each waited for; those that wait at the same time share a commit.

How long it takes until a thread's owner learns what another worker received, and until the threads of a worker that
dies are taken up. And what a look around costs where many threads are idle.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import anyio
import psycopg

from benchmarks.figures import Conditions, Figure, quantile
from benchmarks.slack_wire import cpu_of
from bot.extensions.postgres.journal import Ownership
from bot.extensions.postgres.store import PostgresStore
from tests.fakes.postgres import Server
from threads.background import background_tasks
from threads.journal.records import Intent, PendingMessage, Settled
from threads.model import Author, FollowUp, Incoming, StopRequest, ThreadId

THREADS = 256
PER_MINUTE = 1_000
"""How many messages a person may have answered: counted, and never reached here."""

OWNED = 10_000
OWN = "UPDATE thread SET owner = %s WHERE id IN (SELECT id FROM thread ORDER BY id LIMIT %s) RETURNING id, epoch"
CHANNEL = ThreadId("slack", "T1", "C1", "")
IDLE = """
INSERT INTO thread (id, epoch) SELECT 'slack:T1:C2:' || n, 1 FROM generate_series(1, %(n)s) n;
INSERT INTO message (key, thread, received, settled, settled_at, outcome)
SELECT 'slack:T1:C2:m' || n, 'slack:T1:C2:' || n, '{}', '{}', now(), 'answered' FROM generate_series(1, %(n)s) n
"""


class Taker:
    """A core that serves nothing: the benchmark writes the records itself. Events tell what it was told."""

    def __init__(self) -> None:
        self.routed: dict[str, anyio.Event] = {}
        self.changes, self.taken = anyio.Event(), set[str]()

    def route(self, pending: PendingMessage) -> None:
        self.routed.setdefault(pending.incoming.key, anyio.Event()).set()

    def take_up(self, pending: Sequence[PendingMessage]) -> None:
        for one in pending:
            self.taken.add(one.incoming.key)
            self.route(one)

    def settled(self, _: PendingMessage, __: Settled) -> None: ...
    def release(self, _: ThreadId) -> None: ...
    def serves(self, _: ThreadId) -> bool:
        return True

    async def changed(self, _: FollowUp) -> None:
        self.changes.set()


@asynccontextmanager
async def _worker(dsn: str) -> AsyncIterator[tuple[PostgresStore, Taker]]:
    """Run a worker until the block ends, and then let it die."""
    store = PostgresStore(dsn, Path("/nowhere"), name="bench", version="0", now=partial(datetime.now, UTC))
    taker = Taker()
    await store.open(["slack"])
    try:
        async with background_tasks() as tasks:
            store.start(tasks, taker)
            yield store, taker
    finally:
        with anyio.CancelScope(shield=True):
            await store.abort()


async def serve(store: PostgresStore, taker: Taker, thread: ThreadId, messages: int) -> None:
    journal = store.journal
    for number in range(messages):
        incoming = Incoming(
            f"{thread.root}.{number}", thread, Author(f"U{thread.root}"), "What is the plan for today? " * 4
        )
        routed = taker.routed.setdefault(incoming.key, anyio.Event())
        await journal.receive(incoming, PER_MINUTE)
        await routed.wait()
        pending = journal.ledger.pending[incoming.key]
        intent = Intent(
            thread_id=str(thread),
            message_id=incoming.id,
            text="The plan. " * 20,
            post="reply",
            outcome="answered",
        )
        await journal.append(pending.start(1, "c"))
        await journal.append(intent)
        pending.platform_id = "p"
        await journal.append(pending.posted())
        await journal.append(pending.settled("answered"))


async def _durable_points(dsn: str, messages: int) -> tuple[float, float]:
    """Return the seconds that all took, and the CPU seconds of the worker."""
    async with _worker(dsn) as (store, taker):
        began, cpu = time.perf_counter(), time.process_time()
        async with anyio.create_task_group() as serving:
            for number in range(THREADS):
                thread = replace(CHANNEL, root=str(number))
                serving.start_soon(serve, store, taker, thread, messages // THREADS)
        return time.perf_counter() - began, time.process_time() - cpu


async def _between_workers(dsn: str, tries: int) -> tuple[list[float], list[float]]:
    """Return how long a message, and a stop, took to the owner of its thread, in milliseconds."""
    messages, stops = list[float](), list[float]()
    async with _worker(dsn) as (owner, taker), _worker(dsn) as (other, _):
        thread = replace(CHANNEL, root="1")
        await owner.journal.receive(Incoming("first", thread, Author("U1"), "hi"))
        for number in range(tries):
            steer = Incoming(f"m{number}", thread, Author("U1"), "and this")
            routed = taker.routed.setdefault(steer.key, anyio.Event())
            began = time.perf_counter()
            await other.journal.receive(steer)
            await routed.wait()
            messages.append((time.perf_counter() - began) * 1000)
            taker.changes, began = anyio.Event(), time.perf_counter()
            await other.journal.stop_elsewhere(StopRequest("s", CHANNEL, 1 << 40))
            await taker.changes.wait()
            stops.append((time.perf_counter() - began) * 1000)
            await anyio.sleep(0.01)
    return messages, stops


async def _takeover(dsn: str) -> list[float]:
    """Return how long after a worker's death each of its pending messages was taken up, in milliseconds."""
    found = list[float]()
    async with _worker(dsn) as (survivor, taker):
        survivor.journal.accepting = False  # or it would take its share before the death
        async with _worker(dsn) as (dying, its):
            await anyio.sleep(4)  # a worker judges others once it has seen a lease
            for number in range(THREADS):
                incoming = Incoming(f"m{number}", replace(CHANNEL, root=str(number)), Author("U1"), "hi")
                routed = its.routed.setdefault(incoming.key, anyio.Event())
                await dying.journal.receive(incoming)
                await routed.wait()
            survivor.journal.accepting = True
        began = time.perf_counter()
        for key in its.routed:
            await taker.routed.setdefault(key, anyio.Event()).wait()
            found.append((time.perf_counter() - began) * 1000)
    return found


async def _idle(dsn: str, server: Server, owned: int = 0) -> tuple[float, float, float]:
    """Return the CPU shares of a worker that has nothing to do, and of its server, and the threads in its memory.

    It owns so many of the threads, each with an actor.
    """
    async with _worker(dsn) as (store, _):
        if owned:
            with psycopg.connect(dsn, autocommit=True) as connection:
                found = connection.execute(OWN.encode(), (store.worker.number, owned)).fetchall()
                connection.execute("VACUUM ANALYZE")
            owned_here = {thread: Ownership(epoch, seen=1, served=True) for thread, epoch in found}
            store.journal.owned.update(owned_here)
        await anyio.sleep(15)  # a checkpoint and a vacuum are over
        began, cpu, its = time.perf_counter(), time.process_time(), cpu_of(server.pid)
        await anyio.sleep(10)
        took = time.perf_counter() - began
        shares = (time.process_time() - cpu) / took, (cpu_of(server.pid) - its) / took
        return shares[0] * 100, shares[1] * 100, len(store.journal.owned)


def measure(conditions: Conditions) -> Iterator[Figure]:
    messages = THREADS * (8 if conditions.quick else 40)
    with Server(durable=True) as server:
        took, used = anyio.run(_durable_points, server.new_database(), messages)
        yield Figure("messages", messages / took, "1/s", at_least=1_500)
        yield Figure("worker CPU a message", used / messages * 1000, "ms", at_most=1)
        tries = 100 if conditions.quick else 500
        for what, times in zip(
            ("message", "stop"), anyio.run(_between_workers, server.new_database(), tries), strict=True
        ):
            yield Figure(f"{what} to another worker, p50", quantile(times, 0.5), "ms")
            yield Figure(f"{what} to another worker, p99", quantile(times, 0.99), "ms", at_most=50)
        times = anyio.run(_takeover, server.new_database())
        yield Figure("taken up after a death, p50", quantile(times, 0.5), "ms")
        yield Figure("taken up after a death, p99", quantile(times, 0.99), "ms", at_most=1_000)
        dsn, threads = server.new_database(), 10_000 if conditions.quick else 100_000
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute((IDLE % {"n": threads}).encode())
        share, its, owned = anyio.run(_idle, dsn, server)
        yield Figure(f"CPU beside {threads:,} idle threads", share, "%", at_most=2)
        yield Figure("  and its server", its, "%")
        yield Figure("of them in memory", owned, "", at_most=0)
        share, its, owned = anyio.run(_idle, dsn, server, OWNED)
        yield Figure(f"CPU with {owned:,.0f} own threads", share, "%", at_most=1)
        yield Figure("  and its server", its, "%", at_most=0.5)
