"""A session over a real server: what it gave up on is over before it goes on."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager, suppress

import anyio
import psycopg
import pytest

from bot.extensions.postgres import session as module
from bot.extensions.postgres.session import SHARED, DatabaseSession, Pool, SessionLost, Together
from threads.background import background_tasks

PID = "SELECT pg_backend_pid()"
LATE = "INSERT INTO role (name, worker) VALUES ('late', 1)"
DONE = "SELECT count(*) FROM role"


@contextmanager
def stands_still(pid: int):
    """Have a process of the server stand still, as on an overloaded machine."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def test_nothing_goes_on_while_an_earlier_statement_may_still_be_carried_out(pool, monkeypatch):
    """Not over another connection of the pool either."""
    async with pool.connection(), pool.connection():
        pass
    session = DatabaseSession(pool)
    [[pid]] = await session.rows(PID)
    monkeypatch.setattr(module, "STATEMENT_S", 1.0)
    with stands_still(pid):
        with pytest.raises(SessionLost):
            await session.rows(LATE)
        with pytest.raises(SessionLost):
            await session.rows(PID)
    monkeypatch.undo()
    assert await session.rows(PID) != [(pid,)]
    assert await session.rows(DONE) == [(0,)]


async def test_a_statement_that_waits_on_the_server_ends_before_the_next_one(dsn, pool, monkeypatch):
    session = DatabaseSession(pool)
    await session.rows(PID)
    with psycopg.connect(dsn) as other:
        other.execute("LOCK TABLE role")
        monkeypatch.setattr(module, "STATEMENT_S", 1.0)
        monkeypatch.setattr(psycopg.AsyncConnection, "cancel_safe", _is_not_heard)
        with pytest.raises(SessionLost):
            await session.rows(LATE)
        await session.rows(PID)
    assert await session.rows(DONE) == [(0,)]


async def test_a_connection_that_the_server_ended_meanwhile_is_opened_again_unnoticed(dsn, pool):
    session = DatabaseSession(pool)
    [[pid]] = await session.rows(PID)
    with psycopg.connect(dsn, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
    assert await session.rows(PID) != [(pid,)]


async def test_other_connections_are_left_alone(dsn, pool):
    one, other = DatabaseSession(pool), Pool(dsn)
    [[pid]] = await one.rows(PID)
    for _ in range(2):
        await DatabaseSession(other).rows(PID)
        await other.close()
    assert await one.rows(PID) == [(pid,)]


async def test_what_a_message_waits_for_waits_for_no_slow_statement_of_others(pool):
    """However many there are: two have their places, and the others wait for these."""
    first, running = DatabaseSession(pool, first=True), 0

    async def sleep():
        with suppress(SessionLost):
            await DatabaseSession(pool).rows("SELECT pg_sleep(8)")

    async with anyio.create_task_group() as slow:
        for _ in range(6):
            slow.start_soon(sleep)
        await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(5):  # before any of them is over
            while running < SHARED - 1:
                [(running,)] = await first.rows(SLOW)
        slow.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            assert len(await first.rows(END_SLOW)) == SHARED - 1


SLOW = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%%' AND datname = current_database()"
END_SLOW = SLOW.replace("count(*)", "pg_terminate_backend(pid)")


async def test_a_list_arrives_as_it_is_whatever_is_in_it(pool):
    texts = ["", "NULL", None, 'a "b" \\ {c,d}', "\\", "\u2028\n", " x "]
    [[came, numbers, flags, data]] = await DatabaseSession(pool).rows(
        "SELECT %s::text[], %s::bigint[], %s::boolean[], %s::bytea[]",
        (texts, [1, None], [True, False], [b"\0"]),
    )
    assert (came, numbers, flags, data) == (texts, [1, None], [True, False], [b"\0"])


async def test_callers_who_wait_at_the_same_time_ask_once_and_each_gets_its_own_answer():
    asked, goes_on, found = [], anyio.Event(), {}

    async def run(some):
        asked.append(some)
        await goes_on.wait()
        if 7 in some:
            raise SessionLost("away")
        return [one * 10 for one in some]

    together = Together(run)

    async def ask(one):
        try:
            found[one] = await together.ask(one)
        except SessionLost:
            found[one] = "away"

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask, 1)
        await anyio.wait_all_tasks_blocked()
        for one in (2, 3):
            tasks.start_soon(ask, one)
        await anyio.wait_all_tasks_blocked()
        goes_on.set()
    assert (asked, found) == ([[1], [2, 3]], {1: 10, 2: 20, 3: 30})
    async with anyio.create_task_group() as tasks:
        for one in (7, 8):
            tasks.start_soon(ask, one)
    assert found[7] == "away"
    assert found[8] in ("away", 80)
    goes_on = anyio.Event()
    async with background_tasks() as tasks:
        tasks.start_soon(ask, 4)
        await anyio.wait_all_tasks_blocked()
    goes_on.set()
    assert await together.ask(5) == 50, "who was cancelled holds nobody up"


async def _is_not_heard(*_: object, **__: object) -> None:
    """Stand where a request to cancel is lost on its way."""
