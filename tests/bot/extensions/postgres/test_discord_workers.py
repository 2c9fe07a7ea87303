"""Discord over several workers: one holds the session, and any of them answers."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import anyio

from bot.extensions.postgres.store import PostgresStore
from bot.routing.commands import with_extensions
from bot.wiring.app import utc_now
from tests.bot.extensions.postgres.workers import rows, workers
from tests.fakes.discord import CHANNEL, GUILD, U1, FakeDiscord
from tests.transports.bot import bot_over, surroundings
from tests.world import Scripted
from threads.model import ThreadId
from transports.discord.api.account import GLOBAL_BURST, GLOBAL_PER_S
from transports.discord.api.options import Options
from transports.discord.api.rest import open_rest
from transports.discord.client import Discord


def shared(store):
    return partial(store.take_token, "discord", GLOBAL_PER_S, GLOBAL_BURST)


@asynccontextmanager
async def worker(discord, dsn, data):
    store = PostgresStore(dsn, data, name="w", version="1", now=utc_now)
    options = Options(discord.token, discord.api_base_url, discord.gateway_url, commands=with_extensions(()))
    given = surroundings(data, "discord") | {
        "recent": partial(store.recent, "discord"),
        "marks": store.marks("discord"),
        "hold": store.hold,
    }
    try:
        edge = Discord(options, data, **given)
        edge.take_global = shared(store)
        async with bot_over(edge, data, Scripted(), store=store, connected=False):
            yield store
    finally:
        with anyio.CancelScope(shield=True):
            await store.abort()


async def test_a_command_is_answered_to_its_person_alone_by_a_worker_that_did_not_receive_it(dsn, tmp_path):
    async with FakeDiscord() as discord, worker(discord, dsn, tmp_path / "a") as one:
        await discord.until(lambda: rows(dsn, "SELECT FROM role WHERE name = 'gateway:discord'"))
        async with worker(discord, dsn, tmp_path / "b") as other:
            thread = ThreadId("discord", GUILD, CHANNEL, "")
            number = other.worker.number
            rows(dsn, f"INSERT INTO thread (id, owner, epoch) VALUES ('{thread}', {number}, 1) RETURNING id")
            asked = discord.slash(U1, CHANNEL, "status")
            await asked
            await discord.until(lambda: asked.original.content)
            assert rows(dsn, "SELECT owner FROM thread") == [(number,)]
            assert number != one.worker.number
        assert asked.original.content.startswith("Idle")
        assert asked.original.ephemeral
        assert discord.posts(CHANNEL) == []


async def test_all_workers_together_make_no_more_calls_than_discord_allows(dsn, tmp_path):
    async with FakeDiscord(rate_limits=True) as discord, workers(dsn, 2) as seats, AsyncExitStack() as opened:
        message = await discord.say(U1, CHANNEL, "hello")
        rests = [
            await opened.enter_async_context(open_rest(discord.api_base_url, discord.token)) for _ in seats
        ]
        for rest, seat in zip(rests, seats, strict=True):
            await rest.login()
            rest.take_global = shared(seat.store)
        async with anyio.create_task_group() as calls:
            for number in range(120):
                calls.start_soon(rests[number % 2].message, CHANNEL, message.id)
        assert len(discord.calls_to("GET /channels/{}/messages/{}")) == 120
        assert discord.limited == []
