"""Stops, deletes and fresh starts while an actor waits for the disk or a slot, in virtual time."""

from __future__ import annotations

import json
from contextlib import suppress

import anyio
import anyio.lowlevel
import pytest

from tests.sim.loop import virtual_time
from tests.world import (
    T1,
    T2,
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
from threads.errors import Fenced, StoreUnavailable
from threads.model import Deleted, StopRequest, TurnLimits

anyio_backend = virtual_time


class Held:
    """An `Offload` that holds calls of the function of this name, once it is `armed`, until ``go``."""

    def __init__(self, name: str) -> None:
        self.armed, self.began, self.go = False, anyio.Event(), anyio.Event()
        self._name = name

    async def __call__(self, function, *args):
        await anyio.lowlevel.checkpoint()
        if self.armed and function.__name__ == self._name:
            self.began.set()
            with anyio.CancelScope(shield=True):
                await self.go.wait()
        return function(*args)


@pytest.mark.parametrize("step", [says("an answer"), calls("list_files"), RuntimeError("a failure")])
async def test_a_stop_counts_for_a_turn_whose_outcome_waits_for_the_disk(tmp_path, step):
    disk, platform, model = FaultyDisk(), Platform(), Scripted(says("one"), step)
    async with running(tmp_path, platform, model, disk=disk) as bot:
        await platform.exchange(bot, message(1))
        await bot.orchestrator.receive(message(2))
        disk.fill_journal()
        await anyio.sleep(3)
        assert "m2" not in platform.outcomes
        disk.refuse.clear()
        await bot.orchestrator.receive(message(3, "/stop"))
        await platform.settled("m2", "m3")
        await anyio.sleep(60)
    assert platform.outcomes["m2"] == "stopped"
    assert platform.texts == ["one", "Stopped."]
    assert len(model.requests) == 2, "the model is not asked again for a turn that was stopped"


async def test_a_stop_does_not_wait_for_the_start_of_a_turn_that_has_failed(tmp_path):
    disk, platform, model = Held("_write"), Platform(), Scripted(says("one"), RuntimeError("a failure"))
    async with running(tmp_path, platform, model, journal_offload=disk) as bot:
        await platform.exchange(bot, message(1))
        await bot.orchestrator.receive(message(2))
        disk.armed = True
        await disk.began.wait()
        await anyio.wait_all_tasks_blocked()
        assert len(model.requests) == 2
        before = anyio.current_time()
        assert await bot.registry.stop_here(StopRequest("m3", T1, 1_000)) == (1, 0)
        assert anyio.current_time() == before
        disk.go.set()
        await platform.settled("m2")
    assert platform.outcomes["m2"] == "stopped"
    assert platform.texts == ["one"]


async def test_a_message_that_waits_for_a_slot_is_withdrawn_and_the_next_one_is_served(tmp_path):
    platform, gate = Platform(), Gate(says("one"))
    model = Scripted(gate, says("three"))
    async with running(tmp_path, platform, model, limits=TurnLimits(running_turns=1)) as bot:
        await gate.hold(bot, message(1, thread=T2))
        await bot.orchestrator.receive(message(2, "two"))
        await bot.orchestrator.receive(message(3, "three!"))
        await bot.orchestrator.receive(Deleted("m2", T1))
        assert platform.outcomes == {"m2": "withdrawn"}
        gate.open.set()
        await platform.settled("m1", "m3")
    assert platform.texts == ["one", "three"]
    assert [said.text[-6:] for said in model.requests[-1].messages] == ["three!"]


@pytest.mark.parametrize("steps", range(12))
async def test_a_delete_in_the_instant_in_which_the_turn_begins_counts_wholly_or_not_at_all(tmp_path, steps):
    platform, gate = Platform(), Gate(says("one"))
    model = Scripted(gate, says("two"))
    async with running(tmp_path, platform, model, limits=TurnLimits(running_turns=1)) as bot:
        await gate.hold(bot, message(1, thread=T2))
        await bot.orchestrator.receive(message(2))
        gate.open.set()
        for _ in range(steps):
            await anyio.lowlevel.checkpoint()
        with suppress(StoreUnavailable):  # its outcome is being written: not acknowledged, it comes again
            await bot.orchestrator.receive(Deleted("m2", T1))
        await platform.settled("m1", "m2")
    withdrawn = platform.outcomes["m2"] == "withdrawn"
    assert platform.texts == (["one"] if withdrawn else ["one", "two"])
    kinds = kinds_of(tmp_path, "m2")
    assert kinds[-1] == "settled" and ("intent" in kinds) != withdrawn


async def test_a_delete_that_the_disk_refuses_leaves_the_message_waiting_for_its_slot(tmp_path):
    disk, platform, gate = FaultyDisk(), Platform(), Gate(says("one"))
    model, limits = Scripted(gate, says("two")), TurnLimits(running_turns=1)
    async with running(tmp_path, platform, model, disk=disk, limits=limits) as bot:
        await gate.hold(bot, message(1, thread=T2))
        await bot.orchestrator.receive(message(2))
        disk.fill_journal()
        with pytest.raises(StoreUnavailable):
            await bot.orchestrator.receive(Deleted("m2", T1))
        disk.refuse.clear()
        gate.open.set()
        await platform.settled("m1", "m2")
    assert platform.texts == ["one", "two"]


def kinds_of(folder, message_id):
    records = [json.loads(line) for line in (folder / "journal.jsonl").read_bytes().splitlines()]
    return [record["kind"] for record in records if record["message_id"] == message_id]


async def test_a_delete_ends_the_turn_and_the_next_one_knows_nothing_of_it(tmp_path):
    platform, gate = Platform(), Gate(says("never"))
    model = Scripted(calls("list_files"), gate, says("two"))
    async with running(tmp_path, platform, model) as bot:
        await gate.hold(bot, message(1, "secret plans"))
        before = anyio.current_time()
        await bot.orchestrator.receive(Deleted("m1", T1))
        assert anyio.current_time() - before < 2
        assert platform.outcomes == {"m1": "withdrawn"}
        assert kinds_of(tmp_path, "m1")[-1] == "settled", "it is durable before the platform is told so"
        await bot.orchestrator.receive(Deleted("m1", T1))
        await platform.exchange(bot, message(2, "hello"))
    assert platform.texts == ["two"]
    assert [one.text[-5:] for one in model.requests[-1].messages] == ["hello"]
    assert b"secret plans" not in b"".join(path.read_bytes() for path in tmp_path.rglob("context.jsonl"))


async def test_a_delete_after_a_kill_ends_the_turn_that_goes_on(tmp_path):
    for outcome in (None, "withdrawn"):
        platform, gate = Platform(), Gate(says("never"))
        async with running(tmp_path, platform, Scripted(gate)) as bot:
            if outcome is None:
                await gate.hold(bot, message())
            else:
                await gate.began.wait()
                await bot.orchestrator.receive(Deleted("m1", T1))
            assert platform.outcomes.get("m1") == outcome
    assert platform.texts == []
    assert kinds_of(tmp_path, "m1").count("settled") == 1


async def test_a_turn_that_another_message_joined_outlives_the_delete_of_either(tmp_path):
    platform, gate, answer = Platform(), Gate(calls("list_files")), Gate(says("both"))
    async with running(tmp_path, platform, Scripted(gate, answer)) as bot:
        await gate.hold(bot, message())
        await bot.orchestrator.receive(message(2, "and that"))
        gate.open.set()
        await platform.settled("m2")
        await answer.began.wait()
        for deleted in ("m1", "m2"):
            await bot.orchestrator.receive(Deleted(deleted, T1))
        answer.open.set()
        await platform.settled("m1")
    assert platform.outcomes == {"m1": "answered", "m2": "merged"}
    assert platform.texts == ["both"]


async def test_a_delete_comes_too_late_for_an_answer_that_is_on_its_way(tmp_path):
    platform, post = Platform(), anyio.Event()

    async def slow(outgoing, post_it=platform.post):
        await post.wait()
        return await post_it(outgoing)

    platform.post = slow
    async with running(tmp_path, platform, Scripted(says("one"))) as bot:
        await bot.orchestrator.receive(message())
        while "intent" not in kinds_of(tmp_path, "m1"):
            await anyio.lowlevel.checkpoint()
        await bot.orchestrator.receive(Deleted("m1", T1))
        post.set()
        await platform.settled("m1")
    assert (platform.outcomes, platform.texts) == ({"m1": "answered"}, ["one"])


async def test_a_delete_that_the_disk_refuses_is_not_acknowledged_and_the_message_is_answered(tmp_path):
    disk, platform, gate = FaultyDisk(), Platform(), Gate(says("never"))
    async with running(tmp_path, platform, Scripted(gate, says("one")), disk=disk) as bot:
        await gate.hold(bot, message())
        disk.fill_journal()
        with pytest.raises(StoreUnavailable):
            await bot.orchestrator.receive(Deleted("m1", T1))
        disk.refuse.clear()
        await platform.settled("m1")
    assert platform.outcomes == {"m1": "answered"}
    assert platform.texts[-1].endswith("one")


async def test_a_full_disk_does_not_make_the_journal_longer_with_each_try(tmp_path):
    disk, platform, model = FaultyDisk(), Platform(), Scripted(says("one"), calls("list_files"))
    async with running(tmp_path, platform, model, disk=disk) as bot:
        await platform.exchange(bot, message(1))
        await bot.orchestrator.receive(message(2))
        disk.fill_journal()
        await anyio.sleep(3600)
        disk.refuse.clear()
        await platform.settled("m2")
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "journal.jsonl").read_bytes().splitlines()]
    assert kinds.count("started") <= 3


async def test_a_fresh_start_stays_fresh_beside_what_a_stopped_turn_still_saves(tmp_path):
    disk, platform, gate = Held("replace_files"), Platform(), Gate(says("never"))
    model = Scripted(says("one"), gate)
    async with running(tmp_path, platform, model, offload=disk, journal_offload=inline) as bot:
        await platform.exchange(bot, message(1, "one"))
        await gate.hold(bot, message(2, "two"))
        disk.armed = True
        await bot.orchestrator.receive(message(3, "/stop"))
        await platform.settled("m2", "m3")
        await disk.began.wait()
        await bot.orchestrator.receive(message(4, "/new"))
        await anyio.wait_all_tasks_blocked()
        disk.go.set()
        await platform.settled("m4")
        await platform.exchange(bot, message(5, "five"))
    assert [said.text[-4:] for said in model.requests[-1].messages] == ["five"]


async def test_a_message_behind_a_fresh_start_of_a_quiet_thread_finds_nothing_of_before(tmp_path):
    platform = Platform()
    await converse(tmp_path, platform, Scripted(says("one")), message(1, "one"))
    disk, model = Held("_archive"), Scripted(says("two"))
    disk.armed = True
    async with running(tmp_path, platform, model, offload=disk, journal_offload=inline) as bot:
        await bot.orchestrator.receive(message(2, "/new"))
        await disk.began.wait()
        await bot.orchestrator.receive(message(3, "two!"))
        await anyio.wait_all_tasks_blocked()
        disk.go.set()
        await platform.settled("m2", "m3")
        await anyio.wait_all_tasks_blocked()
    assert [said.text[-4:] for said in model.requests[-1].messages] == ["two!"]


async def test_a_thread_that_comes_back_while_its_old_actor_ends_is_served_by_a_new_one(tmp_path):
    platform, began, end = Platform(), anyio.Event(), anyio.Event()

    async def run(turn):
        if turn.incoming.id == "m1":
            began.set()
            with anyio.CancelScope(shield=True):
                await end.wait()
            raise Fenced
        await anyio.lowlevel.checkpoint()
        return "two"

    async with running(tmp_path, platform, Scripted(), run=run) as bot:
        await bot.orchestrator.receive(message(1))
        await began.wait()
        await bot.orchestrator.receive(message(2))
        [_, pending] = bot.journal.ledger.pending.values()
        bot.registry.release(T1)
        bot.registry.tell(pending)
        end.set()
        await platform.settled("m2")
    assert platform.texts == ["two"]


async def test_what_is_said_while_something_is_done_between_turns_is_not_lost_from_the_conversation(tmp_path):
    platform, model = Platform(), Scripted(says("one"), says("two"), says("three"))
    began, go, done = anyio.Event(), anyio.Event(), list[bool]()

    async def work():
        began.set()
        await go.wait()

    async def between_turns():
        done.append(await bot.registry.between_turns(T1, work))

    async with running(tmp_path, platform, model) as bot, anyio.create_task_group() as tasks:
        await platform.exchange(bot, message(1))
        for _ in range(2):
            tasks.start_soon(between_turns)
        await began.wait()
        await bot.orchestrator.receive(message(2))
        await anyio.wait_all_tasks_blocked()
        go.set()
        await platform.settled("m2")
        await platform.exchange(bot, message(3))
    assert done == [True, False], "the second finds that a turn has begun"
    assert [said.role for said in model.requests[-1].messages] == ["user", "assistant"] * 2 + ["user"]
