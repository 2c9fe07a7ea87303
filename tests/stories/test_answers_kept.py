"""Nothing is lost between two hands: an answer that a killed process left, a message whose delete was cut off."""

from __future__ import annotations

import errno
from contextlib import suppress

import anyio
import anyio.lowlevel
import pytest

from tests.sim.loop import virtual_time
from tests.world import T1, FaultyDisk, Gate, Platform, Scripted, calls, message, running, says
from threads import wording
from threads.background import background_tasks
from threads.errors import StoreUnavailable, TransportUnavailable
from threads.model import Deleted, Edited, Message, Outgoing, ThreadId, TurnLimits, Waiting

anyio_backend = virtual_time


class SlowToRefuse(Platform):
    """Notices hang until the process is dead: what was to be refused is then pending."""

    alive = True

    async def post(self, outgoing: Outgoing) -> str:
        if outgoing.kind == "notice" and self.alive:
            await anyio.sleep_forever()
        return await super().post(outgoing)


@pytest.mark.parametrize(
    "fourth",
    [
        pytest.param([says("four")], id="served before it"),
        pytest.param([calls("list_files"), says("four")], id="served before it, with tools"),
    ],
)
async def test_an_older_message_does_not_swallow_an_answer_that_was_never_posted(tmp_path, fourth):
    gate, disk, platform = Gate(says("one")), FaultyDisk(), SlowToRefuse()

    async def five() -> Message:
        disk.fill_journal()
        return says("five")

    model = Scripted(gate, says("two"), five)
    async with running(tmp_path, platform, model, limits=TurnLimits(mailbox=1), disk=disk) as bot:
        await gate.hold(bot, message(1))
        for n in (2, 3, 4):  # one waits, one is being refused, one shares the next refusal
            await bot.orchestrator.receive(message(n))
        gate.open.set()
        await platform.settled("m1", "m2")
        await bot.orchestrator.receive(message(5))
        await platform.until(lambda: any(m == "m5" and isinstance(e, Waiting) for m, e in platform.events))
    platform.alive = False
    again = Scripted(*fourth)
    async with running(tmp_path, platform, again) as bot:
        await platform.settled("m3", "m4", "m5")
    assert (platform.outcomes["m4"], platform.outcomes["m5"]) == ("answered", "answered")
    posts = {post.reply_to: post.text for post in platform.posts}
    assert posts["m4"].endswith("four")
    assert posts["m5"].endswith("five"), "the answer that was there, not asked for again"
    assert len(again.requests) == len(fourth)


class NoSearch(Platform):
    """A platform that does not say what was posted."""

    async def find(self, thread: ThreadId, key: str) -> str | None:
        raise TransportUnavailable("no search")


async def test_an_answer_that_cannot_have_been_posted_is_not_marked_as_a_repeat(tmp_path):
    """The disk refuses the start of the turn, which begins again with its message in the conversation."""
    disk, platform = FaultyDisk(), NoSearch()
    model = Scripted(calls("list_files"), says("one"))
    async with running(tmp_path, platform, model, disk=disk) as bot:
        await bot.orchestrator.receive(message(1))
        disk.fill_journal()
        await platform.until(lambda: any(isinstance(event, Waiting) for _, event in platform.events))
        disk.refuse.clear()
        await platform.settled("m1")
    assert platform.texts == ["one"]


async def stop_before_the_conversation_is_saved(data, platform, disk):
    """Leave an answer in the journal alone: the disk refuses the conversation, and the process ends."""

    async def one() -> Message:
        disk.refuse["create context.jsonl.tmp"] = OSError(errno.EIO, "broken")
        return says("one")

    async with running(data, platform, Scripted(one), disk=disk) as bot:
        await bot.orchestrator.receive(message(1))
        await platform.until(lambda: any(isinstance(e, Waiting) for _, e in platform.events))
        await anyio.wait_all_tasks_blocked()  # the answer is in the journal
    assert platform.texts == [], "the post waits for the conversation"


@pytest.mark.parametrize(("disk_recovers", "note"), [(True, ""), (False, f"{wording.NOT_SAVED}\n\n")])
async def test_an_answer_that_only_the_journal_holds_is_in_the_conversation_after_a_restart(
    tmp_path, platform, disk_recovers, note
):
    disk = FaultyDisk()
    await stop_before_the_conversation_is_saved(tmp_path, platform, disk)
    if disk_recovers:
        disk.refuse.clear()
    model = Scripted(says("two"))
    async with running(tmp_path, platform, model, disk=disk) as bot:
        await platform.settled("m1")
        disk.refuse.clear()
        await platform.exchange(bot, message(2))
    assert platform.texts == [f"{note}one", "two"]
    assert [m.text for m in model.requests[0].messages if m.role == "assistant"] == ["one"]


async def test_an_edit_counts_of_a_message_that_a_turn_took_in_and_could_not_settle_in_time(tmp_path):
    gate, disk, platform = Gate(calls("list_files", path=".")), FaultyDisk(), Platform()
    model = Scripted(gate, says("two"))
    async with running(tmp_path, platform, model, disk=disk, limits=TurnLimits(turn_timeout_s=60)) as bot:
        await gate.hold(bot, message(1))
        await bot.orchestrator.receive(message(2, "before"))
        disk.fill_journal()
        gate.open.set()
        await anyio.sleep(70)
        disk.refuse.clear()
        await bot.orchestrator.receive(Edited("m2", T1, "after"))
        await platform.settled("m1", "m2")
    assert platform.outcomes == {"m1": "failed", "m2": "answered"}
    assert model.requests[1].messages[-1].text.endswith("after")


async def test_a_message_that_cannot_be_saved_with_the_running_turn_is_answered_on_its_own(tmp_path):
    gate, disk, platform = Gate(calls("list_files", path=".")), FaultyDisk(), Platform()

    async def second() -> Message:
        disk.refuse.clear()
        return says("one")

    model = Scripted(gate, second, says("two"))
    async with running(tmp_path, platform, model, disk=disk) as bot:
        await gate.hold(bot, message(1))
        await bot.orchestrator.receive(message(2))
        disk.refuse["create context.jsonl.tmp"] = OSError(errno.EIO, "broken")
        gate.open.set()
        await platform.settled("m1", "m2")
    assert (platform.outcomes["m1"], platform.outcomes["m2"]) == ("answered", "answered")
    assert [post.text.endswith(word) for post, word in zip(platform.posts, ("one", "two"), strict=True)] == [
        True,
        True,
    ]
    assert [m.source for m in model.requests[1].messages if m.role == "user"].count("m2") == 0


async def test_a_message_that_is_deleted_while_it_joins_a_turn_in_vain_is_not_answered(tmp_path):
    gate, disk, platform = Gate(calls("list_files", path=".")), FaultyDisk(), Platform()

    async def second() -> Message:
        disk.refuse.clear()
        return says("one")

    async with running(tmp_path, platform, Scripted(gate, second), disk=disk) as bot:
        await gate.hold(bot, message(1))
        await bot.orchestrator.receive(message(2))
        disk.refuse["create context.jsonl.tmp"] = OSError(errno.EIO, "broken")
        gate.open.set()
        # The tool's two checkpoints wait three times each; then the one that would make it join waits.
        await platform.until(lambda: sum(isinstance(e, Waiting) for _, e in platform.events) == 7)
        await bot.orchestrator.receive(Deleted("m2", T1))
        await platform.settled("m1", "m2")
    assert platform.outcomes["m2"] == "withdrawn"
    assert [post.reply_to for post in platform.posts] == ["m1"]


@pytest.mark.parametrize("steps", range(12))
async def test_a_message_whose_delete_is_cut_off_while_the_disk_refuses_is_not_lost(tmp_path, steps):
    gate, disk, platform = Gate(says("one")), FaultyDisk(), Platform()
    async with running(tmp_path, platform, Scripted(gate), disk=disk) as bot:
        await gate.hold(bot, message(1))
        await bot.orchestrator.receive(message(2))
        disk.refuse["write journal.jsonl"] = OSError(errno.EIO, "broken")

        async def delete() -> None:
            with suppress(StoreUnavailable):
                await bot.orchestrator.receive(Deleted("m2", T1))

        async with background_tasks() as tasks:
            tasks.start_soon(delete)
            for _ in range(steps):
                await anyio.lowlevel.checkpoint()
        disk.refuse.clear()
        gate.open.set()
        await platform.settled("m1", "m2")
