"""The operator's commands over PostgreSQL tell what they tell over files, word for word."""

from __future__ import annotations

import json
import os
import re
import traceback
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import anyio
import psycopg
import pytest
from click.testing import CliRunner

from bot.cli import main
from bot.config.settings import Settings
from bot.extensions.postgres.reading import PostgresReader
from bot.extensions.postgres.store import PostgresStore
from bot.extensions.status import status_report
from bot.ports.config_error import ConfigInvalid
from bot.ports.status import Status
from bot.reports.files import FileReader
from bot.reports.links import linked
from tests.bot.extensions.postgres.workers import THREAD, rows, workers
from tests.world import Platform, Scripted, calls, message, running, says
from threads.model import ThreadId
from transports.web.page_history import ThreadHistory

OTHER = ThreadId("fake", "T1", "C1", "1700000000.000001")
VARIES = re.compile(r"\d{4}-\d\d-\d\d( |T|, )?|\d\d:\d\d(:\d\d(\.\d+)?)?(\+00:00)?|\b[0-9a-f]{8}\b")


def over_postgres(tmp_path, dsn):
    """Return a command line whose settings name the database, on a machine without a data folder."""
    settings, secret = tmp_path / "settings.json", tmp_path / "dsn"
    secret.write_text(dsn)
    secret.chmod(0o600)
    settings.write_text(json.dumps({"data": "none", "store": {"kind": "postgres", "dsn": f"file:{secret}"}}))
    return lambda *words: CliRunner().invoke(main, [*words, "--settings", str(settings)])


in_a_thread = anyio.to_thread.run_sync


async def talk(data, **more):
    """Hold the same conversations in whatever store is given: tools, an edit, a message that waits."""
    platform = Platform()
    script = calls("list_files", path="."), says("nothing \u2028 there \x00"), says("as I said"), says("yes")
    async with running(data, platform, Scripted(*script), clock=partial(datetime.now, UTC), **more) as core:
        await core.orchestrator.receive(message(1, "what is there?"))
        await platform.settled("m1")
        await core.orchestrator.receive(message(2, "really?"))
        await platform.settled("m2")
        await core.orchestrator.receive(message(3, "and you?", thread=OTHER))
        await platform.settled("m3")


async def in_both(talk, dsn, tmp_path):
    await talk(tmp_path / "data")
    store = PostgresStore(dsn, tmp_path, name="w", version="1", now=partial(datetime.now, UTC))
    await talk(tmp_path / "worker", store=store)
    await store.leave()


@pytest.fixture
async def both(dsn, tmp_path):
    """Return a command line over files and one over PostgreSQL, of the same conversations."""
    await in_both(talk, dsn, tmp_path)
    return (
        lambda *words: CliRunner().invoke(main, [*words, "--data", str(tmp_path / "data")]),
        over_postgres(tmp_path, dsn),
    )


@pytest.mark.parametrize(
    "words",
    [
        "threads list",
        "threads list --transport fake",
        "threads list --limit 1",
        "threads show 1.0",
        "threads show fake:W:C1:1.0",
        "threads show W~C1~1.0",
        "threads show https://x.slack.com/archives/C1/p1700000000000001",
        "threads show 1.0 --last 1",
        "threads show none",
        "threads export 1.0",
        "threads export 1.0 --format jsonl",
        "why m1",
        "why m2 --thread 1.0",
        "why p2",
        "why none",
        "dead-letters list",
        "usage",
        "audit",
    ],
)
async def test_a_command_tells_the_same_over_both(both, words):
    as_json = [] if "export" in words else [["--json"]]
    for more in ([], *as_json):
        files, postgres = (run(*words.split(), *more) for run in both)
        assert VARIES.sub("", files.output) == VARIES.sub("", postgres.output)
        assert files.exit_code == postgres.exit_code
        assert files.output


SAID = (
    'first\nover "quotes", 100% of it, back\\slash \x00',
    "Stra\u00dfe, \u00c4PFEL and \u0418\u0432\u0430\u043d, AL\u0130 and \u212a, \u03a3\u0391\u03a3, \u6211\u4e0d\u5728_\u5bb6",
    "nover",
)
SEARCHED = {
    'first OVER "quotes", 100% back\\slash \\': [1],
    "100.": [],
    "%": [1],
    "nover": [3],  # not the escape of a new line, and a word
    "outcome": [],  # a field of the lines
    "first \u00e4pfel": [],  # of two messages
    "STRAßE äpf иВАн alİ k σας 不在_": [2],
    "YES": [1, 2],
}
"""Words, and the messages that say them or their answers: the first of a thread, and the newest thread first."""


async def test_a_search_finds_the_same_over_both(dsn, tmp_path, monkeypatch):
    monkeypatch.setattr("transports.web.page_history.AT_ONCE", 1)

    async def talk(data, **more):
        platform = Platform()
        platform.name = "web"
        model = Scripted(*[says("yes")] * 3)
        async with running(data, platform, model, clock=partial(datetime.now, UTC), **more) as core:
            for n, text in enumerate(SAID, 1):
                thread = ThreadId("web", "", "ann", f"r{n % 2}")
                await core.orchestrator.receive(message(n, text, thread=thread))
                await platform.settled(f"m{n}")
                await core.registry.log_written(thread)
                for path in data.rglob(
                    f"*~r{n % 2}/log.jsonl"
                ):  # a kernel's clock may show two writes as one moment
                    os.utime(path, (n, n))  # the thread with the newest line comes first

    await in_both(talk, dsn, tmp_path)
    files, shared = FileReader(tmp_path / "data"), {"store": {"kind": "postgres", "dsn": "env:DSN"}}
    for given, move in ({}, False), (shared, True), (shared, False):
        settings = Settings.model_validate({"data": tmp_path / "data", **given}, strict=False)
        for words, found in SEARCHED.items():
            search = ThreadHistory(settings, {"DSN": dsn}).search
            hits, left = await search("ann", words.lower().split(), {}, ())
            assert ([one["message"] for one in hits], left) == ([f"m{n}" for n in found], 0), words
        with psycopg.connect(dsn) as connection:  # as if it had come from files
            for thread in files.threads() if move else ():
                connection.execute("DELETE FROM message WHERE thread = %s", (thread.name,))
                for row in enumerate(line.decode() for line in files.log(thread)):
                    connection.execute("INSERT INTO log VALUES (%s, %s, %s)", (thread.name, *row))
            connection.execute("UPDATE thread SET told_at = now() - interval '2 days'; SELECT note_words()")
    for change, found in ("vocabulary SET words = 'pear'", 0), ("thread SET told_at = now()", 2):
        rows(dsn, f"UPDATE {change} RETURNING 1")
        assert len((await search("ann", ["yes"], {}, ()))[0]) == found, "old words say nothing of a thread"


async def test_a_resubmitted_dead_letter_is_served_by_a_worker_that_runs(dsn, tmp_path):
    run = over_postgres(tmp_path, dsn)
    async with workers(dsn, 2) as (one, two):
        await one.journal.receive(message(1, "poison", thread=THREAD))
        await one.until(lambda: one.routed)
        await one.journal.append(one.routed[0].settled("dead_letter"))
        again = await in_a_thread(run, "dead-letters", "resubmit", "m1")
        assert again.output == "m1 will be served by the next free worker, as m1~1.\n"
        await one.until(lambda: len(one.routed) == 2)
        assert one.routed[1].received.message_id == "m1~1"
        assert one.routed[1].received.text == "poison"
        [letter] = json.loads(run("dead-letters", "list", "--json").output)["dead_letters"]
        assert letter["again"] == "in line"
        assert not two.routed
        assert json.loads(run("dead-letters", "resubmit", "m1", "--json").output)["resubmitted_as"] == "m1~2"


async def test_the_status_lists_each_worker_with_its_threads_from_any_machine(dsn, tmp_path):
    run = over_postgres(tmp_path, dsn)
    async with workers(dsn, 2) as (one, two):
        await one.journal.receive(message(1, thread=THREAD))
        shown = json.loads((await in_a_thread(run, "status", "--json")).output)
        listed = [(each["alive"], each["threads"], each["version"]) for each in shown["workers"]]
        assert listed == [(True, 1, "1"), (True, 0, "1")]
        assert shown["tables"]["message"] > 0 and "audit" in shown["tables"], "not partitions"
        assert all(0 <= each["last_beat_s"] < 3 for each in shown["workers"])
        await two.kill()
        text = await in_a_thread(run, "status")
        assert text.exit_code == 4  # about this machine, where no bot runs
        assert re.search(
            r"workers +w, version 1, 1 thread, [2-4] connections, last beat \d s ago\n", text.output
        )
        assert re.search(r" +w, version 1, 0 threads, 0 connections, last beat \d s ago: dead\n", text.output)
        assert re.search(r"tables +\w+ \d+(\.\d+)? kB, ", text.output)
    with psycopg.connect(dsn) as connection:
        connection.execute("DELETE FROM worker")
    assert re.search(r"workers +none", (await in_a_thread(run, "status")).output)


def test_the_status_of_this_machine_is_told_while_the_database_is_away(server, tmp_path):
    run = over_postgres(tmp_path, server.dsn("nowhere"))
    text, as_json = run("status"), run("status", "--json")
    assert (text.exit_code, as_json.exit_code) == (4, 4), "it is about this machine, where no bot runs"
    assert "not running" in text.output
    assert re.search(r'workers +unknown: postgres: .*"nowhere" does not exist', text.output)
    found = json.loads(as_json.output)
    assert (found["state"], found["workers"]) == ("absent", None)
    assert "does not exist" in found["workers_unknown"]


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_bot_beside_a_database_that_is_away_is_not_ready(tmp_path, monkeypatch, more):
    ready = Status(1, "1", "2026-11-27T10:00:00+00:00", 1.0, True, False, "data", "offline/demo")
    monkeypatch.setattr(status_report, "ask", lambda _: ready)
    found = over_postgres(tmp_path, "host=/nowhere dbname=x")("status", *more)
    assert found.exit_code == status_report.NOT_READY
    assert "connection is bad" in found.output


def test_the_status_of_this_machine_is_told_beside_tables_of_a_newer_version(dsn, tmp_path):
    with psycopg.connect(dsn) as connection:
        connection.execute("UPDATE meta SET schema = 999, min_reader = 999")
    found = over_postgres(tmp_path, dsn)("status")
    assert (found.exit_code, "written by a newer Threadfast" in found.output) == (4, True)


async def test_new_entries_of_a_thread_are_followed(dsn, tmp_path):
    said = []
    store = PostgresStore(dsn, tmp_path, name="w", version="1", now=partial(datetime.now, UTC))
    await talk(tmp_path / "a", store=store)
    reader = PostgresReader(dsn, tmp_path, linked)
    [thread] = reader.find("1.0")

    class Enough(Exception):
        pass

    def wait():
        said.append(len(lines))
        if len(said) == 3:
            raise Enough
        if len(said) == 1:
            with psycopg.connect(dsn) as connection:
                connection.execute(
                    "INSERT INTO message (key, thread, received, settled, settled_at) SELECT key || '+', thread, "
                    "received, settled, clock_timestamp() FROM message WHERE thread = 'fake:W:C1:1.0' LIMIT 1"
                )

    lines = []
    with pytest.raises(Enough):
        for line in reader.log(thread, 1, wait):
            lines.append(line)
    reader.close()
    assert said == [3, 5, 5]  # the last message, then what is new, each once
    await store.leave()


MORE = {
    "audit": "INSERT INTO audit (line) VALUES ('{}')",
    "log": "INSERT INTO message (key, thread, received, settled, settled_at) SELECT key || '+', thread, received, "
    "settled, clock_timestamp() FROM message WHERE thread = 'fake:W:C1:1.0' LIMIT 1",
}


@pytest.mark.parametrize("what", MORE)
async def test_what_is_followed_goes_on_after_the_server_was_away(server, tmp_path, what):
    dsn = server.new_database()
    store = PostgresStore(dsn, tmp_path, name="w", version="1", now=partial(datetime.now, UTC))
    await talk(tmp_path / "a", store=store)
    await store.leave()
    await in_a_thread(follow_over_a_crash, server, dsn, what)


def follow_over_a_crash(server, dsn, what):
    class Enough(Exception):
        pass

    def come_back():
        server.start()
        with psycopg.connect(dsn) as connection:
            connection.execute(MORE[what])

    def end():
        raise Enough

    def read(wait=None):
        return reader.audit(wait=wait) if what == "audit" else reader.log(thread, wait=wait)

    steps, lines = iter([server.crash, lambda: None, come_back, lambda: None, end]), []
    with closing(PostgresReader(dsn, Path("/nowhere"), linked)) as reader:
        [thread] = reader.find("1.0")
        before = [*read()]
        with pytest.raises(Enough):
            for line in read(lambda: next(steps)()):
                lines.append(line)
        assert lines == [*read()]
        assert len(lines) > len(before)


def test_a_backup_names_the_one_of_postgres(dsn, tmp_path):
    run = over_postgres(tmp_path, dsn)
    for words in (["backup"], ["restore", __file__]):
        result = run(*words)
        assert result.exit_code == 78
        assert "pg_restore" in result.output or "pg_dump" in result.output
    assert "one snapshot of all of it, while the workers run" in run("backup").output


@pytest.mark.parametrize("dsn", ["postgresql//ann:hunter2@host/x", "host=x dbnam=x password=hunter2"])
@pytest.mark.parametrize("words", ["threads list", "status", "migrate --to {}/new"])
def test_what_is_no_address_is_told_without_its_password(tmp_path, dsn, words):
    told = over_postgres(tmp_path, dsn)(*words.format(tmp_path).split())
    assert told.exit_code == 78
    assert "store.dsn: what it names is not an address of PostgreSQL" in told.output
    assert "hunter2" not in told.output
    with pytest.raises(ConfigInvalid, match="not an address") as raised:
        PostgresStore(dsn, tmp_path, name="w", version="1", now=partial(datetime.now, UTC))
    assert "hunter2" not in "".join(traceback.format_exception(raised.value))


def test_a_database_that_is_away_or_empty_is_told_in_one_line(server, tmp_path):
    asks = over_postgres(tmp_path, "host=/nowhere dbname=x")
    for words in (
        *("threads list", "threads show 1.0", "threads export 1.0", "why m1", "usage", "audit"),
        *("dead-letters list", "dead-letters resubmit m1", f"migrate --to {tmp_path / 'files'}"),
    ):
        away = asks(*words.split())
        assert (away.exit_code, away.output.count("\n"), type(away.exception)) == (1, 1, SystemExit), words
        assert away.output.startswith("postgres: connection is bad")
    empty = over_postgres(tmp_path, server.dsn("postgres"))("threads", "list")
    assert (empty.exit_code, empty.output.count("\n")) == (1, 1)
    assert "no tables of this version yet" in empty.output
