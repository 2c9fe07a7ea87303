"""The store of many workers, in a whole bot."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial

import anyio
import pytest

from bot.config.settings import Settings
from bot.wiring.app import serve
from tests.serving import FAST, KEYS, Chat

pytestmark = pytest.mark.anyio


async def test_a_bot_says_that_the_database_is_away_and_nothing_once_it_is_back(server, tmp_path):
    parts = []

    @asynccontextmanager
    async def watch(live):
        parts.append(live)
        yield

    async def until_troubles(*wanted):
        with anyio.fail_after(20):
            while not parts or [*parts[0].troubles()] != [*wanted]:
                await anyio.sleep(0.05)

    given = {**FAST, "data": tmp_path, "store": {"kind": "postgres", "dsn": "env:DATABASE_URL"}}
    settings = Settings.model_validate(given, strict=False)
    environ = {**KEYS, "DATABASE_URL": server.new_database()}
    run = partial(serve, model="offline/demo", make_transports=lambda _: [Chat()], watch=watch)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, settings, environ)
        await until_troubles()
        server.crash()
        await until_troubles("the database does not answer; nothing is acknowledged or posted until it does")
        await anyio.to_thread.run_sync(server.start)
        await until_troubles()
        tasks.cancel_scope.cancel()
