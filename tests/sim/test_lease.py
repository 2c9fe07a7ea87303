"""What only one worker does at a time, over a simulated database in virtual time: it survives a cut, and never overlaps."""

from __future__ import annotations

import random
from functools import partial
from unittest.mock import patch

import anyio
import psycopg
import pytest

import bot.store.postgres.worker
from bot.store.postgres.worker import LEASE_S
from tests.bot.store.postgres.workers import Seat
from tests.sim.database import Database
from tests.sim.loop import virtual_loop
from tests.sim.workers import Clock

BEFORE_S = 2 * LEASE_S
"""A worker judges others once it has seen a lease."""


@pytest.mark.parametrize(
    ("away_s", "turns"), [(0, ["sim1"]), (10, ["sim1", "sim2"])], ids=["a cut", "an outage at one"]
)
def test_a_role_stays_with_a_worker_that_was_cut_and_passes_on_without_overlap(away_s, turns):
    database, begun, running = Database(random.Random(1)), [], set[str]()

    async def work(name):
        assert not running, "two do at once what only one may do"
        begun.append(name)
        running.add(name)
        try:
            await anyio.sleep_forever()
        finally:
            running.discard(name)

    async def play():
        seats = {name: Seat(f"host={name} dbname=sim", name=name) for name in ("sim1", "sim2")}
        async with anyio.create_task_group() as tasks:
            for name, seat in seats.items():
                await seat.store.open(["slack"])
                tasks.start_soon(seat.run)
                tasks.start_soon(seat.store.hold, "reader", partial(work, name), lambda: None)
                await anyio.sleep(BEFORE_S)
            one = seats["sim1"]
            if away_s:
                database.cut_off.add("sim1")
            database.kill("sim1")
            await anyio.sleep(0.001)  # a new connection takes longer
            with anyio.move_on_after(0) as waits:
                await one.store.ensure_ownership()
            assert waits.cancelled_caught, "whoever lost its lock posts nothing"
            await anyio.sleep(away_s + 1)
            if not away_s:
                await one.store.ensure_ownership()
            tasks.cancel_scope.cancel()

    with (
        patch.object(psycopg.AsyncConnection, "connect", database.connect),
        patch.multiple(bot.store.postgres.worker, datetime=Clock),
    ):
        anyio.run(play, backend="asyncio", backend_options=virtual_loop(1))
    assert begun == turns
