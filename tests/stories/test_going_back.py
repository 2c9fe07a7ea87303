"""A message that takes the place of an earlier one: the conversation goes back to it, and nothing is lost."""

from __future__ import annotations

import errno
from dataclasses import replace

import anyio
import pytest

from bot.ports.outside_text import tainted
from bot.reports.files import FileReader
from bot.reports.line_reader import Damage
from bot.reports.message_story import stories
from bot.reports.thread import entries, tools_used
from tests.sim.loop import virtual_time
from tests.world import (
    T1,
    FaultyDisk,
    Gate,
    Platform,
    Scripted,
    calls,
    converse,
    inline,
    message,
    running,
    says,
)
from threads import wording
from threads.background import background_tasks
from threads.model import Deleted, Message, Text
from threads.store.checksummed_lines import read_records
from threads.store.context import line_adapter
from threads.store.data_folder import thread_folder

anyio_backend = virtual_time


def again(n: int, replaced: int, text: str = "hello"):
    return replace(message(n, text), replaces=f"m{replaced}")


def conversation(data) -> list[Message]:
    found, broken = read_records(line_adapter(), (thread_folder(data, T1) / "context.jsonl").read_bytes())
    assert not broken
    return [line.message for line, _ in found]


def words(messages) -> list[str]:
    """Return what is said in a conversation, without headings."""
    return [one.blocks[-1].text for one in messages if isinstance(one.blocks[-1], Text)]


def logged(data):
    reader = FileReader(data)
    [thread] = reader.find(str(T1))
    return [*entries(reader, thread, Damage())]


async def test_the_conversation_goes_back_and_the_log_keeps_what_followed(tmp_path):
    model = Scripted(says("one"), says("two"), says("three"), says("other"))
    said = message(1, "first"), message(2, "second"), message(3, "third"), again(4, 2, "second, in short")
    await converse(tmp_path, Platform(), model, *said)
    assert words(model.requests[-1].messages) == ["first", "one", "second, in short"]
    assert words(conversation(tmp_path)) == ["first", "one", "second, in short", "other"]
    log = logged(tmp_path)
    assert [one.text for one in log if one.kind == "reply"] == ["one", "two", "three", "other"]
    assert [one.replaces for one in log if one.kind == "message"] == ["", "", "", "m2"]
    [story] = stories(FileReader(tmp_path), "m4")
    assert "in place of message m2" in story.events[0].what


async def test_the_tools_of_earlier_versions_are_still_told(tmp_path):
    model = Scripted(
        says("one"), calls("list_files"), says("two"), calls("read_file"), says("other"), says("last")
    )
    await converse(tmp_path, Platform(), model, message(1), message(2), again(3, 2), again(4, 3))
    reader = FileReader(tmp_path)
    used = tools_used(reader, reader.find(str(T1))[0])
    assert {about: one.tool for about, [one] in used.items()} == {"m2": "list_files", "m3": "read_file"}
    assert words(conversation(tmp_path)) == ["hello", "one", "hello", "last"]


async def test_a_version_waits_for_the_turn_is_no_command_and_comes_with_what_joined_the_other(tmp_path):
    gate = Gate(calls("list_files"))
    model, platform = Scripted(gate, says("both"), says("both again")), Platform()
    async with running(tmp_path, platform, model) as bot:
        await gate.hold(bot, message(1, "first"))
        await bot.orchestrator.receive(message(2, "and this"))
        await bot.orchestrator.receive(again(3, 1, "/status"))
        gate.open.set()
        await platform.settled("m1", "m2", "m3")
    assert platform.outcomes == {"m1": "answered", "m2": "merged", "m3": "answered"}
    assert words(conversation(tmp_path)) == ["/status", "and this", "both again"]


async def test_text_from_outside_taints_no_longer_once_it_is_gone(tmp_path):
    platform = Platform()
    async with running(tmp_path, platform, Scripted()) as bot:
        await platform.exchange(bot, message(1), message(2), replace(message(3), quoted="from outside"))
        assert tainted(conversation(tmp_path))
        await platform.exchange(bot, again(4, 2))
        assert not tainted(conversation(tmp_path))
        await platform.exchange(bot, replace(message(5), quoted="from outside"), message(6), again(7, 6))
        assert tainted(conversation(tmp_path)), "what came before still does"
        await platform.exchange(bot, again(8, 5, "other words"))
        assert tainted(conversation(tmp_path)), "what came with the message stays with it"


@pytest.mark.parametrize(("between", "replaced"), [("hello", 9), ("/compact", 1), ("/new", 1)])
async def test_a_message_that_the_conversation_does_not_have_changes_nothing(tmp_path, between, replaced):
    model, platform = Scripted(says("one"), says("a summary")), Platform()
    async with running(tmp_path, platform, model) as bot:
        await platform.exchange(bot, message(1, "word " * 2_000), message(2, between), message(3))
        before, asked = conversation(tmp_path), len(model.requests)
        await platform.exchange(bot, again(4, replaced))
    assert (platform.outcomes["m4"], platform.texts[-1]) == ("refused", wording.NOT_HERE_ANY_MORE)
    assert conversation(tmp_path) == before
    assert len(model.requests) == asked
    assert {one.replaces for one in logged(tmp_path)} == {""}


async def test_a_deleted_version_leaves_the_earlier_one(tmp_path):
    gate, platform = Gate(says("other")), Platform()
    async with running(tmp_path, platform, Scripted(says("one"), says("two"), gate)) as bot:
        await platform.exchange(bot, message(1, "first"), message(2, "second"))
        before = conversation(tmp_path)
        await gate.hold(bot, again(3, 1))
        await bot.orchestrator.receive(Deleted("m3", T1))
        await platform.settled("m3")
    assert platform.outcomes["m3"] == "withdrawn"
    assert conversation(tmp_path) == before
    assert {one.replaces for one in logged(tmp_path)} == {""}


@pytest.mark.parametrize("went_back", [True, False])
async def test_a_version_that_failed_is_tried_again_in_the_same_place(tmp_path, went_back):
    failure, disk, platform = [RuntimeError("a")] if went_back else [], FaultyDisk(), Platform()
    model = Scripted(says("one"), says("two"), *failure, says("other"))
    if not went_back:
        disk.refuse["create context.old.jsonl.tmp"] = OSError(errno.EIO, "broken")
    async with running(tmp_path, platform, model, disk=disk) as bot:
        await platform.exchange(bot, message(1), message(2, "second"), again(3, 2, "other words"))
        disk.refuse.clear()
        await platform.exchange(bot, message(4, "/retry m3"))
    assert platform.outcomes["m3"] == "failed"
    assert words(conversation(tmp_path)) == ["hello", "one", *["other words"] * (1 + went_back), "other"]


class Dies:
    """An `Offload` whose n-th call, counted once it is ``armed``, never ends, and with *all* no later one either."""

    def __init__(self, calls: int, *, all: bool) -> None:
        self.left, self.all, self.armed = calls, all, False
        self.dead, self.buried = anyio.Event(), anyio.Event()

    async def __call__(self, function, *args):
        self.left -= self.armed
        if self.left == -1 or (self.left < 0 and (self.all or self.buried.is_set())):
            self.dead.set()
            with anyio.CancelScope(shield=True):
                await self.buried.wait()
            raise OSError("dead")
        return await inline(function, *args)


@pytest.mark.parametrize("all", [True, False], ids=["at once", "after what else it did"])
@pytest.mark.parametrize("steps", [[], [calls("list_files")]], ids=["in one step", "with a tool"])
async def test_a_death_at_any_moment_leaves_one_version_whole_and_comes_to_the_other(tmp_path, steps, all):
    """The process dies before each of its calls to the disk, until one comes to its end."""
    old, new = ["first", "one", "second", "two", "third", "three"], ["first", "one", "in short"]
    found = set[int]()
    for number in range(100):
        data, platform, dies = tmp_path / str(number), Platform(), Dies(number, all=all)
        model = Scripted(says("one"), says("two"), says("three"), *steps, says("other"))
        async with running(data, platform, model, offload=dies) as bot:
            await platform.exchange(bot, message(1, "first"), message(2, "second"), message(3, "third"))
            dies.armed = True
            async with background_tasks() as tasks:
                tasks.start_soon(bot.orchestrator.receive, again(4, 2, "in short"))
                with anyio.move_on_after(60):
                    await dies.dead.wait()
                    await anyio.sleep(0 if all else 1)
            dies.buried.set()
        left = words(conversation(data))
        found.add(len(left))
        assert left in (old, new, [*new, "other"]), number
        second = Scripted(*(steps if left == old else []), says("other"))
        async with running(data, platform, second) as bot:
            await bot.orchestrator.receive(again(4, 2, "in short"))
            await platform.settled("m4")
        assert words(conversation(data)) == [*new, "other"], number
        assert [post.reply_to for post in platform.posts].count("m4") == 1, number
        if not dies.dead.is_set():
            break
    assert found == {len(old), *([len(new)] if steps else []), len(new) + 1}
    [replaced] = [one.replaces for one in logged(data) if one.message_id == "m4" and one.kind == "message"]
    assert replaced == "m2"
