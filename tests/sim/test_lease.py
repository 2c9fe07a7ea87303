"""What only one worker does at a time, over a simulated database in virtual time: it survives a cut, and never overlaps."""

from __future__ import annotations

import random
from functools import partial
from unittest.mock import patch

import anyio
import anyio.to_thread
import psycopg
import pytest

import bot.extensions.postgres.worker
from bot.extensions.postgres.worker import LEASE_S, Worker
from tests.bot.extensions.postgres.workers import Seat
from tests.sim.database import Database
from tests.sim.loop import virtual_loop
from tests.sim.workers import Clock
from tests.world import inline
from threads.background import background_tasks

BEFORE_S = 2 * LEASE_S
"""A worker judges others once it has seen a lease."""


CASES = {
    "a cut": (True, 0, ["sim1"]),
    "an outage": (True, 10, ["sim1", "sim2"]),
    "a silence": (False, 10, ["sim1", "sim2"]),
}


@pytest.mark.parametrize("case", CASES)
def test_a_worker_that_is_cut_off_keeps_its_role_or_ends_it_in_time_and_posts_nothing_in_doubt(case):
    play(*CASES[case])


@pytest.mark.parametrize("case", ["an outage", "a silence"])
def test_a_worker_that_posts_without_a_sure_lease_is_caught(case):
    with (
        patch.object(Worker, "ensure_ownership", lambda _: anyio.sleep(0)),
        pytest.raises(ExceptionGroup) as caught,
    ):
        play(*CASES[case])
    assert "posts" in str(caught.value.exceptions)


def play(breaks, away_s, turns):
    """Cut worker sim1 off for so long; its connections break, or are silent. Judge who does what only one may do."""
    database, begun, running = Database(random.Random(1)), [], set[str]()

    async def work(name):
        assert not running, "two do at once what only one may do"
        begun.append(name)
        running.add(name)
        try:
            await anyio.sleep_forever()
        finally:
            running.discard(name)

    async def post(seat):
        while True:
            await seat.store.ensure_ownership()
            assert seat.worker.number in database.workers, "it posts, although it was taken for dead"
            await anyio.sleep(0.01)

    async def run():
        seats = {name: Seat(f"host={name} dbname=sim", name=name) for name in ("sim1", "sim2")}
        async with background_tasks() as tasks:
            for name, seat in seats.items():
                await seat.store.open(["slack"])
                tasks.start_soon(seat.run)
                tasks.start_soon(seat.store.hold, "reader", partial(work, name), lambda: None)
                tasks.start_soon(post, seat)
                await anyio.sleep(BEFORE_S)
            if away_s:
                database.cut_off.add("sim1")
            if breaks:
                database.kill("sim1")
                await anyio.sleep(0.001)  # a new connection takes longer
                with anyio.move_on_after(0) as waits:
                    await seats["sim1"].store.ensure_ownership()
                assert waits.cancelled_caught, "whoever lost its lock posts nothing"
            await anyio.sleep(away_s + 1)
            if not away_s:
                await seats["sim1"].store.ensure_ownership()

    with (
        patch.object(psycopg.AsyncConnection, "connect", database.connect),
        patch.object(anyio.to_thread, "run_sync", inline),
        patch.multiple(bot.extensions.postgres.worker, datetime=Clock),
    ):
        anyio.run(run, backend="asyncio", backend_options=virtual_loop(1))
    assert begun == turns
