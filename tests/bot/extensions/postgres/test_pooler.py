"""A worker over a pooler of transactions: nothing is kept in a session, and nothing is carried out too late."""

from __future__ import annotations

import anyio
import anyio.to_thread
import psycopg
import pytest

from bot.config.extensions import settings_model
from bot.config.load import check_used, references
from bot.config.settings import Settings
from bot.extensions.postgres import session as module
from bot.extensions.postgres.checks import ELSEWHERE, examine
from bot.extensions.postgres.extension import POOL, pool_of
from bot.extensions.postgres.session import DatabaseSession, Pool, SessionLost
from bot.extensions.postgres.store import PostgresStore
from bot.ports.config_error import ConfigInvalid
from tests.bot.extensions.postgres.workers import Seat, message, rows, said, workers
from tests.fakes.pooler import Pooler
from tests.patience import WITHIN_S
from tests.serving import KEYS, serving
from threads.errors import StoreUnavailable

LEFT = (
    "SELECT (SELECT count(*) FROM pg_prepared_statements), (SELECT count(*) FROM pg_listening_channels()), "
    "(SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'), "
    "(SELECT count(*) FROM pg_settings WHERE source = 'session' AND name <> 'application_name')"
)
LATE = "INSERT INTO role (name, worker) VALUES ('late', 1)"
DONE = "SELECT count(*) FROM role"


@pytest.fixture
async def pooler(dsn, tmp_path):
    async with Pooler(dsn, tmp_path).running() as pooler:
        yield pooler


async def test_a_bot_over_a_pooler_answers_and_keeps_nothing_in_a_session(dsn, pooler, tmp_path):
    store = {"kind": "postgres", "dsn": "env:DATABASE_URL", "pool_dsn": "env:POOL_URL"}
    environ = {**KEYS, "DATABASE_URL": dsn, "POOL_URL": pooler.dsn}
    async with serving(tmp_path, {"store": store}, model="offline/demo", environ=environ) as chat:
        for _ in range(3):
            await chat.say("hello")
        kept = (
            "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'threadfast %' AND datname = "
        )
        kept += "current_database()"
        [(sessions,)] = await anyio.to_thread.run_sync(rows, dsn, kept)
        assert sessions == 1 + 2, "one with the lock, and those of the pooler"
        connection = await psycopg.AsyncConnection.connect(pooler.dsn, autocommit=True)
        async with connection:
            for _ in range(2):
                assert await (await connection.execute(LEFT)).fetchall() == [(0, 0, 0, 0)]
    assert rows(dsn, "SELECT count(*) FROM message WHERE outcome = 'answered'") == [(3,)]


async def test_its_statements_have_the_limits_of_other_connections(pooler):
    pool = Pool(pooler.dsn, pooled=True)
    for name, value in {"statement_timeout": "9s", "synchronous_commit": "on"}.items():
        assert await DatabaseSession(pool).rows("SELECT current_setting(%s)", (name,)) == [(value,)]
    await pool.close()


async def test_what_a_pooler_passes_on_after_its_sender_gave_up_is_refused(dsn, pooler, monkeypatch):
    monkeypatch.setattr(module, "STATEMENT_S", 1.0)
    monkeypatch.setattr(module, "START_S", 0.5)
    monkeypatch.setattr(psycopg.AsyncConnection, "cancel_safe", _is_not_heard)
    pool = Pool(pooler.dsn, pooled=True)
    session = DatabaseSession(pool)
    await session.rows(DONE)
    pooler.goes_on.clear()
    with pytest.raises(SessionLost):
        await session.rows(LATE)
    assert pooler.waiting == 1
    pooler.goes_on.set()
    assert await session.rows(DONE) == [(0,)]
    await session.rows(LATE)
    assert await session.rows(DONE) == [(1,)]
    await pool.close()


async def test_a_statement_that_the_server_refuses_keeps_nobody_waiting(pooler):
    pool = Pool(pooler.dsn, pooled=True)
    session = DatabaseSession(pool)
    with pytest.raises(psycopg.Error):
        await session.rows("SELECT nothing")
    with anyio.fail_after(module.START_S / 2):
        await session.rows(DONE)
    await pool.close()


async def test_two_workers_over_a_pooler_lose_nothing_when_their_connections_are_cut(dsn, pooler):
    async with workers(dsn, 2, pool_dsn=pooler.dsn) as (one, other):
        for number in range(4):
            with anyio.fail_after(WITHIN_S):
                while not await _received((one, other)[number % 2], message(number)):
                    await anyio.sleep(0.01)
            await Seat.until(lambda number=number: len(one.routed) == number + 1)
            await one.settle(one.routed[-1])
            context = one.store.context(one.routed[-1].incoming.thread)
            loaded = await context.load()
            await context.save([*loaded.messages, said(f"line {number}")])
            await anyio.to_thread.run_sync(rows, dsn, CUT)
        await one.until(lambda: len(one.ends) == 4)
        assert (one.died, other.died) == (None, None)
    assert rows(dsn, "SELECT count(*) FROM context") == [(4,)]


CUT = (
    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
    "WHERE application_name LIKE 'threadfast %' AND datname = current_database()"
)


async def _received(seat, incoming):
    try:
        await seat.journal.receive(incoming)
    except StoreUnavailable:
        return False
    return True


async def test_a_pooler_before_another_database_is_refused(server, dsn, pooler, tmp_path):
    other = server.new_database()
    assert await anyio.to_thread.run_sync(examine, dsn, pooler.dsn)
    found = await anyio.to_thread.run_sync(examine, other, pooler.dsn)
    assert ELSEWHERE in found.faults
    with pytest.raises(ConfigInvalid, match="another database"):
        await PostgresStore(other, tmp_path, name="w", version="1", now=None, pool_dsn=pooler.dsn).prepare()


def test_its_address_is_a_secret_of_the_settings():
    given = {"store": {"kind": "postgres", "pool_dsn": "env:POOL_URL"}}
    settings = settings_model().model_validate(given, strict=False)
    assert pool_of(settings, {"POOL_URL": "host=x"}) == "host=x"
    assert references(settings)["store.pool_dsn"] == "env:POOL_URL"
    [fault] = check_used(settings, {"DATABASE_URL": "host=x"}, transports=False)
    assert fault.startswith("store.pool_dsn: env:POOL_URL: ")
    assert POOL.of(Settings()) is None


async def _is_not_heard(*_: object, **__: object) -> None:
    """Stand where a request to cancel is lost on its way."""
