"""The same where many workers share one PostgreSQL: forgotten is forgotten in every table, and on every machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio
import psycopg
import pytest
from click.testing import CliRunner

from bot.cli import main
from bot.extensions.postgres import store as store_module
from bot.extensions.retention import sweep
from tests.bot.extensions.postgres.workers import THREAD, message, workers
from tests.patience import until
from tests.serving import KEYS, serving
from tests.world import T1, T2
from threads.model import Author, ThreadId
from threads.store.data_folder import thread_folder

BOB = Author("U2", "bob")
CANARY = "kanarie93xq"
T3 = ThreadId("fake", "W", "C9", "3.0")
TABLES = (
    "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace ORDER BY 1"
)
AGED = (
    "UPDATE message SET at = at - interval '40 days', settled_at = settled_at - interval '40 days' WHERE thread = %(thread)s",
    "UPDATE thread SET changed_at = changed_at - interval '40 days' WHERE id = %(thread)s",
)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(sweep, "PAUSE_S", 0.0)
    monkeypatch.setattr(store_module, "COLLECT_EVERY_S", 0.1)


@pytest.fixture
def store(dsn):
    return {"store": {"kind": "postgres", "dsn": "env:DSN"}}, {**KEYS, "DSN": dsn}


def bot(data: Path, store, **more):
    settings, environ = store
    return serving(data, {**settings, **more}, model="offline/demo", environ=environ)


def holding(dsn: str, words: str = CANARY) -> list[str]:
    """Return the tables in which these words stand, as text or in bytes."""
    with psycopg.connect(dsn) as connection:
        tables = [name for (name,) in connection.execute(TABLES)]
        found = f"SELECT FROM {{}} t WHERE strpos(t::text, '{words}') > 0 OR strpos(t::text, '{words.encode().hex()}') > 0"
        return [name for name in tables if connection.execute(found.format(name).encode()).rowcount]


def count(dsn: str, what: str) -> int:
    with psycopg.connect(dsn) as connection:
        return connection.execute(f"SELECT FROM {what}".encode()).rowcount


def told(data: Path) -> list[str]:
    return [str(path) for path in data.rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes()]


async def gone(left: Callable[[], object]) -> None:
    await until(lambda: not left())


async def run(tmp_path: Path, dsn: str, *words: str, code: int = 0, **fields: object) -> str:
    settings, secret = tmp_path / "settings.json", tmp_path / "dsn"
    secret.write_text(dsn)
    secret.chmod(0o600)
    store = {"kind": "postgres", "dsn": f"file:{secret}"}
    settings.write_text(json.dumps({"data": str(tmp_path / "data"), "store": store, **fields}))
    invoke = partial(CliRunner().invoke, main, [*words, "--settings", str(settings)])
    result = await anyio.to_thread.run_sync(invoke)
    assert result.exit_code == code, result.output
    return result.output


async def talk(data: Path, store) -> None:
    """Have Ann alone in one thread, and with Bob in another."""
    async with bot(data, store, tools={"enabled": ["files", "memory"]}) as chat:
        await chat.say(f"write a.txt {CANARY}")
        await chat.say(f"remember that {CANARY} is mine")
        await chat.say("Bob's own words", author=BOB, thread=T2)
        await chat.say(f"my name is {CANARY}", thread=T2)


async def test_a_person_is_found_in_no_table_after_it_and_the_others_are(tmp_path, dsn, store):
    data = tmp_path / "data"
    await talk(data, store)
    with psycopg.connect(dsn) as connection:
        connection.execute("UPDATE thread SET told_at = now() - interval '2 days'; SELECT note_words()")
    assert {"message", "context", "blob", "slot", "vocabulary"} <= {*holding(dsn)}
    said = await run(tmp_path, dsn, "forget", "--person", "U1", "--yes")
    assert "threads: 1" in said and "messages: 3" in said and "files: 1" in said
    assert holding(dsn) == []
    assert holding(dsn, '"U1"') == []
    assert "message" in holding(dsn, "own words")
    async with bot(data, store) as chat:
        assert "hi" in (await chat.say("say hi", author=BOB, thread=T2)).text
        await gone(lambda: told(data))


async def test_nobody_is_forgotten_while_a_worker_serves_or_a_message_waits(tmp_path, dsn, store):
    async with bot(tmp_path / "data", store) as chat:
        await chat.say(CANARY)
        elsewhere = tmp_path / "another machine"
        elsewhere.mkdir()
        said = await run(elsewhere, dsn, "forget", "--person", "U1", "--yes", code=78)
        assert "at work on this store" in said
    with psycopg.connect(dsn) as connection:
        connection.execute("UPDATE message SET settled = NULL, outcome = NULL")
    assert "Nothing was erased" in await run(tmp_path, dsn, "forget", "--person", "U1", "--yes", code=78)
    assert "message" in holding(dsn)


async def test_a_thread_is_forgotten_from_within_and_what_comes_again_is_not_answered_again(
    tmp_path, dsn, store
):
    data = tmp_path / "data"
    async with bot(data, store) as chat:
        first = await chat.send(f"write a.txt {CANARY}")
        await chat.settled(first.id)
        await chat.say("and here", thread=T2)
        assert "1 message and 1 file," in (await chat.say("/forget")).text
        assert "I have erased" in (await chat.say("/forget now")).text
        assert (holding(dsn), told(data)) == ([], [])
        posts = len(chat.posts)
        await chat.sink(first)
        assert "hi" in (await chat.say("say hi")).text
        assert len(chat.posts) == posts + 1
        assert "message" in holding(dsn, "and here")
    async with bot(data, store) as chat:  # the copy of the list has not more than the list
        assert "hi" in (await chat.say("say hi", thread=T2)).text


async def test_quiet_threads_are_forgotten_part_by_part_and_what_is_kept_longer_stays(tmp_path, dsn, store):
    rules = {
        "conversation_days": 30,
        "log_days": 30,
        "workspace_days": 30,
        "scopes": {"fake:W:C9": {"log_days": None}},
    }
    async with bot(tmp_path / "data", store) as chat:
        for thread in (T1, T2, T3):
            await chat.say(f"write a.txt {thread}", thread=thread)
    with psycopg.connect(dsn) as connection:
        for thread in (T1, T3):
            for statement in AGED:
                connection.execute(statement.encode(), {"thread": str(thread)})
    said = await run(tmp_path, dsn, "retention", "--dry-run", retention=rules)
    assert "log: 1," in said and "workspace: 2," in said and "conversation: " in said
    async with bot(tmp_path / "data", store, retention=rules):
        await gone(
            lambda: holding(dsn, f"write a.txt {T1}") or {*holding(dsn, f"write a.txt {T3}")} != {"message"}
        )
    assert holding(dsn, f"write a.txt {T1}") == []
    assert holding(dsn, f"write a.txt {T3}") == ["message"]
    assert {"blob", "context", "message"} <= {*holding(dsn, f"{T2}")}


async def test_months_of_the_audit_and_of_single_calls_go_and_the_sums_stay(tmp_path, dsn, store):
    rules = {"audit_days": 60, "spending_days": 60}
    async with bot(tmp_path / "data", store) as chat:
        await chat.say("hello")
    with psycopg.connect(dsn) as connection:
        connection.execute("INSERT INTO audit (at, line) VALUES ('2024-02-03', '{}'), ('2024-03-03', '{}')")
        connection.execute("UPDATE spending SET at = '2024-02-03'")
    before = await run(tmp_path, dsn, "usage", "--by", "model", "--since", "2020-01-01")
    said = await run(tmp_path, dsn, "retention", "--dry-run", retention=rules)
    assert "audit: 2," in said and "spending: 1," in said
    async with bot(tmp_path / "data", store, retention=rules):
        await gone(
            lambda: count(dsn, "audit WHERE at < '2025-01-01'") or count(dsn, "spending WHERE seq > 0")
        )
    assert await run(tmp_path, dsn, "usage", "--by", "model", "--since", "2020-01-01") == before
    assert "Nothing is due" in await run(tmp_path, dsn, "retention", "--dry-run", retention=rules)


async def test_what_a_restore_brings_back_is_forgotten_again(tmp_path, server, dsn, store):
    data, again = tmp_path / "data", server.new_database()
    await talk(data, store)
    await run(tmp_path, dsn, "forget", "--person", "U1", "--yes")
    restored = store[0], {**KEYS, "DSN": again}
    await talk(tmp_path / "other", restored)  # as an earlier dump would be: all said, and nobody forgotten
    assert holding(again)
    async with bot(data, restored):
        assert holding(again) == []
        assert "message" in holding(again, "own words")


async def test_copies_on_another_machine_go_too(tmp_path, dsn):
    folders = [tmp_path / "0", tmp_path / "1"]
    async with workers(dsn, 2, folders.__getitem__) as (one, other):
        await one.journal.receive(message(1))
        await one.until(lambda: one.routed)
        root = await one.store.workspace(THREAD)
        root.mkdir(parents=True, exist_ok=True)
        (root / "mine.txt").write_text(CANARY)
        await one.store.keep_workspace(THREAD)
        await one.kill()
        await other.until(lambda: other.taken)
        await other.store.workspace(THREAD)
        await other.settle(other.taken[0])
        assert told(folders[0]) and told(folders[1])
        await other.store.forget(THREAD)
        await other.kill()
    older = thread_folder(folders[0], T2) / "workspace" / "mine.txt"
    older.parent.mkdir(parents=True)
    older.write_text("from before the database")
    async with workers(dsn, 2, folders.__getitem__):
        await gone(lambda: told(tmp_path))
    assert older.exists(), "no copy of what the database knows"
    assert holding(dsn) == []
