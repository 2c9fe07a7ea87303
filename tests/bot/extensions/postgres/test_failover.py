"""A synchronous replica takes the place of its primary: what was acknowledged is there, and is answered."""

from __future__ import annotations

from contextlib import closing, suppress

import anyio
import anyio.to_thread
import pytest

from bot.extensions.postgres.worker import WorkerLost
from tests.bot.extensions.postgres.test_restored import restored
from tests.bot.extensions.postgres.workers import message, rows, workers
from tests.fakes.postgres import Server
from threads.errors import StoreUnavailable
from threads.model import ThreadId

BEFORE = 100
"""Messages that are accepted before the crash. People go on until it has happened."""


@pytest.fixture
def servers():
    with Server() as primary, closing(Server(primary)) as replica:
        replica.replicate()
        yield primary, replica


async def test_a_synchronous_fail_over_loses_nothing_and_starts_all_workers_over(servers):
    primary, replica = servers
    dsn = primary.new_database().replace(
        f"host={primary.folder}", f"host={primary.folder},{replica.folder} target_session_attrs=read-write"
    )
    accepted, half, crashed = set[str](), anyio.Event(), anyio.Event()
    assert await restored(dsn) is None

    async def say(seats, number):
        with suppress(StoreUnavailable):
            await seats[number % 2].journal.receive(
                message(number, ThreadId("slack", "W", "C", f"{number % 9}"))
            )
            accepted.add(f"m{number}")
            if len(accepted) == BEFORE:
                half.set()

    async with workers(dsn, 2) as seats, anyio.create_task_group() as tasks:
        tasks.start_soon(_crash_after, half, primary, crashed)
        async with anyio.create_task_group() as people:
            said = 0
            while not crashed.is_set():
                people.start_soon(say, seats, said)
                said += 1
                await anyio.sleep(0.002)
            people.start_soon(say, seats, said)
        await anyio.to_thread.run_sync(replica.promote)
        for seat in seats:
            await seat.until(lambda seat=seat: seat.died)
            assert isinstance(seat.died, WorkerLost)
    assert BEFORE <= len(accepted) <= said, "the last one finds nobody"

    assert await restored(dsn) is not None, "one that was not synchronous would know less than the platforms"
    async with workers(dsn, 2) as seats:
        stored = {key.rpartition(":")[2] for (key,) in rows(dsn, "SELECT key FROM message")}
        assert accepted <= stored
        await seats[0].until(lambda: sum(len(seat.taken) for seat in seats) == len(stored))
        for seat in seats:
            for pending in seat.taken:
                await seat.settle(pending)
    assert rows(dsn, "SELECT count(*) FROM message WHERE outcome = 'answered'") == [(len(stored),)]


async def _crash_after(half: anyio.Event, server: Server, crashed: anyio.Event) -> None:
    await half.wait()
    await anyio.to_thread.run_sync(server.crash)
    crashed.set()
