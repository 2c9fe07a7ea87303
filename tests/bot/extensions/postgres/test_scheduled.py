"""What is scheduled is sent once, whichever workers die meanwhile."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import anyio

from bot.extensions.postgres.store import PostgresStore
from bot.schedules.scheduler import Scheduler
from bot.schedules.store import Schedule, ScheduleLimits, Schedules, SchedulesFile
from tests.bot.extensions.postgres.workers import THREAD, rows
from tests.patience import WITHIN_S, until
from tests.serving import KEYS, Chat, serving
from tests.world import ANN, T1
from threads.background import background_tasks
from threads.journal.ports import NullTaker
from threads.scheduled_messages import scheduled_id

COUNT, EVERY_S, DEATHS = 150, 0.04, 4
now = partial(datetime.now, UTC)


async def nothing(_):
    pass


async def serve(dsn: str, deaths: dict[int, anyio.Event]) -> None:
    """Send what is due, if the role is this worker's, until it dies."""
    store = PostgresStore(dsn, Path("/nowhere"), name="w", version="1", now=now)
    try:
        await store.open(["slack"])
        death = deaths[store.worker.number] = anyio.Event()
        schedules = Schedules(
            await store.states.open("schedules", SchedulesFile()), store.now, ScheduleLimits()
        )
        schedules.read_zones()
        scheduler = Scheduler(
            schedules,
            sink=store.journal.receive,
            in_journal=store.journal.knows,
            has_access=lambda _: True,
            within_budget=lambda: True,
            post_notice=nothing,
            transports=["slack"],
            max_age_s=600,
        )
        async with background_tasks() as tasks:
            store.start(tasks, NullTaker())
            tasks.start_soon(store.hold, "schedules", scheduler.run, lambda: None)
            await death.wait()
    finally:
        with anyio.CancelScope(shield=True):
            await store.abort()


async def test_each_occurrence_is_sent_once_by_workers_that_die(dsn):
    rng, deaths = random.Random(1), dict[int, anyio.Event]()
    first = PostgresStore(dsn, Path("/nowhere"), name="w", version="1", now=now)
    state = await first.states.open("schedules", SchedulesFile())
    due = [now() + timedelta(seconds=number * EVERY_S) for number in range(COUNT)]
    schedules = tuple(
        Schedule(id=f"s{n}", thread=str(THREAD), author=ANN, text=f"say {n}", next_at=at, source=f"s{n}")
        for n, at in enumerate(due)
    )
    await state.change(lambda value: value.model_copy(update={"schedules": schedules}))

    async def live_on() -> None:
        while True:
            await serve(dsn, deaths)

    async with background_tasks() as tasks:
        for _ in range(3):
            tasks.start_soon(live_on)
        for _ in range(DEATHS):
            await anyio.sleep(rng.uniform(1, 2))
            for (holder,) in rows(dsn, "SELECT worker FROM role WHERE name = 'schedules'"):
                deaths[holder].set()
        with anyio.fail_after(WITHIN_S):
            while state.value.schedules:
                await anyio.sleep(0.1)
                await first.states.refresh()
    await first.abort()
    expected = {f"slack:W:C:{scheduled_id(one.id, one.next_at)}" for one in schedules}
    assert {key for (key,) in rows(dsn, "SELECT key FROM message")} == expected


async def test_a_process_that_serves_another_transport_keeps_nobody_from_sending_what_is_due(dsn, tmp_path):
    settings = {"store": {"kind": "postgres", "dsn": "env:DATABASE_URL"}, "tools": {"enabled": ["schedule"]}}
    serve_on = partial(serving, model="offline/demo", environ={**KEYS, "DATABASE_URL": dsn})
    terminal = Chat()
    terminal.name = "terminal"
    async with serve_on(tmp_path / "a", settings, chat=terminal):
        await until(lambda: rows(dsn, "SELECT FROM role WHERE name LIKE 'schedules%'"))
        async with serve_on(tmp_path / "b", settings) as chat:
            store = PostgresStore(dsn, tmp_path, name="w", version="1", now=now)
            schedules = Schedules(await store.states.open("schedules", SchedulesFile()), now)
            await schedules.add(Schedule(thread=str(T1), author=ANN, text="hello", next_at=now(), source="s"))
            await store.abort()
            await until(lambda: chat.posts)
