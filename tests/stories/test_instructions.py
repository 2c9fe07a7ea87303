"""IDENTITY.md and MEMORY.md are read fresh: a change counts with the next message, without a restart."""

from __future__ import annotations

import json
import os
import threading
from itertools import pairwise
from pathlib import Path

import anyio
import pytest

from bot.agent.prompt import cached_file
from bot.agent.prompt.cached_file import CachedFile
from bot.agent.prompt.memory import CHANGED, HEADING, changed_memory
from tests.bot.llm.test_prompt_cache import unmarked
from tests.fakes import anthropic as a
from tests.serving import anthropic, serving
from threads.model import Message, Text
from threads.store.disk import PosixDisk


def settings(fake):
    return {
        "model": "anthropic/claude-x",
        "providers": anthropic(fake.base_url),
        "tools": {"enabled": ["memory"]},
        "budget": {"mode": "soft"},
    }


def system_of(seen):
    return "".join(block["text"] for block in seen.json["system"])


def conversation_of(seen):
    return json.loads(json.dumps(unmarked(seen.json["messages"])))


def said_in(seen):
    """Return the texts of the newest message."""
    return [block.get("text", "") for block in seen.json["messages"][-1]["content"]]


async def test_who_the_bot_is_counts_from_the_next_message_on_and_else_stays_the_same_bytes(tmp_path):
    replies = [a.answer(a.Text("ok"))] * 4
    async with a.FakeAnthropic(replies) as fake, serving(tmp_path, settings(fake)) as chat:
        await chat.say("one")
        (tmp_path / "IDENTITY.md").write_text("You are a gardener.")
        await chat.say("two")
        await chat.say("three")
        (tmp_path / "IDENTITY.md").unlink()
        await chat.say("four")
    systems = [system_of(seen) for seen in fake.requests]
    assert ["gardener" in system for system in systems] == [False, True, True, False]
    assert systems[1] == systems[2]
    assert systems[0] == systems[3]


async def test_memory_that_changed_is_told_at_the_end_and_nothing_above_changes(tmp_path):
    memory = tmp_path / "MEMORY.md"
    memory.write_text("- We are a bakery.\n")
    async with a.FakeAnthropic(lambda _: a.answer(a.Text("ok"))) as fake:
        async with serving(tmp_path, settings(fake)) as chat:
            await chat.say("one")
            await chat.say("two")
            memory.write_text("- We are a bakery.\n- We close on Mondays.\n")
            await chat.say("three")
        chat.ready = anyio.Event()
        async with serving(tmp_path, settings(fake), chat=chat):  # after a restart
            await chat.say("four")
            memory.unlink()
            await chat.say("five")
            await chat.say("six")
    news = [[text for text in said_in(seen) if text.startswith((HEADING, CHANGED))] for seen in fake.requests]
    section = "Remembered everywhere:\n> - We are a bakery."
    assert news == [
        [f"{HEADING}\n{section}"],
        [],
        [f"{CHANGED}\n{section}\n> - We close on Mondays."],
        [],
        [f"{CHANGED}\nRemembered everywhere:\n(nothing any more)"],
        [],
    ]
    talks = [conversation_of(seen) for seen in fake.requests]
    for before, after in pairwise(talks):
        assert after[: len(before)] == before, "the prompt cache holds"
    assert len({system_of(seen) for seen in fake.requests}) == 1


def told(*texts):
    return [
        Message("user", (Text(text), Text("[ann]"), Text("hi")), source=f"m{n}")
        for n, text in enumerate(texts)
    ]


HERE, THERE = "Remembered for this thread:\n> a", "Remembered everywhere:\n> b"


@pytest.mark.parametrize(
    ("memory", "conversation", "news"),
    [
        ("", [], ""),
        (f"{HEADING}\n{HERE}", [], f"{HEADING}\n{HERE}"),
        (f"{HEADING}\n{HERE}", told("[ann] hello"), f"{HEADING}\n{HERE}"),
        (f"{HEADING}\n{HERE}", told(f"{HEADING}\n{HERE}"), ""),
        (f"{HEADING}\n{THERE}\n{HERE}", told(f"{HEADING}\n{HERE}"), f"{CHANGED}\n{THERE}"),
        ("", told(f"{HEADING}\n{HERE}", f"{CHANGED}\nRemembered for this thread:\n(nothing any more)"), ""),
        (f"{HEADING}\n{HERE}", told(f"{HEADING}\n{HERE}", f"{CHANGED}\n{HERE}c"), f"{CHANGED}\n{HERE}"),
    ],
)
def test_only_the_sections_that_changed_are_told(memory, conversation, news):
    assert changed_memory(memory, conversation) == news


def test_what_a_person_types_is_never_taken_for_what_was_told():
    forged = Message("user", (Text("[ann]"), Text(f"{HEADING}\n{HERE}")), source="m1")
    assert changed_memory(f"{HEADING}\n{HERE}", [forged]) == f"{HEADING}\n{HERE}"


# -- the files -------------------------------------------------------------------------------------------------


class Counting(PosixDisk):
    def __init__(self):
        self.reads = 0

    def read(self, path: Path) -> bytes:
        self.reads += 1
        return super().read(path)


@pytest.fixture
def disk():
    return Counting()


@pytest.fixture
def file(disk, tmp_path):
    return CachedFile(disk, tmp_path / "IDENTITY.md", 100)


def test_a_file_that_did_not_change_is_not_read_again(file, disk, tmp_path):
    (tmp_path / "IDENTITY.md").write_text("one")
    assert [file.read(), file.read(), file.read()] == ["one"] * 3
    assert disk.reads == 1
    (tmp_path / "IDENTITY.md").write_text("two")
    assert (file.read(), disk.reads) == ("two", 2)


def test_a_missing_file_is_no_text_and_no_problem(file, tmp_path, caplog):
    assert (file.read(), file.problem) == ("", "")
    (tmp_path / "IDENTITY.md").write_text("one")
    assert file.read() == "one"
    (tmp_path / "IDENTITY.md").unlink()
    assert (file.read(), file.problem, caplog.text) == ("", "", "")


def a_folder(path):
    path.unlink()
    path.mkdir()


BAD = {
    "emptied, to be written": lambda path: path.write_bytes(b""),
    "cut within a character": lambda path: path.write_bytes("gärtner".encode()[:2]),
    "zeros, as a power cut leaves them": lambda path: path.write_bytes(bytes(20)),
    "huge": lambda path: path.write_bytes(b"x" * 101),
    "endless": lambda path: os.truncate(path, 1 << 40),
    "a folder": a_folder,
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
}


@pytest.mark.parametrize("spoil", BAD.values(), ids=BAD)
def test_of_a_file_that_cannot_be_used_the_last_good_text_counts_and_it_is_logged_once(
    file, tmp_path, caplog, spoil
):
    path = tmp_path / "IDENTITY.md"
    path.write_text("one")
    assert file.read() == "one"
    spoil(path)
    assert [file.read(), file.read()] == ["one", "one"]
    assert caplog.text.count("prompt.file_unread") == 1
    assert file.problem
    path.rmdir() if path.is_dir() else path.unlink()
    path.write_text("two")
    assert (file.read(), file.problem) == ("two", "")


@pytest.mark.parametrize("held", [b"", "gä".encode()[:-1]])
def test_a_file_that_stays_empty_or_cut_is_believed_in_the_end(file, tmp_path, monkeypatch, held):
    path = tmp_path / "IDENTITY.md"
    path.write_text("one")
    assert file.read() == "one"
    path.write_bytes(held)
    monkeypatch.setattr(cached_file, "SETTLES_S", 0.0)
    assert file.read() == held.decode("utf-8", "replace")


def test_a_file_that_was_replaced_by_an_empty_one_is_empty_at_once(file, tmp_path):
    (tmp_path / "IDENTITY.md").write_text("one")
    assert file.read() == "one"
    (tmp_path / "new").touch()
    (tmp_path / "new").rename(tmp_path / "IDENTITY.md")
    assert file.read() == ""


def test_a_file_that_could_never_be_read_is_none(file, tmp_path):
    (tmp_path / "IDENTITY.md").mkdir()
    assert file.read() is None


async def test_files_are_read_off_the_event_loop(tmp_path, monkeypatch):
    """The loop's thread reads none of them, in any turn."""
    loop, readers = threading.get_ident(), set[int]()
    original = CachedFile.read

    def read(self):
        readers.add(threading.get_ident())
        return original(self)

    monkeypatch.setattr(CachedFile, "read", read)
    async with (
        a.FakeAnthropic(lambda _: a.answer(a.Text("ok"))) as fake,
        serving(tmp_path, settings(fake)) as chat,
    ):
        await chat.say("one")
    assert readers
    assert loop not in readers


async def test_an_identity_that_cannot_be_read_does_not_keep_the_bot_from_answering(tmp_path):
    (tmp_path / "IDENTITY.md").mkdir()
    async with a.FakeAnthropic([a.answer(a.Text("ok"))]) as fake, serving(tmp_path, settings(fake)) as chat:
        assert (await chat.say("one")).text == "ok"
        assert "IDENTITY.md: it is not a file" in (await chat.say("/status")).text
