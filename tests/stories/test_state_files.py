"""The small files of state, on a disk that refuses, that was damaged, that a newer version wrote, and in a process that dies.

What cannot be kept is said, in the thread or to the model; the process goes on, and so does the file once the disk does.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import signal
import subprocess
import sys
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import ClassVar

import anyio
import pytest

from bot.extensions.mcp.servers import StoredListings
from bot.schedules.store import Schedules, SchedulesFile
from bot.tools.approvals import ApprovalsFile
from tests.fakes.anthropic import FakeAnthropic, Text, Tool, answer
from tests.patience import WITHIN_S, until
from tests.serving import anthropic, serving
from tests.world import Clock, inline, state_file
from threads.errors import NewerSchema
from threads.store.disk import PosixDisk
from threads.store.json_file import JsonFile
from threads.wording import first_cause

ROOT = Path(__file__).parents[2]
FILES = {"approvals.json": ApprovalsFile, "mcp.json": StoredListings}


class Refusing(PosixDisk):
    """The real disk, but a call whose name and file are in ``refused`` fails: as ENOSPC, EROFS, EIO."""

    refused: ClassVar[set[tuple[str, str]]] = set()
    code = errno.ENOSPC

    def _check(self, call: str, path: Path) -> None:
        if any(call == refused and name in str(path) for refused, name in self.refused):
            raise OSError(self.code, os.strerror(self.code), str(path))

    def create(self, path):
        self._check("create", path)
        return super().create(path)

    def append(self, path):
        self._check("append", path)
        return super().append(path)

    def rename(self, source, target):
        self._check("rename", target)
        super().rename(source, target)

    def fsync_folder(self, path):
        self._check("fsync_folder", path)
        super().fsync_folder(path)

    def mkdir(self, *paths):
        for path in paths:
            self._check("mkdir", path)
        super().mkdir(*paths)


@asynccontextmanager
async def talking(tmp_path, monkeypatch, script, refused, code, **more):
    """Serve with a model that plays *script*; the disk refuses what is *refused*, until it is emptied."""
    disk = type("Disk", (Refusing,), {"refused": set(refused), "code": code})
    monkeypatch.setattr("bot.wiring.app.PosixDisk", disk)
    async with FakeAnthropic([answer(step) for step in script]) as model:
        given = {
            "model": "anthropic/claude-fake",
            "providers": anthropic(model.base_url),
            "prices": {"anthropic/claude-fake": {"input": 1.0, "output": 1.0}},
            "tools": {"enabled": ["files", "memory", "schedule"], **more},
        }
        async with serving(tmp_path / "data", given) as chat:
            yield chat, model, disk


def results(model) -> list[dict]:
    """Return what the model was told of its calls, in order."""
    told = {}
    for request in model.requests:
        for message in request.json["messages"]:
            for block in message["content"] if isinstance(message["content"], list) else []:
                if block["type"] == "tool_result":
                    content = block["content"]
                    told[block["tool_use_id"]] = json.loads(
                        content if isinstance(content, str) else content[0]["text"]
                    )
    return list(told.values())


WRITES = {
    "a note": ("MEMORY.md", Tool("c{}", "remember", {"text": "the plan is {}"})),
    "a schedule": ("schedules.json", Tool("c{}", "schedule", {"text": "say {}", "in_minutes": 60})),
    "a file": ("write.tmp", Tool("c{}", "write_file", {"path": "note.txt", "content": "{}"})),
}


def made(tool: Tool, n: int) -> Tool:
    fitted = {
        name: value.format(n) if isinstance(value, str) else value for name, value in tool.arguments.items()
    }
    return Tool(tool.id.format(n), tool.name, fitted)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS], ids=["full", "read-only"])
@pytest.mark.parametrize("call", ["create", "rename"])
@pytest.mark.parametrize("what", WRITES)
async def test_what_cannot_be_kept_is_told_to_the_model_and_kept_when_the_disk_is_well(
    tmp_path, monkeypatch, caplog, what, call, code
):
    name, tool = WRITES[what]
    if (what, call) == ("a file", "rename"):
        pytest.skip("it is moved by the kernel, beneath the workspace")
    script = [made(tool, 1), Text("sorry"), made(tool, 2), Text("done")]
    async with talking(tmp_path, monkeypatch, script, {(call, name)}, code) as (chat, model, disk):
        first = await chat.say("do it")
        assert first.text.endswith("sorry")
        told = results(model)[0]
        assert told["success"] is False
        assert len(told["error"]["message"]) > 20, "a word of its own, not only that it failed"
        assert "rrno" not in json.dumps(told)
        assert str(tmp_path) not in json.dumps(told)
        assert not any(record.exc_info for record in caplog.records if record.levelno >= logging.ERROR)
        disk.refused.clear()
        await chat.say("again")
        assert results(model)[1]["success"] is True
    assert set(chat.outcomes.values()) == {"answered"}


@pytest.mark.parametrize("call", ["create", "rename"])
async def test_a_permission_that_cannot_be_kept_is_none(tmp_path, monkeypatch, call):
    write = Tool("c1", "write_file", {"path": "a.txt", "content": "x"})
    script = [write, Text("sorry"), write, Text("done")]
    policy = {"write_file": "ask"}
    async with talking(
        tmp_path, monkeypatch, script, {(call, "approvals.json")}, errno.ENOSPC, policy=policy
    ) as (chat, model, disk):
        await chat.say("write")
        assert results(model)[0]["error"]["type"] == "permission"
        assert not any(post.choices for post in chat.posts), "what could not be kept is not asked"
        assert not list((tmp_path / "data").rglob("a.txt"))
        disk.refused.clear()
        again = await chat.send("write again")
        with anyio.fail_after(WITHIN_S):
            await chat.until(lambda: any(post.choices for post in chat.posts) or again.id in chat.outcomes)
    assert any(post.choices for post in chat.posts)


async def test_a_long_result_that_cannot_be_kept_is_cut_with_a_word(tmp_path, monkeypatch):
    write = Tool("c1", "write_file", {"path": "a.txt", "content": "word\n" * 3_900})
    find = Tool("c2", "search_files", {"text": "w"})
    read = Tool("c3", "read_file", {"path": "a.txt"})
    refused = {("create", "tool-output"), ("mkdir", "tool-output")}
    async with talking(tmp_path, monkeypatch, [write, find, read, Text("done")], refused, errno.ENOSPC) as (
        chat,
        model,
        _,
    ):
        assert (await chat.say("read")).text.endswith("done")
        assert all(result["success"] for result in results(model))


async def test_a_decision_counts_even_if_its_line_in_the_audit_is_lost(tmp_path, monkeypatch, caplog):
    write = Tool("c1", "write_file", {"path": "a.txt", "content": "x"})
    policy = {"write_file": "ask"}
    async with talking(
        tmp_path,
        monkeypatch,
        [write, Text("done")],
        {("append", "audit"), ("mkdir", "audit")},
        errno.EROFS,
        policy=policy,
    ) as (chat, model, _):
        sent = await chat.send("write")
        await until(lambda: any(post.choices for post in chat.posts))
        await chat.say("/approve once")
        await chat.settled(sent.id)
        assert results(model)[0]["success"] is True
    assert "audit.lost" in caplog.text


def settings_that_open(name: str) -> dict[str, object]:
    """Return settings with which the bot opens the file *name* at its start."""
    return {
        "model": "offline/demo",
        "mcp_servers": {"far": {"url": "http://127.0.0.1:9/"}} if name == "mcp.json" else {},
        "tools": {"enabled": ["files", "memory", "schedule"]},
    }


DAMAGE = {
    "empty": b"",
    "cut": b'{"v":1,"asked":{"a',
    "nothing of ours": b"\x00\xff\xfe not json",
    "a list": b"[1, 2]",
    "a number": b"7",
    "wrong inside": b'{"v":1,"asked":[],"grants":7,"servers":[],"schedules":7,"told":[]}',
    "no version": b'{"v":"x"}',
    "deep": b'{"a":' * 100_000,
    "surrogates": b'{"v":1,"asked":{"\\ud800":7},"schedules":"\\ud800","servers":{"\\ud800":1}}',
}


DAMAGED = [
    *(("approvals.json", damage) for damage in DAMAGE),
    *product(["schedules.json", "mcp.json"], ["wrong inside", "no version", "surrogates"]),
    *product(["models.json"], ["no version", "surrogates"]),
]
"""What is no object at all is told before any file's own form counts: one of the files stands for all."""


@pytest.mark.parametrize(("name", "damage"), DAMAGED)
async def test_a_damaged_file_is_put_aside_and_the_bot_starts(tmp_path, monkeypatch, name, damage):
    data = tmp_path / "data"
    data.mkdir()
    (data / name).write_bytes(DAMAGE[damage])
    async with serving(data, settings_that_open(name)) as chat:
        assert (await chat.say("hello")).kind == "reply"
    if DAMAGE[damage]:
        assert DAMAGE[damage] in (data / f"{name}.broken").read_bytes()


async def failure_at_start(data: Path, name: str) -> BaseException:
    with pytest.raises(BaseException) as raised:
        async with serving(data, settings_that_open(name)) as chat:
            await chat.say("hello")
    return first_cause(raised.value)


@pytest.mark.parametrize("name", ["approvals.json", "schedules.json", "mcp.json"])
async def test_a_file_of_a_newer_version_stops_the_start_and_is_left_as_it_is(tmp_path, name):
    data = tmp_path / "data"
    data.mkdir()
    newer = b'{"v":99,"something":"new"}'
    (data / name).write_bytes(newer)
    cause = await failure_at_start(data, name)
    assert isinstance(cause, NewerSchema)
    assert name in str(cause)
    assert (data / name).read_bytes() == newer


@pytest.mark.parametrize(
    "content", [b"\xff\xfe\x00", b"x" * 1_000_000, b"- [zzzz] \xff"], ids=["binary", "huge", "half"]
)
async def test_a_memory_that_cannot_be_read_costs_no_answer(tmp_path, content):
    data = tmp_path / "data"
    data.mkdir()
    (data / "MEMORY.md").write_bytes(content)
    async with serving(data, {"model": "offline/demo", "tools": {"enabled": ["memory"]}}) as chat:
        assert (await chat.say("hello")).kind == "reply"
        assert (await chat.say("/memory")).text
    assert (data / "MEMORY.md").read_bytes() == content


@pytest.mark.parametrize("name", ["approvals.json", "schedules.json", "mcp.json"])
async def test_a_folder_in_the_place_of_a_file_stops_the_start_with_its_name(tmp_path, name):
    data = tmp_path / "data"
    (data / name).mkdir(parents=True)
    cause = await failure_at_start(data, name)
    assert isinstance(cause, OSError)
    assert name in str(cause.filename)


@pytest.mark.parametrize("call", ["create", "rename", "fsync_folder"])
@pytest.mark.parametrize("name", FILES)
async def test_a_value_that_could_not_be_replaced_is_the_old_one_in_memory_and_on_disk(tmp_path, name, call):
    disk = type("Disk", (Refusing,), {"refused": {(call, "")}})()
    kept = JsonFile(disk, tmp_path / name, inline, FILES[name]())
    with pytest.raises(Exception, match=name):
        await kept.change(lambda _: FILES[name]())
    assert kept.value == FILES[name]()
    disk.refused.clear()
    await kept.change(lambda _: FILES[name]())
    assert sorted(path.name for path in tmp_path.iterdir()) == [name]


DIES = """
import sys, anyio
from pathlib import Path
from typing import ClassVar
from datetime import datetime, UTC
from bot.schedules.store import ScheduleLimits, Schedule, Schedules, SchedulesFile
from threads.store.disk import PosixDisk
from threads.store.json_file import JsonFiles
from threads.model import Author
async def main(path, first):
    state = await JsonFiles(PosixDisk(), path.parent, anyio.to_thread.run_sync).open("schedules", SchedulesFile())
    schedules = Schedules(state, lambda: datetime.now(UTC), ScheduleLimits(10_000, 10_000, 10_000))
    for n in range(first, 10_000):
        made = await schedules.add(Schedule(thread="fake:W:C1:1", author=Author("U1"), text="x" * 500, next_at=datetime.now(UTC), source=str(n)))
        print(made.id, flush=True)
anyio.run(main, Path(sys.argv[1]), int(sys.argv[2]))
"""


def test_whenever_the_process_is_killed_nothing_that_was_promised_is_lost(tmp_path):
    path, promised = tmp_path / "schedules.json", []
    for round_ in range(6):
        child = subprocess.Popen(
            [sys.executable, "-c", DIES, str(path), str(round_ * 1_000)],
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )
        assert child.stdout
        promised += [child.stdout.readline().strip() for _ in range(3 + 5 * round_)]
        child.send_signal(signal.SIGKILL)
        promised += [line.strip() for line in child.stdout.read().splitlines()]
        child.wait()
        child.stdout.close()
        schedules = Schedules(state_file(path, SchedulesFile()), Clock())
        assert {schedule.id for schedule in schedules.all} >= set(promised)
        assert not path.with_name("schedules.json.broken").exists()
