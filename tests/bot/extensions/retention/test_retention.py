"""What is old goes by itself, and all of a person or a thread when asked: nothing that is open, and nothing else."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import anyio
import pytest
from click.testing import CliRunner

from bot.cli import main
from bot.extensions.backup.restore import restore
from bot.extensions.backup.snapshot import back_up
from bot.extensions.retention import sweep, thread_command
from bot.extensions.retention.due import steps
from bot.extensions.retention.settings import Retention
from bot.reports.files import FileReader
from bot.reports.usage import report
from tests.fakes import openai as o
from tests.patience import WITHIN_S, until
from tests.serving import Chat, compatible, serving
from tests.world import ANN, T1, T2, message
from threads.log import LogEntry, entry_adapter
from threads.model import Author, Earlier, Spoken, ThreadId
from threads.store.checksummed_lines import encode
from threads.store.data_folder import recent_threads, thread_folder

BOB = Author("U2", "bob")
CANARY = "kanarie-93xq"
DEMO = partial(serving, model="offline/demo")
EVERYTHING = {"conversation_days": 30, "log_days": 30, "attachments_days": 30, "workspace_days": 30}


def folder(data: Path, thread: ThreadId = T1) -> Path:
    return thread_folder(data, thread)


def aged(data: Path, thread: ThreadId, days: float) -> None:
    then = (datetime.now(UTC) - timedelta(days=days)).timestamp()
    for path in folder(data, thread).glob("*.jsonl"):
        os.utime(path, (then, then))


def told(data: Path) -> list[str]:
    """Return which files hold the canary, whatever put aside what a restore replaced."""
    files = [path for path in data.rglob("*") if path.is_file() and "before-" not in str(path)]
    return [str(path.relative_to(data)) for path in files if CANARY.encode() in path.read_bytes()]


async def run(data: Path, *words: str, code: int = 0, **fields: object) -> str:
    settings = data.parent / "settings.json"
    settings.write_text(json.dumps({"data": str(data), **fields}))
    invoke = partial(CliRunner().invoke, main, [*words, "--settings", str(settings)])
    result = await anyio.to_thread.run_sync(invoke)
    assert result.exit_code == code, result.output
    return result.output


async def gone(*paths: Path) -> None:
    await until(lambda: not any(path.exists() for path in paths))


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(sweep, "PAUSE_S", 0.0)


async def test_quiet_threads_are_forgotten_part_by_part_and_scope_by_scope(tmp_path):
    other = ThreadId("fake", "W", "C9", "3.0")
    async with DEMO(tmp_path / "data", {}) as chat:
        for thread in (T1, T2, other):
            await chat.say(f"write notes.txt {CANARY}", thread=thread)
    data = tmp_path / "data"
    for thread, days in ((T1, 40), (T2, 20), (other, 40)):
        aged(data, thread, days)
    rules = {"log_days": 30, "conversation_days": 30, "scopes": {"fake:W:C9": EVERYTHING}}
    async with DEMO(data, {"retention": rules}):
        await gone(folder(data, other), folder(data) / "log.jsonl", folder(data) / "context.jsonl")
    assert (folder(data) / "workspace" / "notes.txt").exists()
    assert {path.name for path in folder(data, T2).glob("*.jsonl")} == {"log.jsonl", "context.jsonl"}


async def test_what_is_left_of_a_thread_is_as_old_as_the_thread(tmp_path):
    data = tmp_path / "data"
    async with DEMO(data, {}) as chat:
        await chat.say("write notes.txt x")
    aged(data, T1, 40)
    rules = {"log_days": 30, "conversation_days": 30, "workspace_days": 60}
    async with DEMO(data, {"retention": rules}):
        await gone(folder(data) / "log.jsonl", folder(data) / "context.jsonl")
    later = datetime.now(UTC) + timedelta(days=21)
    assert [step.kind for step in steps(data, Retention(**rules), later)] == ["workspace"]


async def test_an_old_dead_letter_leaves_the_history_of_its_thread_and_the_rest_stays(tmp_path):
    data, old = tmp_path / "data", "2001-01-01T00:00:00+00:00"
    async with DEMO(data, {}) as chat:
        await chat.say("stays")
    log = folder(data) / "log.jsonl"
    for entry in (
        LogEntry(at=old, kind="message", message_id="dead", author="U1", text=CANARY),
        LogEntry(at=old, kind="settled", message_id="dead", outcome="dead_letter"),
    ):
        log.write_bytes(log.read_bytes() + encode(entry_adapter(), entry))
    aged(data, T1, 40)
    before = log.stat().st_mtime
    async with DEMO(data, {"retention": {"dead_letters_days": 30}}):
        await until(lambda: CANARY not in log.read_text())
    assert ("stays" in log.read_text(), log.stat().st_mtime) == (True, before)


async def test_what_the_person_at_the_terminal_typed_goes_with_them(tmp_path):
    data = tmp_path / "data"
    async with DEMO(data, {}) as chat:
        await chat.say(CANARY, author=Author("you"))
    (data / "console-history").write_text(f"+{CANARY}")
    (data / "attached").mkdir()
    (data / "attached" / "a.txt").write_text(CANARY)
    await run(data, "forget", "--person", "you", "--yes")
    assert told(data) == []


async def test_nothing_goes_where_a_schedule_is_open_and_a_dry_run_tells_what_would(tmp_path):
    data = tmp_path / "data"
    fields = {"tools": {"enabled": ["files", "schedule"]}, "retention": EVERYTHING}
    async with DEMO(data, {}) as chat:
        await chat.say("hello")
        await chat.say("hello", thread=T2)
    (data / "schedules.json").write_text(
        json.dumps(
            {
                "schedules": [
                    {"thread": str(T2), "author": {"id": "U1"}, "text": "x", "next_at": "2999-01-01T00:00Z"}
                ]
            }
        )
    )
    for thread in (T1, T2):
        aged(data, thread, 40)
    found = json.loads(await run(data, "retention", "--dry-run", "--json", retention=EVERYTHING))
    assert {kind: one["count"] for kind, one in found.items()} == {"conversation": 1, "log": 1}
    async with DEMO(data, fields):
        await gone(folder(data))
    assert (folder(data, T2) / "log.jsonl").exists()


async def test_a_thread_in_which_somebody_writes_meanwhile_stays(tmp_path, monkeypatch):
    data, looked = tmp_path / "data", anyio.Event()
    async with DEMO(data, {}) as chat:
        await chat.say("hello")
    aged(data, T1, 40)
    go_on = anyio.Event()

    async def waits(*_):
        looked.set()
        await go_on.wait()

    monkeypatch.setattr(sweep.Sweep, "_quiet", waits)
    done = anyio.Event()
    monkeypatch.setattr(sweep.Sweep, "run", lambda self: run_once(self, done))
    async with DEMO(data, {"retention": EVERYTHING}, chat=chat):
        await looked.wait()
        await chat.say("I am back")
        go_on.set()
        await done.wait()
        assert "hello" in (folder(data) / "log.jsonl").read_text()


async def run_once(self, done):
    await self.look()
    done.set()


async def test_old_audit_and_single_calls_go_and_the_sums_stay(tmp_path):
    data = tmp_path / "data"
    async with DEMO(data, {"prices": {"offline/demo": {"input": 3, "output": 15}}}) as chat:
        for text in ("one", "two", "three"):
            await chat.say(text)
    [now] = (data / "usage").glob("*.jsonl")
    old = data / "usage" / "2001-02.jsonl"
    lines = now.read_bytes()
    old.write_bytes(lines)
    (data / "audit" / "2001-02-03.jsonl").write_text("")
    before = report(FileReader(data), "day", ("2001-01-01", None)).total
    assert b"U1" in lines
    async with DEMO(data, {"retention": {"audit_days": 30, "spending_days": 30}}):
        await gone(data / "audit" / "2001-02-03.jsonl")
        await until(lambda: b"U1" not in old.read_bytes())
    now.unlink()
    after = report(FileReader(data), "day", ("2001-01-01", None)).total
    assert (after.micros, after.prompt, after.output) == (before.micros, before.prompt, before.output)


async def shared(data: Path) -> None:
    """Have Ann alone in one thread, and with Bob in another."""
    async with DEMO(data, {"tools": {"enabled": ["files", "memory"]}}) as chat:
        await chat.say(f"write a.txt {CANARY}")
        await chat.say(f"remember that {CANARY} is mine")
        await chat.say("Bob's own words", author=BOB, thread=T2)
        await chat.say(f"my name is {CANARY}", thread=T2)


async def test_a_person_is_found_nowhere_after_it_and_the_others_are(tmp_path):
    data = tmp_path / "data"
    await shared(data)
    assert {"journal.jsonl", "threads/fake/W~C1~1.0/workspace/a.txt"} < {*told(data)}
    exported = tmp_path / "out"
    assert "3 messages" in await run(data, "export", str(exported), "--person", "U1")
    assert (exported / "messages.jsonl").read_text().count('"author":"U1"') == 3
    said = await run(data, "forget", "--person", "U1", "--yes")
    assert told(data) == [] and CANARY not in said
    assert "threads: 1" in said and "messages: 3" in said
    assert "Bob's own words" in (folder(data, T2) / "log.jsonl").read_text()
    assert not folder(data).exists() and not (folder(data, T2) / "context.jsonl").exists()
    left = b"".join(path.read_bytes() for path in (*data.glob("usage/*"), *data.glob("audit/*")))
    assert b'"U1"' not in left and str(T2).encode() in left and str(T1).encode() not in left
    async with DEMO(data, {}) as chat:  # all that is left can be read
        assert "hi" in (await chat.say("say hi", author=BOB, thread=T2)).text


async def test_a_disk_that_fails_in_between_leaves_nothing_behind_the_second_time(tmp_path, monkeypatch):
    data = tmp_path / "data"
    await shared(data)

    def fails(*_):
        raise OSError(5, "no disk", "log.jsonl")

    with monkeypatch.context() as broken:
        broken.setattr("bot.extensions.retention.forget.drop_messages", fails)
        assert "run it again" in await run(data, "forget", "--person", "U1", "--yes", code=1)
    assert told(data)
    await run(data, "forget", "--person", "U1", "--yes")
    assert told(data) == []


async def test_what_a_restore_brings_back_is_forgotten_again(tmp_path):
    data, backup = tmp_path / "data", tmp_path / "backup.tar.gz"
    await shared(data)
    back_up(data, backup, lambda: datetime.now(UTC))
    await run(data, "forget", "--person", "U1", "--yes")
    restore(backup, data, lambda: datetime.now(UTC), force=True, on_bytes=lambda _: None)
    assert told(data)
    async with DEMO(data, {}):
        assert [path for path in told(data) if "usage" not in path] == []
        assert "Bob's own words" in (folder(data, T2) / "log.jsonl").read_text()


async def test_a_thread_with_an_open_message_is_not_forgotten_and_a_running_bot_keeps_its_folder(tmp_path):
    data = tmp_path / "data"
    async with DEMO(data, {}) as here:
        await here.say("hello")
        assert "/forget" in await run(data, "forget", "--thread", str(T1), "--yes", code=78)
        await here.send("write in a hurry")
    journal = (data / "journal.jsonl").read_bytes().splitlines(keepends=True)
    cut = [line for line in journal if not (b"m2" in line and b'"kind":"settled"' in line)]
    (data / "journal.jsonl").write_bytes(b"".join(cut))
    assert "Nothing was erased" in await run(data, "forget", "--thread", str(T1), "--yes", code=78)
    assert (folder(data) / "log.jsonl").exists()


async def test_a_thread_that_is_forgotten_takes_no_message_of_another_one_along_that_names_nobody(tmp_path):
    data = tmp_path / "data"
    async with DEMO(data, {}) as chat:
        await chat.say("hello")
        await chat.say("hello", thread=T2)
    log = folder(data, T2) / "log.jsonl"
    nobodys = LogEntry(
        at=datetime.now(UTC).isoformat(), kind="message", message_id="n", author="", text="hello"
    )
    log.write_bytes(before := log.read_bytes() + encode(entry_adapter(), nobodys))
    await run(data, "forget", "--thread", str(T1), "--yes")
    assert not folder(data).exists()
    assert log.read_bytes() == before and (folder(data, T2) / "context.jsonl").exists()


async def test_a_thread_is_forgotten_from_within_after_a_question(tmp_path):
    data = tmp_path / "data"
    async with DEMO(data, {"access": {"admins": ["U9"]}}) as chat:
        await chat.say(f"write a.txt {CANARY}")
        (data / "journal.jsonl.broken").write_text(f'{{"text":"{CANARY}')
        await until(lambda: (folder(data) / "log.jsonl").exists())  # it is written after the answer
        assert "1 message and 1 file," in (await chat.say("/forget")).text
        await chat.say("and Bob", author=BOB)
        assert "only an admin" in (await chat.say("/forget now")).text
        assert "I have erased" in (await chat.say("/forget now", author=Author("U9"))).text
        assert told(data) == []
        assert recent_threads(data, T1.transport, 60, 10) == [T1]  # what is missed there is caught up
        assert "hi" in (await chat.say("say hi")).text


class Telling(Chat):
    """A platform that still has what was said, of which little was said to the bot."""

    def __init__(self):
        super().__init__()
        self.capabilities = replace(self.capabilities, earlier=True)
        self.lines = []

    async def earlier(self, thread, before, after=""):
        return Earlier(tuple(line for line in self.lines if (after or "0") < line.id < before))

    def tell(self, author, text, *, ours=False):
        """Have somebody say this, not to the bot; return its time."""
        self.sent += 1
        time = f"{datetime.now(UTC).timestamp():.6f}"
        self.lines.append(Spoken(author, text, ours, id=time, sent_at=datetime.now(UTC).isoformat()))
        return time

    async def ask(self, text, time=""):
        """Say this to the bot, by default now, and wait for the answer."""
        now = datetime.now(UTC).isoformat()
        sent = replace(message(1, text), id=time or self.tell(ANN, text), sent_at=now)
        await self.sink(sent)
        with anyio.fail_after(WITHIN_S):
            await self.settled(sent.id)


@pytest.mark.parametrize("whom", ["thread", "person"])
async def test_what_was_forgotten_is_not_read_again_from_the_platform(tmp_path, whom):
    data, chat = tmp_path / "data", Telling()
    async with o.FakeOpenAI([o.chat_answer(o.Text("ok"))] * 3) as fake:
        fields = {"providers": compatible("local", fake.base_url), "model": "local/m"}
        async with serving(data, fields, chat=chat):
            chat.tell(BOB, f"{CANARY} of bob")
            chat.tell(ANN, "the plan of ann")
            await chat.ask("what is said?")
            chat.tell(Author("B"), f"bob said {CANARY}", ours=True)
        await run(data, "forget", f"--{whom}", str(T1) if whom == "thread" else BOB.id, "--yes")
        async with serving(data, fields, chat=chat):
            chat.tell(BOB, "the news of bob")
            await chat.ask("and now?")
    before, after = (str(request.json["messages"]) for request in fake.requests)
    assert CANARY in before
    assert CANARY not in after and "the news of bob" in after
    assert ("the plan of ann" in after) == (whom == "person")


async def test_what_is_answered_after_a_thread_was_forgotten_lacks_what_was_said_before(tmp_path):
    """Two messages come late, as after an absence; between them was said what people had forgotten."""
    chat = Telling()
    async with o.FakeOpenAI([o.chat_answer(o.Text("ok"))] * 3) as fake:
        fields = {"providers": compatible("local", fake.base_url), "model": "local/m"}
        async with serving(tmp_path / "data", fields, chat=chat):
            first = chat.tell(ANN, "one")
            chat.tell(ANN, CANARY)
            second = chat.tell(ANN, "two")
            await chat.ask("/forget now")
            await chat.ask("one", first)
            await chat.ask("two", second)
            chat.tell(ANN, "the news")
            await chat.ask("three")
    asked = [str(request.json["messages"]) for request in fake.requests]
    assert len(asked) == 3 and CANARY not in "".join(asked) and "the news" in asked[-1]


async def test_a_thread_whose_conversation_is_old_still_answers_without_a_mention(tmp_path):
    data = tmp_path / "data"
    async with DEMO(data, {}) as chat:
        await chat.say("say hi")
        await chat.say("/help", thread=T2)
    for thread in (T1, T2):
        aged(data, thread, 40)
    (data / "journal.jsonl").unlink()  # as after a while: it keeps only the last messages
    async with DEMO(data, {"retention": {"conversation_days": 30}}):
        await gone(folder(data) / "context.jsonl")
    async with DEMO(data, {}) as chat:
        await chat.sink(
            replace(message(7, "say no", T2), via="overheard")
        )  # only a command: it has no conversation
        await chat.sink(replace(message(8, "say yes"), via="overheard"))
        with anyio.fail_after(WITHIN_S):
            await chat.settled("m8")
    assert [post.reply_to for post in chat.posts] == ["m8"]


async def test_what_another_person_said_counts_also_if_it_comes_into_the_log_at_the_last_moment(monkeypatch):
    wrote, erased = {"U1"}, []
    monkeypatch.setattr(thread_command, "_count", lambda *_: ({*wrote}, {"messages": 1, "files": 0}))

    async def work(function, *given):
        return function(*given)

    async def erase(_thread, _parts, erase_all):
        wrote.add("U2")
        erased.append(await erase_all())
        return True

    host = SimpleNamespace(work=work, erase=erase, is_admin=lambda _: False)
    assert await thread_command.obey(host, None, "now", message(1)) == thread_command.NOT_YOURS
    assert erased == []


async def test_a_scope_of_a_person_is_refused_because_threads_are_of_all_who_write_there(tmp_path):
    said = await run(tmp_path / "data", "check", code=78, retention={"scopes": {"user:U1": {"log_days": 1}}})
    assert "retention.scopes" in said and "must be a place" in said
