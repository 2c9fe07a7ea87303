"""The tables come by numbered steps, once; the functions as a whole; a newer database is left alone."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import psycopg
import pytest

from bot.extensions.postgres.journal import APPLY, RECEIVE
from bot.extensions.postgres.ledger import COMMIT, READ, RESERVE
from bot.extensions.postgres.migrations import FUNCTIONS, SQL, STEPS, migrate
from bot.extensions.postgres.session import OPTIONS, ArrayDumper, SessionLost
from bot.extensions.postgres.workspaces import PUT, REPLACE
from threads.errors import NewerSchema

FIRST = Path(__file__).with_name("schema_1.sql")
"""What the first version made: tables and functions in one."""

FORMS = {3: "36d1", 4: "78f6", 5: "5ffb", 6: "38cc"}
"""How the digest of functions.sql begins, by its version."""

CALLS = "SELECT oid::regprocedure::text, prorettype::regtype::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace"
ROWS = {
    "receive": ("SELECT * FROM receive(7, %s, '{t}', '{NULL}', '{{}}', '{U}', '{5}')", (["k"],)),
    "apply": (
        (
            "SELECT apply(7, '{t}', '{1}', '{k}', '{NULL}', '{NULL}', '{NULL}', '{NULL}', %s, '{answered}', "
            "'{}', '{}', '{}', '{}', '{}')"
        ),
        (["{}"],),
    ),
}
"""Statements of the first version's workers."""


@pytest.fixture
def first(server):
    """Return the address of a database as the first version made it."""
    dsn = server.new_database()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        connection.execute(FIRST.read_bytes())
    return dsn


def test_migrating_twice_is_migrating_once(dsn):
    migrate(dsn)
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT schema, functions FROM meta").fetchall() == [(STEPS, FUNCTIONS)]


def test_a_database_of_the_first_version_gets_all_functions_and_its_workers_go_on(first):
    with psycopg.connect(first, autocommit=True) as old:
        old.execute("INSERT INTO worker (id, alive_until, name, version) VALUES (7, now() + '1 h', 'w', '1')")
        [(_, is_new, *_)] = old.execute(*ROWS["receive"], prepare=True).fetchall()
        theirs = set(old.execute(CALLS))
        migrate(first)
        again = old.execute(*ROWS["receive"], prepare=True).fetchall()
        assert (is_new, again) == (True, [("k", False, "t", 7, 1)]), "it goes on with what it has prepared"
        assert old.execute(*ROWS["apply"]).fetchall() == [("t",)]
        assert theirs <= set(old.execute(CALLS)), "a worker of before calls this one"
        assert old.execute("SELECT schema, functions, min_reader FROM meta").fetchall() == [
            (STEPS, FUNCTIONS, 1)
        ]


def test_the_functions_of_a_newer_version_stay(dsn):
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("UPDATE meta SET functions = functions + 1")
        connection.execute("DROP FUNCTION collect")
        migrate(dsn)
        assert connection.execute("SELECT to_regproc('collect') IS NULL").fetchone() == (True,)
        connection.execute("UPDATE meta SET functions = 0")
        migrate(dsn)
        assert connection.execute("SELECT to_regproc('collect') IS NULL").fetchone() == (False,)


@pytest.mark.parametrize("called", ["collect_blobs()", "collect_buckets()"])
def test_what_workers_of_the_version_before_call_is_there(dsn, called):
    with psycopg.connect(dsn) as connection:
        connection.execute(f"SELECT {called}")


def test_a_change_of_the_functions_raises_their_version_and_no_step_makes_one():
    form = sha256(SQL.joinpath("functions.sql").read_bytes()).hexdigest()
    assert form.startswith(FORMS[FUNCTIONS]), f"raise FUNCTIONS, and add {form[:4]} to FORMS"
    steps = [entry for entry in SQL.iterdir() if entry.name != "functions.sql"]
    assert [step.name for step in steps if "FUNCTION " in step.read_text()] == []


def test_a_message_reads_no_more_rows_when_there_are_more(dsn):
    """The plans are of the first messages, when the tables were empty."""
    read = "SELECT sum(seq_tup_read + idx_tup_fetch) FROM pg_stat_xact_user_tables WHERE relname <> 'meta'"
    found = []
    with psycopg.connect(dsn, options=OPTIONS) as worker:
        worker.adapters.register_dumper(list, ArrayDumper)
        worker.execute(
            "INSERT INTO worker (id, alive_until, name, version) VALUES (7, now() + '1 h', 'w', '1')"
        )
        for n in range(200):
            key, thread, line, none = f"k{n}", [f"t{n % 20}"], ["{}"], [None]
            accounts, started = (["day", "turn"], ["today", key]), (7, thread, [1], [key], none)
            conversation = thread, [n // 20], thread, [n // 20], line
            for statement, values in (
                (RECEIVE, (7, [key], thread, [f"a{n}"], line, ["U"], [500])),
                (APPLY, (*started, line, *[none] * 4, *[[]] * 5)),
                (RESERVE, (7, -n - 1, *accounts, none * 2, "today", 1, "{}", 1, 1)),
                (COMMIT, ([n + 1], line, [-n - 1], *[[1]] * 4, ["today"], [1, 1], *accounts)),
                (READ, accounts),
                (PUT, (sha256(key.encode()).digest(), key.encode())),
                (REPLACE, (7, *thread, 1, [b"a"], [0], [sha256(key.encode()).digest()], [384])),
                (APPLY, (*started, *[none] * 3, line, ["answered"], *conversation)),
            ):
                worker.execute(statement, values, prepare=True)
            found += worker.execute(read).fetchone()
    assert found[199] - found[189] == found[29] - found[19]


def test_a_database_of_a_newer_version_is_refused_and_left_as_it_is(dsn):
    with psycopg.connect(dsn) as connection:
        connection.execute("UPDATE meta SET schema = 999, min_reader = 999")
    with pytest.raises(NewerSchema, match=f"schema 999, this one knows {STEPS}"):
        migrate(dsn)


def test_a_newer_database_that_older_versions_may_use_is_used(dsn):
    with psycopg.connect(dsn) as connection:
        connection.execute("UPDATE meta SET schema = 999, min_reader = 1")
    migrate(dsn)


def test_a_server_that_is_away_is_a_lost_session():
    with pytest.raises(SessionLost):
        migrate("host=/nowhere dbname=x user=y")
