"""A server that refuses is away, whatever it says: workers wait, and a start ends with a sentence and a code."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import repeat

import anyio
import psycopg
import pytest

from bot.cli.serve import serve_process
from bot.config.load import Loaded
from bot.config.settings import Settings
from bot.extensions.postgres import context, memory
from bot.extensions.postgres.session import (
    DatabaseSession,
    SessionLost,
    SessionRefused,
    is_mistake,
    outage,
    refusal,
)
from bot.extensions.postgres.store import PostgresStore
from bot.extensions.postgres.worker import LEASE_S
from bot.ports.config_error import EX_CONFIG
from tests.bot.extensions.postgres.workers import rows
from tests.patience import until
from tests.serving import KEYS, Chat, serving
from tests.world import T1
from threads.errors import StoreUnavailable

FAILS = """
CREATE SEQUENCE failure;
GRANT ALL ON SEQUENCE failure TO PUBLIC;
CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    states text[] := '{57P01,57P02,57P03,XX000,XX001,XX002,53100,53300,58030,08006,0A000,55000}';
BEGIN
    RAISE EXCEPTION 'injected' USING ERRCODE = states[1 + nextval('failure') % array_length(states, 1)];
END
$$;
"""


def role_of(database):
    return f"bot_{database}"


@pytest.fixture
def admin(dsn):
    """Return what runs statements in the database as its operator."""
    with psycopg.connect(dsn, autocommit=True, options="-c default_transaction_read_only=off") as connection:

        def run(*statements: str) -> None:
            for statement in statements:
                connection.execute(
                    statement.replace("DB", name).replace("ROLE_OF_BOT", role_of(name)).encode()
                )

        name = connection.info.dbname
        run("CREATE ROLE ROLE_OF_BOT LOGIN", "GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO ROLE_OF_BOT")
        yield run


GRANT = "GRANT ALL ON ALL TABLES IN SCHEMA public TO ROLE_OF_BOT"
REVOKE = "REVOKE ALL ON ALL TABLES IN SCHEMA public FROM ROLE_OF_BOT"
END_ALL = (
    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
    "WHERE application_name LIKE 'threadfast%' AND datname = current_database()"
)
READ_ONLY = "ALTER DATABASE DB SET default_transaction_read_only = "
TABLES = ("worker", "thread", "message", "account", "slot")
OUTAGES = {
    "read-only": ((f"{READ_ONLY}on", END_ALL), (f"{READ_ONLY}off", END_ALL)),
    "no rights": ((REVOKE,), (GRANT,)),
    "its own errors": (
        [
            FAILS,
            *(
                f"CREATE TRIGGER fail BEFORE INSERT OR UPDATE OR DELETE ON {name} EXECUTE FUNCTION fail()"
                for name in TABLES
            ),
        ],
        [f"DROP TRIGGER fail ON {name}" for name in TABLES],
    ),
}


@pytest.mark.parametrize("what", OUTAGES)
async def test_no_worker_ends_while_the_server_refuses_and_then_all_is_answered_once(
    dsn, admin, tmp_path, caplog, what
):
    begins, ends = OUTAGES[what]
    chats, threads = (Chat(), Chat()), [replace(T1, root=f"{number}.0") for number in range(4)]

    async def say(number):
        """Say something, as a platform does: what is not acknowledged comes again, at any worker."""
        while True:
            try:
                return await chats[number % 2].sink(
                    replace(template, id=f"m{number}", thread=threads[number % 4])
                )
            except StoreUnavailable:
                await anyio.sleep(0.05)

    admin(GRANT)
    environ = {**KEYS, "DATABASE_URL": f"{dsn} user={role_of(dsn.rpartition('=')[2])}"}
    store = {"kind": "postgres", "dsn": "env:DATABASE_URL"}
    async with AsyncExitStack() as bots:
        for number, chat in enumerate(chats):
            bot = serving(
                tmp_path / f"{number}", {"store": store}, model="offline/demo", environ=environ, chat=chat
            )
            await bots.enter_async_context(bot)
        template = await chats[0].send("hello")
        async with anyio.create_task_group() as people:
            for number in range(10, 14):
                people.start_soon(say, number)
            await anyio.to_thread.run_sync(admin, *begins)
            for number in range(14, 22):
                people.start_soon(say, number)
            await anyio.sleep(LEASE_S + 1)
            await anyio.to_thread.run_sync(admin, *ends)
        await until(lambda: not rows(dsn, "SELECT FROM message WHERE settled IS NULL"))
        assert len(rows(dsn, "SELECT FROM worker")) == 2
        assert rows(dsn, "SELECT max(id) FROM worker") == [(2,)], "nobody started over"
    posts = Counter(post.key for chat in chats for post in chat.posts if post.kind == "reply")
    assert max(posts.values()) == 1
    assert len(posts) == len(rows(dsn, "SELECT FROM message WHERE outcome = 'answered'"))
    assert rows(dsn, "SELECT count(*) FROM message WHERE outcome IN ('answered', 'merged')") == [(13,)]
    assert any(record.startswith("worker.cut_off") for record in caplog.messages)


async def test_a_turn_that_meets_an_outage_where_it_reads_waits_and_is_answered(dsn, tmp_path, monkeypatch):
    monkeypatch.setattr("threads.delivery.retry_pauses", lambda: repeat(0.01))
    to_refuse, rows_of = {context.LOAD, memory.READ}, DatabaseSession.rows

    async def refuse_once(session, statement, parameters=()):
        if statement in to_refuse:
            to_refuse.remove(statement)
            raise SessionLost("away", "57P01")
        return await rows_of(session, statement, parameters)

    chat, store = Chat(), {"kind": "postgres", "dsn": "env:DATABASE_URL"}
    environ, tools = {**KEYS, "DATABASE_URL": dsn}, {"enabled": ["memory"]}
    async with serving(
        tmp_path, {"store": store, "tools": tools}, model="offline/demo", environ=environ, chat=chat
    ):
        monkeypatch.setattr(DatabaseSession, "rows", refuse_once)
        await chat.say("hello")
    assert not to_refuse
    assert rows(dsn, "SELECT outcome FROM message") == [("answered",)]


def start(dsn, tmp_path):
    """Start a worker, as `threadfast run` does. Return the exit code."""

    async def prepare(*_):
        await PostgresStore(dsn, tmp_path, name="w", version="1", now=partial(datetime.now, UTC)).prepare()

    with pytest.raises(SystemExit) as end:
        serve_process(prepare, Loaded(Settings()))
    return end.value.code


@pytest.mark.parametrize(
    ("before", "address", "code", "sentence"),
    [
        (
            (GRANT, f"{READ_ONLY}on"),
            "user=ROLE_OF_BOT",
            os.EX_TEMPFAIL,
            "cannot execute UPDATE in a read-only",
        ),
        ((), "host=/nowhere", os.EX_TEMPFAIL, "No such file or directory Is the server running"),
        ((), "dbname=missing", EX_CONFIG, 'database "missing" does not exist'),
        ((), "user=missing", EX_CONFIG, 'role "missing" does not exist'),
        ((REVOKE,), "user=ROLE_OF_BOT", EX_CONFIG, "permission denied for table worker"),
    ],
)
def test_a_start_that_the_server_refuses_ends_with_a_sentence_and_a_code(
    dsn, admin, tmp_path, monkeypatch, capsys, before, address, code, sentence
):
    monkeypatch.setattr("bot.guards.hardening.harden_process", lambda: None)
    admin(*before)
    name = dsn.rpartition("=")[2]
    assert start(f"{dsn} {address.replace('ROLE_OF_BOT', role_of(name))}", tmp_path) == code
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("postgres: ")
    assert sentence in line


@pytest.mark.parametrize(
    ("states", "mistake", "operator"),
    [
        ("42P01 42883 42601 22P05 22003 23505 23514", True, False),
        ("42501 28P01 28000 3D000 3F000", False, True),
        (
            "57P01 57P02 57P03 57014 XX000 XX001 25006 53300 53100 08006 55000 0A000 40001 58030 26000",
            False,
            False,
        ),
    ],
)
def test_an_sqlstate_decides_whether_a_statement_is_wrong_the_server_away_or_an_operator_needed(
    states, mistake, operator
):
    for state in states.split():
        assert is_mistake(state) == mistake, state
        assert mistake or isinstance(outage("it", state), SessionRefused) == operator, state


AT = 'connection to server at "10.0.0.1", port 5432 failed: '


@pytest.mark.parametrize(
    ("text", "state"),
    [
        (f'connection failed: {AT}FATAL:  password authentication failed for user "bot"', "28000"),
        (f"connection failed: {AT}fe_sendauth: no password supplied", "28000"),
        (f'connection failed: {AT}FATAL:  role "bot" is not permitted to log in', "28000"),
        (f'connection failed: {AT}FATAL:  database "x" does not exist', "3D000"),
        (f'connection failed: {AT}FATAL:  permission denied for database "x"', "42501"),
        (f"connection failed: {AT}FATAL:  the database system is starting up", ""),
        (f"connection failed: {AT}FATAL:  sorry, too many clients already", ""),
        (f"connection failed: {AT}FATAL:  password authentication failed\n- {AT}Connection refused", ""),
        ("consuming input failed: server closed the connection unexpectedly", ""),
        ("the connection is closed", ""),
    ],
)
def test_a_refused_connection_is_told_from_one_that_may_work_soon(text, state):
    assert refusal(text) == state
