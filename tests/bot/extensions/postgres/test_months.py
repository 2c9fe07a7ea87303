"""Years of data: months that go as a whole, what stays of them, and statements that find a message by its index."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import psycopg
import pytest

from bot.budget.budgets import Call, Commit, Grant, Reserve, record_adapter
from bot.extensions.postgres import reading, store
from bot.extensions.postgres.migrations import SQL, migrate
from bot.extensions.postgres.reading import PostgresReader
from bot.extensions.postgres.session import SessionLost
from bot.ports.model import Usage
from bot.reports.audit_trail import Filter, read_audit
from bot.reports.line_reader import Damage
from bot.reports.usage import reports
from tests.bot.extensions.postgres.workers import OTHER, THREAD, Seat, message, rows, workers
from tests.patience import until
from threads.store.checksummed_lines import encode

NOW = datetime.now(UTC)
THIS = NOW.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
SENT_BY_MAIN = (
    "INSERT INTO audit (line, digest) SELECT line::json, sha256(convert_to(line, 'UTF8')) "
    "FROM unnest(%s::text[]) line ON CONFLICT DO NOTHING"
)
"""How workers before the months append to the audit."""

RESERVE = "SELECT fits FROM reserve(7, %s, '{day}', '{2026-11-29}', '{100}', '2026-11-29', 40, '{}', 1, 1)"
COMMIT = (
    "SELECT spent, reserved FROM commit_calls(%s, '{7}', %s, '{30}', '{1}', '{1}', '{1}', '{2026-11-29}', '{1}', "
    "'{day}', '{2026-11-29}')"
)


def month(ahead: int) -> datetime:
    """Return the first moment of a month, so many after the running one."""
    count = THIS.year * 12 + THIS.month - 1 + ahead
    return THIS.replace(year=count // 12, month=count % 12 + 1)


def partitions(dsn, kind):
    """Return the partitions that hold rows, with how many these are."""
    return dict(rows(dsn, f"SELECT tableoid::regclass::text, count(*) FROM {kind} GROUP BY 1"))


def named(kind, ahead):
    return f"{kind}{month(ahead):_%Y_%m}"


@pytest.fixture
def before(server):
    """Return the address of a database as it was before the months, with a worker and with rows."""
    dsn = server.new_database()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        for step in ("0001.sql", "0002.sql"):
            connection.execute(SQL.joinpath(step).read_bytes())
        connection.execute("UPDATE meta SET schema = 2")
        connection.execute(
            "INSERT INTO worker (id, alive_until, name, version) VALUES (7, now() + '1 h', 'w', '1')"
        )
        connection.execute(SENT_BY_MAIN, (["{}"],))
        connection.execute("INSERT INTO audit (at, line) VALUES ('2024-02-29', '{}'), ('2999-01-01', '{}')")
        connection.execute(
            "INSERT INTO spending (seq, line, part) VALUES (-1, '{}', '2024-02'), (301, '{}', NULL)"
        )
        connection.execute("SELECT setval('spending_seq', 301)")
    return dsn


@pytest.fixture
def years(dsn):
    """Return the address of a database with a partition for each of the last months."""
    for kind in ("audit", "spending"):
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(f"DROP TABLE {named(kind, 0)}".encode())
    for ahead in range(-3, 1):
        rows(dsn, f"SELECT make_month('{month(ahead):%Y-%m-%d}')")
    return dsn


def test_the_rows_of_before_stay_and_what_was_sent_before_is_known_after(before):
    migrate(before)
    assert partitions(before, "audit") == {named("audit", 0): 3}, "a clock that was wrong counts as now"
    assert partitions(before, "spending") == {named("spending", 0): 2}
    with psycopg.connect(before, autocommit=True) as connection:
        connection.execute(store.AUDIT, ([f"{NOW:%Y-%m-%d}"], ["{}"]))
        ids = connection.execute("SELECT id FROM audit ORDER BY id").fetchall()
    assert ids == [(1,), (2,), (3,)]


def test_a_worker_of_before_goes_on_with_what_it_has_prepared(before):
    with psycopg.connect(before, autocommit=True) as old:
        old.prepare_threshold = 0
        old.execute(SENT_BY_MAIN, (["{}"],))
        migrate(before)
        for _ in range(2):
            old.execute(SENT_BY_MAIN, (['{"new":1}'],))
            old.execute(SENT_BY_MAIN, (["{}"],))
        assert len(old.execute("SELECT FROM audit").fetchall()) == 4
        [(number,)] = old.execute("SELECT nextval('spending_seq')").fetchall()
        drawn_before = 350
        for seq in (number, drawn_before):
            assert [old.execute(RESERVE, (seq,)).fetchall() for _ in range(2)] == [[(True,)]] * 2
        values = [number + 1], [number]
        assert [old.execute(COMMIT, values).fetchall() for _ in range(2)] == [[(30, 40)]] * 2
        assert old.execute("SELECT count(*) FROM spending").fetchall() == [(5,)]


async def test_the_tables_change_behind_a_worker_that_is_writing(before):
    """It holds its thread when it comes to the message: they would wait for each other in another order."""
    waiting = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    rows(before, "INSERT INTO thread (id, epoch) VALUES ('t', 1) RETURNING 1")
    rows(before, "INSERT INTO message (key, thread) VALUES ('a:b:c:m1', 't') RETURNING 1")
    with psycopg.connect(before) as old:
        old.execute("SELECT FROM thread WHERE id = 't' FOR NO KEY UPDATE")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, migrate, before)
            await until(lambda: rows(before, waiting))
            old.execute("UPDATE message SET settled = '{}', settled_at = now()")
            old.commit()
    assert rows(before, "SELECT told_at IS NOT NULL FROM thread") == [(True,)]


def test_months_are_made_ahead_and_the_ledgers_numbers_begin_with_theirs(dsn):
    for kind in ("audit", "spending"):
        made = {
            name
            for (name,) in rows(
                dsn, f"SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = '{kind}'::regclass"
            )
        }
        assert {named(kind, ahead) for ahead in range(3)} <= made
    [(first,), (second,)] = [
        *rows(dsn, "SELECT nextval('spending_seq')"),
        *rows(dsn, "SELECT nextval('spending_seq')"),
    ]
    assert (first, second) == (int(f"{THIS:%Y%m}") * 10**10, first + 100)
    rows(dsn, "SELECT make_months()")
    assert rows(dsn, "SELECT nextval('spending_seq')") == [(first + 200,)], "it is never set back"


async def test_two_that_begin_a_month_at_once_draw_no_number_twice(dsn):
    waiting = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'"
    rows(dsn, "SELECT setval('spending_seq', 101)")
    with psycopg.connect(dsn) as first:
        first.execute("SELECT pg_advisory_xact_lock(7777000)")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, rows, dsn, "SELECT make_months()")
            await until(lambda: rows(dsn, waiting))
            first.execute("SELECT make_months()")
            drawn = first.execute("SELECT nextval('spending_seq')").fetchall()
            first.commit()
    assert rows(dsn, "SELECT nextval('spending_seq')") > drawn


def test_what_came_before_its_month_was_made_moves_in(dsn):
    rows(dsn, "INSERT INTO audit (at, line) VALUES ('2040-02-03', '{}') RETURNING 1")
    rows(
        dsn,
        "INSERT INTO spending (seq, line) VALUES (2040020000000001, '{}'), (2040030000000000, '{}') RETURNING 1",
    )
    assert partitions(dsn, "audit") == {"audit_default": 1}
    for _ in range(2):
        rows(dsn, "SELECT make_month('2040-02-01')")
    assert partitions(dsn, "audit") == {"audit_2040_02": 1}
    assert partitions(dsn, "spending") == {"spending_2040_02": 1, "spending_default": 1}


async def test_a_worker_makes_a_month_that_is_missing(dsn, monkeypatch):
    monkeypatch.setattr(store, "COLLECT_EVERY_S", 0.01)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"DROP TABLE {named('spending', 2)}".encode())
        async with workers(dsn, 2):
            await until(lambda: rows(dsn, f"SELECT to_regclass('{named('spending', 2)}')") != [(None,)])


async def test_a_batch_at_the_end_of_a_month_that_is_sent_again_is_there_once(dsn):
    last, first = (month(2) - timedelta(days=1), month(2))
    lines = [(f"{day:%Y-%m-%d}", f'{{"at":"{day.isoformat()}"}}\n'.encode()) for day in (last, first)]
    async with workers(dsn, 1) as [seat]:
        await seat.store.append_audit(lines[:1])
        await seat.store.append_audit(lines)
        today = f"{NOW:%Y-%m-%d}"
        await seat.store.append_audit([(today, b"{}\n")])
    assert partitions(dsn, "audit") == {named("audit", 0): 1, named("audit", 1): 1, named("audit", 2): 1}
    expected = [(f"{last:%Y-%m-%d}",), (f"{first:%Y-%m-%d}",)]
    assert rows(dsn, f"SELECT at::date::text FROM audit WHERE at >= '{last}' ORDER BY at") == expected


def spend(dsn, number, at, record):
    """Write a record of the ledger, as a worker's function does, and return it."""
    record = replace(
        record, seq=int(f"{at:%Y%m}") * 10**10 + number, at=at.isoformat(timespec="milliseconds")
    )
    line = encode(record_adapter(), record).decode().rstrip("\n")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO spending (seq, at, line) VALUES (%s, %s, %s::text::json)", (record.seq, at, line)
        )
    return record


def call(at, turn):
    return Call("slack:W:C:1", "U1", turn, "a/m", f"{at:%Y-%m-%d}")


def talk(dsn, at):
    """Spend in one month: three calls of one model, one without a price, one that nobody counted, and a grant."""
    for number in range(1, 4):
        begun = spend(dsn, number * 2, at, Reserve(call=call(at, f"t{number}"), micros=900))
        usage = Usage(100, 20, 3, 4, 5, 6)
        end = Commit(call=begun.call, usage=usage, micros=70, reserve=begun.seq)
        spend(dsn, number * 2 + 1, at + timedelta(seconds=1), end)
    spend(dsn, 11, at, Commit(call=call(at, "free"), usage=Usage(1, 1), micros=None))
    spend(dsn, 12, at, Reserve(call=call(at, "lost"), micros=500))
    spend(dsn, 13, at, Grant(scope="thread", key="x", micros=5, by="U1"))


def told(dsn):
    """Return what was spent by day and by model: tokens, money, calls without a price."""
    with closing(PostgresReader(dsn, Path("/nowhere"))) as reader:
        found = reports(reader, ("day", "model"), ("2000-01-01", None))
    assert found[0].damaged == 0
    return [replace(line, calls=0) for one in found for line in one.lines]


def drop(dsn, kind, at):
    with closing(PostgresReader(dsn, Path("/nowhere"))) as reader:
        return reader.drop_months(kind, at.isoformat())


def test_months_of_spending_go_and_their_sums_stay(years):
    for ahead in (-3, -2, 0):
        talk(years, max(month(ahead), THIS)) if ahead == 0 else talk(years, month(ahead) + timedelta(days=3))
    before = told(years)
    assert drop(years, "spending", month(-1) + timedelta(days=20)) == 18
    assert told(years) == before
    assert partitions(years, "spending") == {"spending_sums": 6, named("spending", 0): 9}
    left = "".join(line for (line,) in rows(years, "SELECT line::text FROM spending WHERE seq < 0"))
    assert "U1" not in left
    assert drop(years, "spending", month(-1)) == 0
    assert told(years) == before
    tables = rows(
        years, f"SELECT to_regclass('{named('spending', -3)}'), to_regclass('{named('spending', -1)}')::text"
    )
    assert tables == [(None, named("spending", -1))]


def test_the_running_month_and_what_is_reserved_stay_whatever_is_asked(years):
    at = month(-2) + timedelta(days=3)
    talk(years, at)
    talk(years, THIS)
    rows(
        years,
        f"INSERT INTO reservation (seq, worker, scopes, keys, micros, day) VALUES ({int(f'{at:%Y%m}') * 10**10 + 12}, 7, '{{}}', '{{}}', 1, '') RETURNING 1",
    )
    before = told(years)
    assert drop(years, "spending", NOW + timedelta(days=400)) == 8
    expected = {"spending_sums": 2, named("spending", -2): 1, named("spending", 0): 9}
    assert partitions(years, "spending") == expected
    assert told(years) == before
    rows(years, "DELETE FROM reservation RETURNING 1")
    assert drop(years, "spending", NOW) == 1
    assert told(years) == before


def test_months_go_from_a_partition_that_holds_others_too(dsn):
    """The first one holds all that was there before the months."""
    talk(dsn, month(-2))
    talk(dsn, THIS)
    rows(
        dsn,
        f"INSERT INTO audit (at, line) VALUES ('{month(-2)}', '{{}}'), ('{NOW}', '{{}}'), ('{month(1)}', '{{}}') RETURNING 1",
    )
    before = told(dsn)
    assert [drop(dsn, kind, NOW) for kind in ("spending", "audit")] == [9, 1]
    assert told(dsn) == before
    assert partitions(dsn, "spending") == {"spending_sums": 3, named("spending", 0): 9}
    assert partitions(dsn, "audit") == {named("audit", 0): 1, named("audit", 1): 1}


def test_nobody_waits_for_a_month_that_goes_and_it_goes_later(years):
    rows(years, f"INSERT INTO audit (at, line) VALUES ('{month(-2)}', '{{}}') RETURNING 1")
    with psycopg.connect(years) as reads:
        reads.execute("SELECT FROM audit")
        with pytest.raises(SessionLost, match="lock timeout"):
            drop(years, "audit", THIS)
    assert drop(years, "audit", THIS) == 1
    assert partitions(years, "audit") == {}


STATEMENTS = {
    "why": (reading.JOURNAL.format(reading.NAMED), {"ids": ["x"]}),
    "a thread's messages": (reading.JOURNAL.format(reading.OF_THREAD), {"thread": "t"}),
    "a thread's history": (reading.ENDED, {"thread": "t", "since": "-infinity", "seen": [], "most": 3}),
    "holding": (
        f"SELECT FROM thread t WHERE {reading.HOLDING}",
        {"ids": ["x"], "names": ["x"], "outcomes": ["dead_letter"]},
    ),
    "the calls of a turn": (reading.SPENDING.format(reading.TURN), {"since": "-infinity", "names": ["x"]}),
    "the audit of something": (reading.AUDIT_ABOUT, {"since": "-infinity", "after": 0, "names": ["x"]}),
}


@pytest.mark.parametrize("what", STATEMENTS)
def test_what_is_asked_has_its_index(dsn, what):
    statement, values = STATEMENTS[what]
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET enable_seqscan = off")
        plan = "\n".join(line for (line,) in connection.execute(f"EXPLAIN {statement}".encode(), values))
    assert "Index" in plan
    assert "Seq Scan on" not in plan.replace("Seq Scan on thread", "")
    conditions = {"why": 3, "the audit of something": 3}.get(what, 1)
    for column in ("message_id", "correlation_id", "platform_id", "turn"):
        assert all("Filter" not in line for line in plan.splitlines() if f'"{column}":"' in line), plan
    assert plan.count("Index Cond") >= conditions


async def test_the_newest_thread_is_the_one_that_was_told_something_last(dsn):
    async with workers(dsn, 1) as [seat]:
        for number, thread in ((1, OTHER), (2, THREAD), (3, OTHER)):
            await seat.journal.receive(message(number, thread))
            await Seat.until(lambda number=number: len(seat.routed) == number)
            rows(dsn, "UPDATE thread SET changed_at = '2020-01-01' RETURNING 1")
            await seat.journal.append(seat.routed[-1].settled("refused"))
    with closing(PostgresReader(dsn, Path("/nowhere"))) as reader:
        assert [one.name for one in reader.threads()] == [str(OTHER), str(THREAD)]
        assert reader.threads()[0].path.parent == Path("/nowhere/threads/slack")


def test_the_audit_of_a_message_has_the_stages_of_its_playbook(dsn):
    line = '{{"at":"2026-11-29","kind":"tool","thread_id":"t","message_id":"{}","correlation_id":"{}","worker":"w"}}'
    made = [("m1", "c1"), ("m1.plan", "c2"), ("m2", "c3"), ("m10", "c4")]
    with psycopg.connect(dsn, autocommit=True) as connection:
        for one in made:
            connection.execute("INSERT INTO audit (line) VALUES (%s)", (line.format(*one),))
    with closing(PostgresReader(dsn, Path("/nowhere"))) as reader:
        asked = {
            words: [*reader.audit(having=[word.encode() for word in words])]
            for words in [("m1", "c3"), ("t",), ("no",)]
        }
        assert [*read_audit(reader, Filter(about=["no"]), Damage())] == []
    assert [len(found) for found in asked.values()] == [3, 4, 0]
