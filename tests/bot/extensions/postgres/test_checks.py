"""What a database must be like, and what is said about one that is not."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import anyio
import psycopg
import pytest

from bot.config.settings import Settings
from bot.extensions.doctor.bundle import bundle
from bot.extensions.doctor.records import check_records
from bot.extensions.postgres import checks
from bot.extensions.postgres.checks import POOLED, examine
from bot.extensions.postgres.doctor_check import check_store
from bot.extensions.postgres.extension import extension
from bot.extensions.postgres.session import SessionLost
from bot.host.checks import Context
from bot.ports.config_error import ConfigInvalid
from tests.bot.extensions.postgres.test_reports import over_postgres
from tests.bot.extensions.postgres.workers import Seat, message, workers
from tests.fakes.postgres import Server


@pytest.fixture(scope="module")
def server():
    with Server(durable=True) as server:
        yield server


async def findings(dsn, name="store"):
    settings = Settings.model_validate(
        {"store": {"kind": "postgres", "dsn": "env:DATABASE_URL"}}, strict=False
    )
    found = check_store(Context(settings, {"DATABASE_URL": dsn}))
    return [finding async for finding in found if finding.name == name]


async def test_what_waits_in_the_database_is_counted_and_not_what_the_data_folder_has(dsn, tmp_path):
    async with workers(dsn, 1) as (one,):
        one.journal.accepting = False
        for number in range(3):
            await one.journal.receive(message(number))
        [finding] = await findings(dsn)
        assert re.search(r", 1 worker, \d+ of 200 connections; 3 wait$", finding.found)
    settings = {"data": tmp_path, "store": {"kind": "postgres", "dsn": "env:DATABASE_URL"}}
    context = Context(Settings.model_validate(settings, strict=False), {"DATABASE_URL": dsn})
    named = [finding.name async for finding in check_records(context)]
    assert named == ["data.version", "data.damage"]


async def test_a_user_without_rights_is_told_so_in_one_line(dsn, tmp_path):
    with psycopg.connect(dsn, autocommit=True) as connection:
        role = f"reader_{connection.info.dbname}"
        connection.execute(f"CREATE ROLE {role} LOGIN".encode())
    theirs = f"{dsn} user={role}"
    [finding] = await findings(theirs)
    assert (finding.state, finding.found) == ("fail", "postgres: permission denied for table worker")
    read = await anyio.to_thread.run_sync(over_postgres(tmp_path, theirs), "threads", "list")
    assert (read.exit_code, read.output) == (1, "postgres: permission denied for table meta\n")
    with pytest.raises(SessionLost, match="permission denied"):
        await Seat(theirs).store.prepare()


async def test_a_fit_server_is_named_with_the_workers_that_live(dsn):
    async with workers(dsn, 2):
        [finding] = await findings(dsn)
    assert finding.state == "ok"
    assert re.search(r"^PostgreSQL 18.*, 2 workers, \d+ of 200 connections; nothing waits$", finding.found)


async def test_the_size_of_each_large_table_is_told_with_all_of_its_months(dsn):
    [finding] = await findings(dsn, "store.size")
    assert re.search(r"^\d+\.\d MB in all; no table is large$", finding.found)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO audit (at, line) SELECT now() + n % 2 * interval '1 month', "
            """('"' || repeat(md5(n::text), 50) || '"')::json FROM generate_series(1, 2000) n"""
        )
    assert dict(examine(dsn).sizes)["audit"] > 2_000_000
    assert not any("_20" in name for name, _ in examine(dsn).sizes)
    [finding] = await findings(dsn, "store.size")
    assert re.search(r"^\d+\.\d MB in all; audit [2-9]\.\d MB$", finding.found)


async def test_a_pooler_of_transactions_is_found_and_refused_at_the_start(dsn, monkeypatch):
    monkeypatch.setattr(checks, "PID", "SELECT 4711")  # as if both clients had the same session
    assert POOLED in examine(dsn).faults
    [finding] = await findings(dsn)
    assert (finding.state, finding.found) == ("fail", POOLED)
    seat = Seat(dsn)
    with pytest.raises(ConfigInvalid, match="pooler"):
        await seat.store.prepare()


async def test_a_pooler_that_takes_no_options_is_named_as_one(dsn, monkeypatch):
    def refuse(*_, **__):
        raise psycopg.OperationalError("FATAL: unsupported startup parameter: options")

    monkeypatch.setattr(checks.psycopg, "connect", refuse)
    assert examine(dsn).faults == (POOLED,)


async def test_a_server_that_may_lose_what_was_acknowledged_is_a_fault(dsn, monkeypatch):
    monkeypatch.setattr(checks, "FACTS", "SELECT '18', false, false, true, false, 2, 100")
    database = examine(dsn)
    assert [fault.split()[0] for fault in database.faults] == ["fsync", "synchronous_commit"]
    assert [finding.state for finding in await findings(dsn)] == ["fail", "fail", "warn"]


async def test_a_server_that_is_away_is_a_fault_without_its_password():
    with pytest.raises(SessionLost):
        examine("host=/nowhere dbname=x user=y password=hidden-word")
    [finding] = await findings("host=/nowhere dbname=x user=y password=hidden-word")
    assert finding.state == "fail"
    assert "hidden-word" not in finding.found
    settings = {"data": "/empty", "store": {"kind": "postgres", "dsn": "env:DATABASE_URL"}}
    context = Context(Settings.model_validate(settings, strict=False), {})
    text = bundle(context, [finding], at=datetime(2026, 11, 22, tzinfo=UTC))
    assert "fail  store" in text
    assert "/nowhere" not in text
    assert "records: 0" not in text, "the journal is in the database"


def test_with_files_there_is_nothing_to_check():
    assert extension.checks(Context(Settings(), {})) == []
