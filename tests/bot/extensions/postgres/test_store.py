"""The store of many workers, in a whole bot."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import anyio

from bot.config.settings import Settings
from bot.extensions.postgres.session import SHARED
from bot.wiring import escalation
from bot.wiring.app import serve
from tests.bot.extensions.postgres.workers import THREAD, message, rows, workers
from tests.patience import until
from tests.serving import FAST, KEYS, Chat, serving
from tests.world import T1
from threads.background import background_tasks


async def test_a_bot_says_that_the_database_is_away_and_nothing_once_it_is_back(server, tmp_path):
    parts = []

    @asynccontextmanager
    async def watch(live):
        parts.append(live)
        yield

    async def until_troubles(*wanted):
        await until(lambda: parts and [*parts[0].troubles()] == [*wanted])

    given = {**FAST, "data": tmp_path, "store": {"kind": "postgres", "dsn": "env:DATABASE_URL"}}
    settings = Settings.model_validate(given, strict=False)
    environ = {**KEYS, "DATABASE_URL": server.new_database()}
    run = partial(serve, model="offline/demo", make_transports=lambda _: [Chat()], watch=watch)
    async with background_tasks() as tasks:
        tasks.start_soon(run, settings, environ)
        await until_troubles()
        server.crash()
        await until_troubles("the database does not answer; nothing is acknowledged or posted until it does")
        await anyio.to_thread.run_sync(server.start)
        await until_troubles()


class There(Chat):
    name = "there"


async def test_what_all_workers_notice_one_of_them_reports_to_the_operators(dsn, tmp_path, monkeypatch):
    monkeypatch.setattr(escalation, "LOOK_S", 0.01)
    given = {
        **FAST,
        "store": {"kind": "postgres", "dsn": "env:DATABASE_URL"},
        "escalation": {"channel": "fake:W:OPS"},
    }
    bots = [(Chat(), There()) for _ in range(2)]
    async with background_tasks() as tasks:
        for number, bot in enumerate(bots):
            settings = Settings.model_validate({**given, "data": tmp_path / str(number)}, strict=False)
            run = partial(serve, model="offline/demo", make_transports=lambda _, bot=bot: [*bot])
            tasks.start_soon(run, settings, {**KEYS, "DATABASE_URL": dsn})
            await bot[1].ready.wait()
        for _, there in bots:
            there.state = "disconnected"
        await until(lambda: any(chat.posts for chat, _ in bots))
        await anyio.sleep(0.5)  # the other looks every hundredth of a second
        [post] = [post for chat, _ in bots for post in chat.posts]
        assert "cut off from There" in post.text


async def test_a_thread_is_begun_whatever_was_said_there(dsn):
    async with workers(dsn, 1) as [one]:
        assert "\x00" in message(1).text
        await one.journal.receive(message(1))
        found = [await one.store.begun(THREAD, day) for day in ("2026-11-24", "2026-11-22")]
        assert found == [True, False]


async def test_a_report_is_claimed_again_by_its_own_worker_and_later_by_another(dsn):
    async with workers(dsn, 2) as (one, other):
        found = [await seat.store.claim_report("x", 600) for seat in (one, other, one)]
        assert found == [True, False, True]
        assert await other.store.claim_report("y", 600)
        assert await other.store.claim_report("x", 0)
        rows(dsn, "UPDATE bucket SET at = at - interval '2 h' WHERE starts_with(name, 'report:') RETURNING 1")
        rows(dsn, "SELECT collect()")
        assert rows(dsn, "SELECT FROM bucket WHERE starts_with(name, 'report:')") == []


async def test_a_worker_keeps_four_connections_at_most_whatever_it_does(dsn, tmp_path):
    """Twenty workers fit beside the operator's own commands into the hundred of a stock server."""
    store = {"kind": "postgres", "dsn": "env:DATABASE_URL"}
    environ = {**KEYS, "DATABASE_URL": dsn}
    async with serving(tmp_path, {"store": store}, model="offline/demo", environ=environ) as chat:
        async with anyio.create_task_group() as people:
            for number in range(30):
                people.start_soon(partial(chat.say, "hello", thread=replace(T1, root=f"{number}.0")))
        # None of them is closed before its worker ends.
        kept = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        assert rows(dsn, kept) == [(1 + SHARED,)]
        assert 20 * (1 + SHARED) < 100 - 3
