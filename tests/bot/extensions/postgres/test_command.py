"""A store moves between files and PostgreSQL: every line as it is, all of it or nothing, and nobody uses the old one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner

from bot.budget.budgets import Call, Reserve, record_adapter
from bot.cli import main
from bot.extensions.postgres import move_store as migrate
from bot.extensions.postgres.migrations import migrate as make_tables
from bot.extensions.postgres.moving import Unmovable
from bot.extensions.postgres.reading import PostgresReader
from bot.ports.config_error import ConfigInvalid
from bot.reports.budget_state import budgets
from bot.reports.files import FileReader
from tests.bot.extensions.postgres.test_reports import in_a_thread, over_postgres
from tests.bot.extensions.postgres.workers import rows, said, workers
from tests.bot.store.old_data import CUT
from tests.bot.store.test_old_data import STORED, owed_in
from tests.world import message
from threads.model import ThreadId, message_key
from threads.store.checksummed_lines import encode
from threads.store.data_folder import FolderTaken, lock_data_folder, thread_folder


@pytest.fixture
def old(tmp_path):
    return Path(shutil.copytree(STORED / "old-data-v1", tmp_path / "old"))


def nothing(_):
    pass


def lines_in(data):
    """Return the lines of all files of lines, and the small values."""
    found = {str(path.relative_to(data)): path.read_bytes().split(b"\n") for path in data.rglob("*.jsonl")}
    found = {name: lines for name, lines in found.items() if lines != [b""]}  # an empty file says nothing
    found |= {path.name: [path.read_bytes()] for path in data.glob("*.json") if path.name != "moved.json"}
    return found


def moved(to, *words):
    return CliRunner().invoke(main, ["migrate", "--to", str(to), *words])


async def test_there_and_back_gives_the_same_lines(old, dsn, tmp_path):
    aside = max(old.glob("threads/*/*/context.jsonl"), key=lambda path: path.stat().st_size)
    shutil.copy(aside, aside.with_name("context.old.jsonl"))
    await in_a_thread(migrate.to_postgres, old, dsn, nothing)
    await in_a_thread(migrate.to_folder, dsn, tmp_path / "new", nothing)
    before, after = lines_in(old), lines_in(tmp_path / "new")
    assert sorted(after) == sorted(before)
    left, now = owed_in(old), owed_in(tmp_path / "new")
    assert (now.pending, now.settled, now.aliases) == (left.pending, left.settled, left.aliases)
    assert list(now.pending) == list(left.pending)
    # Of several starts of one message, the last one counts.
    superseded = [line for line in before["journal.jsonl"] if line not in after["journal.jsonl"]]
    assert {json.loads(line)["kind"] for line in superseded} <= {"started"}
    before["journal.jsonl"] = [line for line in before["journal.jsonl"] if line not in superseded]
    assert after == before
    assert dict(budgets(FileReader(tmp_path / "new")).totals) == dict(budgets(FileReader(old)).totals)


def same_files_from_any_machine(here, dsn, tmp_path):
    """What the commands list and copy does not depend on who served a thread."""
    with closing(PostgresReader(dsn, tmp_path / "elsewhere")) as there:
        listed, copied = [], []
        for reader in (here, there):
            target = tmp_path / type(reader).__name__
            found = {thread.name: thread for thread in reader.threads()}
            listed.append({name: files for name, thread in found.items() if (files := reader.files(thread))})
            for name, thread in found.items():
                reader.copy_files(thread, target / name)
            paths = [path for path in target.rglob("*") if path.is_file()]
            copied.append({path.relative_to(target): path.read_bytes() for path in paths})
            assert {path.stat().st_mode & 0o777 for path in paths} == {0o600}
    assert listed[0] == listed[1]
    assert copied[0] == copied[1]
    assert len(copied[0]) >= 3


async def test_files_of_threads_and_what_was_remembered_move_too(old, dsn, tmp_path):
    thread = next(old.glob("threads/*/*"))
    root = thread / "workspace"
    (root / "deep").mkdir(parents=True)
    (root / "deep" / "plan é\udcff.txt").write_bytes(os.urandom(2_500_000))
    (root / "empty").touch()
    (root / "run.sh").write_bytes(b"#!/bin/sh\n")
    (root / "run.sh").chmod(0o700)
    (root / "link").symlink_to("/etc/passwd")
    channel = old / "channels" / "slack" / "W~C"
    channel.mkdir(parents=True)
    for folder in (old, channel, thread):
        (folder / "MEMORY.md").write_text("# by hand\n- tea \u2028 é\n")
    await in_a_thread(migrate.to_postgres, old, dsn, nothing)
    await in_a_thread(same_files_from_any_machine, FileReader(old), dsn, tmp_path)
    new = tmp_path / "new"
    await in_a_thread(migrate.to_folder, dsn, new, nothing)
    (root / "link").unlink()
    for path in [*root.rglob("*"), *old.rglob("MEMORY.md")]:
        copy = new / path.relative_to(old)
        if path.is_file():
            assert copy.read_bytes() == path.read_bytes()
            assert copy.stat().st_mode & 0o100 == path.stat().st_mode & 0o100
    moved_to = new / root.relative_to(old)
    assert {path.relative_to(moved_to) for path in moved_to.rglob("*")} == {
        path.relative_to(root) for path in root.rglob("*")
    }


@pytest.mark.parametrize(
    "words",
    [
        "threads list",
        "threads show 1.0",
        "threads show 3.0",
        "dead-letters list",
        "usage --since 2026-11-01",
        "audit --since 2026-11-01",
        "why m1",
    ],
)
def test_a_command_tells_the_same_of_what_was_moved(old, dsn, tmp_path, words):
    run = over_postgres(tmp_path, dsn)
    thread_folder(old, CUT).mkdir()  # files do not list a thread before its first checkpoint
    migrate.to_postgres(old, dsn, nothing)
    shutil.copytree(old / "threads", tmp_path / "none" / "threads")
    for more in ([], ["--json"]):
        before = CliRunner().invoke(main, [*words.split(), *more, "--data", str(old)])
        assert before.output == run(*words.split(), *more).output


async def test_workers_go_on_with_what_was_moved_and_files_with_what_they_did(old, dsn, tmp_path):
    await in_a_thread(migrate.to_postgres, old, dsn, nothing)
    thread = ThreadId("slack", "W", "C", "9")
    async with workers(dsn, 1) as [seat]:
        await seat.journal.receive(message(900, "new here", thread=thread))
        await seat.until(lambda: seat.routed)
        await seat.settle(seat.routed[-1])
        await seat.store.context(thread).save([said("hello", "m900"), said("hi")])
    with psycopg.connect(dsn) as connection:
        connection.execute("DELETE FROM worker")
    await in_a_thread(migrate.to_folder, dsn, tmp_path / "new", nothing)
    shown = CliRunner().invoke(main, ["threads", "show", "9", "--data", str(tmp_path / "new")]).output
    assert "new here" in shown
    assert shown.endswith("answered  (ref ref)\n\n")
    assert owed_in(tmp_path / "new").settled[message_key(thread, "m900")].outcome == "answered"
    assert len(owed_in(tmp_path / "new").pending) == len(owed_in(old).pending)


async def test_what_was_spent_over_postgres_counts_in_the_files(old, dsn, tmp_path):
    migrate.to_postgres(old, dsn, nothing)
    with psycopg.connect(dsn) as connection:
        connection.execute("INSERT INTO account (scope, key, spent) VALUES ('thread', 'new', 41)")
        connection.execute(
            "INSERT INTO spending (seq, line) SELECT 1000000, line FROM spending "
            "WHERE line->>'kind' = 'commit' LIMIT 1"
        )
    before = dict(budgets(FileReader(old)).totals)
    migrate.to_folder(dsn, tmp_path / "new", nothing)
    after = dict(budgets(FileReader(tmp_path / "new")).totals)
    assert after.pop(("thread", "new")).spent == 41
    assert after == before


def test_what_a_process_that_is_gone_had_set_aside_counts_in_full(old, dsn):
    call = Call("a", "U", "t", "m", "2026-11-24")
    [usage] = (old / "usage").iterdir()
    with usage.open("ab") as file:
        file.write(encode(record_adapter(), Reserve(call=call, micros=7, seq=10_000, at="2026-11-24")))
    migrate.to_postgres(old, dsn, nothing)
    assert rows(dsn, "SELECT spent, reserved FROM account WHERE (scope, key) = ('thread', 'a')") == [(7, 0)]
    [[number]] = rows(dsn, "SELECT nextval('spending_seq')")
    assert number > 10_000


def test_no_worker_can_enter_while_a_store_is_moved(old, dsn):
    refused = []

    def enter(_):
        if len(refused) == 3:
            return
        with psycopg.connect(dsn, options="-c lock_timeout=50ms") as other:
            try:
                other.execute(
                    "INSERT INTO worker (id, alive_until, name, version) VALUES (9, now(), 'w', '1')"
                )
            except psycopg.errors.LockNotAvailable:
                refused.append(True)
            other.rollback()

    migrate.to_postgres(old, dsn, enter)
    assert len(refused) == 3


async def test_nobody_starts_on_what_was_moved(old, dsn, tmp_path):
    migrate.to_postgres(old, dsn, nothing)
    migrate.to_folder(dsn, tmp_path / "new", nothing)
    with pytest.raises(ConfigInvalid, match="was moved to PostgreSQL"):
        migrate.to_postgres(old, dsn, nothing)
    with pytest.raises(ConfigInvalid, match=r"was moved to .*new"):
        migrate.to_postgres(tmp_path / "new", dsn, nothing)
    settings = tmp_path / "s.json"
    settings.write_text('{"model": "offline/demo"}')
    start = subprocess.run(
        [sys.executable, "-m", "bot", "chat", "--data", old, "--settings", settings],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert (start.returncode, "was moved to PostgreSQL" in start.stderr) == (78, True), start
    with pytest.raises(ConfigInvalid, match=r"was moved to .*/new; name that"):
        make_tables(dsn)


async def test_nothing_is_moved_while_anything_runs(old, dsn, tmp_path):
    with lock_data_folder(old), pytest.raises(FolderTaken):
        migrate.to_postgres(old, dsn, nothing)
    async with workers(dsn, 1):
        with pytest.raises(Unmovable, match="workers run"):
            await in_a_thread(migrate.to_postgres, old, dsn, nothing)
        with pytest.raises(Unmovable, match="workers run"):
            await in_a_thread(migrate.to_folder, dsn, tmp_path / "new", nothing)
    assert rows(dsn, "SELECT count(*) FROM message") == [(0,)]
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("at", [1, 20, 60])
def test_a_move_that_fails_in_the_middle_has_changed_nothing(old, dsn, tmp_path, at):
    counted = []

    def fails(_):
        counted.append(1)
        if len(counted) == at:
            raise OSError("the cable")

    with pytest.raises(OSError, match="the cable"):
        migrate.to_postgres(old, dsn, fails)
    assert rows(dsn, "SELECT count(*) FROM message, thread") == [(0,)]
    migrate.to_postgres(old, dsn, nothing)
    counted.clear()
    with pytest.raises(OSError, match="the cable"):
        migrate.to_folder(dsn, tmp_path / "new", fails)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old"]
    assert migrate.to_folder(dsn, tmp_path / "new", nothing)["journal"]


def test_a_difference_is_found_before_anything_counts(old, dsn):
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN NEW.line := '{}'; RETURN NEW; END $$"
        )
        connection.execute(
            "CREATE TRIGGER spoil BEFORE INSERT ON context FOR EACH ROW EXECUTE FUNCTION spoil()"
        )
    with pytest.raises(Unmovable, match=r"table context holds .* that differ"):
        migrate.to_postgres(old, dsn, nothing)
    assert rows(dsn, "SELECT count(*) FROM message") == [(0,)]


def test_the_command_says_what_was_moved_and_what_to_change(old, dsn, tmp_path):
    run = over_postgres(tmp_path, dsn)
    address = f"file:{tmp_path / 'dsn'}"
    assert moved(tmp_path / "x", "--data", str(old)).exit_code == 78  # from files to files
    there = moved(address, "--data", str(old))
    assert there.exit_code == 0, there.output
    assert '"kind": "postgres"' in there.output
    again = moved(address, "--data", str(old))
    assert (again.exit_code, "was moved to" in again.output) == (78, True)
    back = run("migrate", "--to", str(tmp_path / "new"))
    assert back.exit_code == 0, back.output
    assert "Moved: " in back.output
