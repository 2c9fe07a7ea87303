"""Whole stories in virtual time: an event in, posts out, files on disk."""

from __future__ import annotations

import asyncio
import errno
import json
from datetime import timedelta

import anyio
import pytest

from bot import wording as sentences
from bot.agent.prompt.repair import INTERRUPTED
from bot.config.settings import LlmRetry
from bot.llm.policies.retry import RetryingModel
from bot.observe.logs import fields_of
from bot.ports.errors import BadRequest, ModelUnavailable, Unauthorized
from tests.one_model import OneModel, Only
from tests.sim.loop import virtual_time
from tests.world import (
    T1,
    T2,
    Clock,
    FaultyDisk,
    Gate,
    Platform,
    Scripted,
    calls,
    converse,
    message,
    running,
    says,
)
from threads import wording
from threads.errors import StoreUnavailable, TransportRateLimited, TransportRejected
from threads.model import Author, Deleted, Edited, Resumed, TextDelta, TurnLimits, TurnSettled, Waiting
from threads.store.data_folder import thread_folder

anyio_backend = virtual_time


def context(data, thread=T1):
    lines = (thread_folder(data, thread) / "context.jsonl").read_bytes().splitlines()
    return [json.loads(line)["message"] for line in lines]


def journal(data):
    return [json.loads(line) for line in (data / "journal.jsonl").read_bytes().splitlines()]


async def test_a_message_is_answered_and_its_redeliveries_are_not(tmp_path, platform):
    async with running(tmp_path, platform, Scripted(says("hi ann"))) as bot:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bot.orchestrator.receive, message())
            tasks.start_soon(bot.orchestrator.receive, message())
        await platform.settled("m1")
        await bot.orchestrator.receive(message())
    assert platform.texts == ["hi ann"]
    assert platform.outcomes == {"m1": "answered"}
    async with running(tmp_path, platform, Scripted()) as bot:
        await bot.orchestrator.receive(message())
        await anyio.sleep(10)
    assert platform.texts == ["hi ann"]


async def test_what_was_settled_shortly_before_a_death_is_shown_again_and_nothing_older(tmp_path, platform):
    clock = Clock()
    async with running(tmp_path, platform, Scripted(says("1"), says("2"), says("3")), clock=clock) as bot:
        for n, later in enumerate((0, 130, 100), 1):
            clock.offset += timedelta(seconds=later)
            await bot.orchestrator.receive(message(n))
            await platform.settled(f"m{n}")
    platform.events.clear()
    async with running(tmp_path, platform, Scripted(), clock=clock):
        await anyio.sleep(10)
    assert platform.events == [(id_, TurnSettled("answered", again=True)) for id_ in ("m3", "m2")]


async def test_a_turn_uses_tools_and_the_model_reads_the_result(tmp_path, platform):
    workspace = thread_folder(tmp_path, T1) / "workspace"
    workspace.mkdir(parents=True)
    (workspace / "notes.txt").write_text("buy milk")
    model = Scripted(calls("read_file", path="notes.txt"), says("milk"))
    await converse(tmp_path, platform, model, message())
    result = json.loads(model.requests[1].messages[-1].results[0].content)
    assert result == {"success": True, "result": {"text": "buy milk", "size": 8}}
    assert [entry["role"] for entry in context(tmp_path)] == ["user", "assistant", "user", "assistant"]


async def test_a_failed_turn_is_told_in_a_friendly_sentence_and_the_next_message_is_served(
    tmp_path, platform
):
    async with running(tmp_path, platform, Scripted(Unauthorized("401 sk-secret /etc/x"), says("ok"))) as bot:
        await bot.orchestrator.receive(message(1))
        await bot.orchestrator.receive(message(2))
        await platform.settled("m1", "m2")
    expected = [("error", "failed"), ("reply", "answered")]
    assert [(p.kind, platform.outcomes[p.reply_to]) for p in platform.posts] == expected
    assert "sk-secret" not in platform.texts[0]
    assert platform.texts[0].startswith(sentences.FRIENDLY["auth"])


async def test_a_failure_carries_one_reference_in_thread_journal_log_and_report(tmp_path, platform, caplog):
    await converse(tmp_path, platform, Scripted(BadRequest("no")), message())
    started = next(r for r in journal(tmp_path) if r["kind"] == "started")
    reference = started["correlation_id"]
    assert platform.texts[0].endswith(f"(ref {reference})")
    record = next(r for r in caplog.records if r.message.startswith("turn.failed"))
    assert record.correlation_id == reference
    assert fields_of(record, str)["report"]["correlation_id"] == reference
    log = (thread_folder(tmp_path, T1) / "log.jsonl").read_text()
    assert reference in log.splitlines()[-1]


async def test_a_model_that_recovers_is_retried_in_sight_and_without_its_slot(tmp_path, platform):
    flaky = Scripted(ModelUnavailable("503"), says("late"), says("other"))
    limits = TurnLimits(running_turns=1)
    async with running(
        tmp_path, platform, Only(RetryingModel(flaky, LlmRetry(), lambda: 0.5)), limits=limits
    ) as bot:
        await bot.orchestrator.receive(message(1))
        await platform.until(lambda: any(isinstance(e, Waiting) for _, e in platform.events))
        await bot.orchestrator.receive(message(2, thread=T2))
        await platform.settled("m1", "m2")
    assert list(platform.outcomes) == ["m2", "m1"]
    shown = [event for who, event in platform.events if who == "m1"]
    assert Waiting("the provider has trouble", 2.0, 2, 4) in shown
    assert Resumed() in shown


async def test_stop_ends_the_turn_within_two_seconds_and_drops_what_waits(tmp_path, platform):
    gate = Gate(says("never"))
    async with running(tmp_path, platform, Scripted(gate, says("next"))) as bot:
        await gate.hold(bot, message(1))
        for n in (2, 3):
            await bot.orchestrator.receive(message(n))
        before = anyio.current_time()
        await bot.orchestrator.receive(message(4, "Stop"))
        await platform.settled("m1", "m2", "m3", "m4")
        assert anyio.current_time() - before <= 2
        await platform.exchange(bot, message(5))
    assert platform.texts == ["Stopped, and dropped 2 waiting messages.", "next"]
    assert [platform.outcomes[f"m{n}"] for n in range(1, 5)] == ["stopped"] * 3 + ["answered"]


async def test_a_stop_does_not_touch_what_was_said_after_it(tmp_path, platform):
    gate = Gate(says("never"))
    async with running(tmp_path, platform, Scripted(gate, says("after"))) as bot:
        await gate.hold(bot, message(1))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bot.orchestrator.receive, message(2, "/stop"))
            await anyio.sleep(0)
            tasks.start_soon(bot.orchestrator.receive, message(3))
        await platform.settled("m1", "m2", "m3")
    assert platform.outcomes["m3"] == "answered"
    assert "after" in platform.texts


async def test_stop_is_confirmed_even_when_the_turn_does_not_end(tmp_path, platform):
    began, end = anyio.Event(), anyio.Event()

    async def stubborn():
        with anyio.CancelScope(shield=True):
            began.set()
            await end.wait()
        return says("x")

    async with running(tmp_path, platform, Scripted(stubborn)) as bot:
        await bot.orchestrator.receive(message(1))
        await began.wait()
        before = anyio.current_time()
        await platform.exchange(bot, message(2, "/stop"))
        assert anyio.current_time() - before <= 2.1
        end.set()
        await platform.settled("m1")
    assert platform.outcomes["m1"] == "stopped"


async def test_text_that_was_shown_before_a_stop_is_kept_for_the_model_with_a_note(tmp_path):
    class Talks(OneModel):
        name = "fake/one"

        async def complete(self, request, on_event):
            self.requests = [*getattr(self, "requests", []), request]
            await on_event(TextDelta("The answer is"))
            await anyio.sleep_forever()

    platform, model = Platform(), Talks()
    async with running(tmp_path, platform, model) as bot:
        await bot.orchestrator.receive(message(1))
        await platform.until(lambda: any(isinstance(e, TextDelta) for _, e in platform.events))
        await bot.orchestrator.receive(message(2, "/stop"))
        await platform.settled("m1", "m2")
        await bot.orchestrator.receive(message(3))
        await platform.until(lambda: len(model.requests) == 2)
        assert [m.text for m in model.requests[1].messages][1] == f"The answer is\n\n{wording.INTERRUPTED}"


async def test_messages_that_come_while_tools_run_join_the_turn(tmp_path, platform):
    model = Scripted(calls("list_files"), says("both"))
    gate = Gate(calls("list_files"))
    model.script[0] = gate
    async with running(tmp_path, platform, model) as bot:
        await gate.hold(bot, message(1, "one"))
        await bot.orchestrator.receive(message(2, "two"))
        gate.open.set()
        await platform.settled("m1", "m2")
    assert platform.outcomes == {"m2": "merged", "m1": "answered"}
    assert platform.texts == ["both"]
    assert [m.source for m in model.requests[1].messages] == ["m1", "", "", "m2"]
    settled = next(r for r in journal(tmp_path) if r["kind"] == "settled" and r["message_id"] == "m2")
    assert settled["by"] == "m1"


async def test_a_thread_that_queues_gives_each_message_its_own_turn(tmp_path, platform):
    gate = Gate(calls("list_files"))
    model = Scripted(gate, says("one"), says("two"))
    async with running(tmp_path, platform, model, limits=TurnLimits(busy="queue")) as bot:
        await gate.hold(bot, message(1))
        await bot.orchestrator.receive(message(2))
        gate.open.set()
        await platform.settled("m1", "m2")
    assert platform.texts == ["one", "two"]


async def test_a_full_mailbox_refuses_politely_and_many_refusals_share_a_post(tmp_path, platform):
    gate = Gate(says("done"))
    async with running(tmp_path, platform, Scripted(gate), limits=TurnLimits(mailbox=2)) as bot:
        await gate.hold(bot, message(1))
        async with anyio.create_task_group() as tasks:
            for n in range(2, 103):
                tasks.start_soon(bot.orchestrator.receive, message(n))
        await platform.until(lambda: list(platform.outcomes.values()).count("refused") == 99)
        assert len(platform.posts) < 10
        gate.open.set()
        await platform.until(lambda: len(platform.outcomes) == 102)
    told = sum(
        int(t.split("last ")[1].split()[0]) if "last " in t else 1 for t in platform.texts if "not take" in t
    )
    assert told == 99


async def test_an_edit_before_the_turn_counts_and_a_later_one_does_not(tmp_path, platform):
    gate = Gate(says("one"))
    model = Scripted(gate, says("two"))
    async with running(tmp_path, platform, model) as bot:
        await gate.hold(bot, message(1, "first"))
        await bot.orchestrator.receive(message(2, "sceond"))
        await bot.orchestrator.receive(Edited("m2", T1, "second"))
        await bot.orchestrator.receive(Edited("m1", T1, "changed"))
        gate.open.set()
        await platform.settled("m1", "m2")
    assert [m.blocks[-1].text for m in model.requests[1].messages] == ["first", "one", "second"]


async def test_a_deleted_waiting_message_is_withdrawn(tmp_path, platform):
    gate = Gate(says("one"))
    async with running(tmp_path, platform, Scripted(gate)) as bot:
        await gate.hold(bot, message(1))
        await bot.orchestrator.receive(message(2))
        await bot.orchestrator.receive(Deleted("m2", T1))
        await platform.settled("m2")
        gate.open.set()
        await platform.settled("m1")
    assert platform.outcomes == {"m2": "withdrawn", "m1": "answered"}
    assert platform.texts == ["one"]


async def test_a_delete_that_finds_the_threads_gone_because_the_bot_stops_is_not_acknowledged(
    tmp_path, platform
):
    async with running(tmp_path, platform, Scripted()) as bot:
        with anyio.CancelScope() as stopping:
            asyncio.get_running_loop().call_soon(stopping.cancel)
            await bot.orchestrator.receive(Deleted("m1", T1))
    assert stopping.cancelled_caught


async def test_a_message_that_cannot_be_saved_is_not_acknowledged_and_its_redelivery_is_taken(tmp_path):
    disk, platform = FaultyDisk(), Platform()
    async with running(tmp_path, platform, Scripted(), disk=disk) as bot:
        full = OSError(errno.ENOSPC, "No space left on device")
        disk.refuse = {"write": full, "create": full}
        with pytest.raises(StoreUnavailable):
            await bot.orchestrator.receive(message())
        disk.refuse = {}
        await platform.exchange(bot, message())
    assert platform.texts == ["ok"]


async def test_a_context_that_cannot_be_saved_costs_a_note_but_not_the_answer(tmp_path):
    disk, platform = FaultyDisk(), Platform()
    async with running(tmp_path, platform, Scripted(says("one"), says("two")), disk=disk) as bot:
        disk.refuse = {"create context.jsonl.tmp": OSError(errno.EIO, "I/O error")}
        await platform.exchange(bot, message(1))
        disk.refuse = {}
        await platform.exchange(bot, message(2))
    assert platform.texts == [f"{wording.NOT_SAVED}\n\none", "two"]
    assert [m["blocks"][-1]["text"] for m in context(tmp_path)] == ["hello", "one", "hello", "two"]
    waits = [e.seconds for _, e in platform.events if isinstance(e, Waiting)]
    assert waits == [2, 4, 6]


async def test_an_answer_is_kept_and_paid_once_while_the_journal_refuses(tmp_path):
    disk, platform = FaultyDisk(), Platform()
    gate = Gate(says("paid"))
    model = Scripted(gate)
    async with running(tmp_path, platform, model, disk=disk) as bot:
        await gate.hold(bot, message())
        disk.fill_journal()
        gate.open.set()
        await platform.until(lambda: sum(isinstance(e, Waiting) for _, e in platform.events) == 4)
        assert platform.texts == []
        disk.refuse = {}
        await platform.settled("m1")
    assert platform.texts == ["paid"]
    assert len(model.requests) == 1


async def test_an_interrupted_turn_is_picked_up_with_a_visible_word_and_without_paying_again(
    tmp_path, platform
):
    gate = Gate(None)
    async with running(tmp_path, platform, Scripted(calls("list_files"), gate)) as bot:
        await gate.hold(bot, message())
    model = Scripted(says("two"))
    async with running(tmp_path, platform, model):
        await platform.settled("m1")
    assert platform.texts == [f"{wording.RESUMED}\n\ntwo"]
    assert [m.role for m in model.requests[0].messages] == ["user", "assistant", "user"]


async def test_a_crash_between_call_and_result_closes_the_call_as_interrupted(tmp_path):
    disk, platform = FaultyDisk(), Platform()
    gate = Gate(None)
    async with running(tmp_path, platform, Scripted(calls("list_files"), gate), disk=disk) as bot:
        await gate.hold(bot, message())
    path = thread_folder(tmp_path, T1) / "context.jsonl"
    path.write_bytes(b"".join(line + b"\n" for line in path.read_bytes().splitlines()[:2]))
    model = Scripted(says("fine"))
    async with running(tmp_path, platform, model):
        await platform.settled("m1")
    assert model.requests[0].messages[-1].results[0].content == INTERRUPTED


async def test_an_answer_on_disk_is_posted_after_a_restart_and_looked_up_first(tmp_path):
    for find, stored, expected in (
        (True, True, ["ans"]),
        (True, False, ["ans"]),
        (False, True, ["ans", f"ans\n\n{wording.MAYBE_REPEAT}"]),
    ):
        data = tmp_path / f"{find}{stored}"
        platform, dying = Platform(find=find), anyio.Event()

        async def die(outgoing, platform=platform, dying=dying, stored=stored):
            if stored:
                platform.posts.append(outgoing)
            dying.set()
            await anyio.sleep_forever()

        post, platform.post = platform.post, die
        model = Scripted(says("ans"))
        async with running(data, platform, model) as bot:
            await bot.orchestrator.receive(message())
            await dying.wait()
        platform.post = post
        async with running(data, platform, model):
            await platform.settled("m1")
        assert platform.texts == expected
        assert len(model.requests) == 1


async def test_a_message_that_was_started_three_times_is_a_dead_letter_with_a_notice(tmp_path, platform):
    for attempt in range(3):
        gate = Gate(None)
        async with running(tmp_path, platform, Scripted(gate)) as bot:
            if not attempt:
                await bot.orchestrator.receive(message())
            await gate.began.wait()
    async with running(tmp_path, platform, Scripted(says("next"))) as bot:
        await platform.settled("m1")
        await platform.exchange(bot, message(2))
    assert platform.outcomes == {"m1": "dead_letter", "m2": "answered"}
    assert "3 times" in platform.texts[0]


async def test_messages_that_waited_too_long_get_one_honest_note(tmp_path):
    platform, clock = Platform(), Clock()
    gate = Gate(None)
    async with running(tmp_path, platform, Scripted(gate), clock=clock) as bot:
        for n in (1, 2, 3):
            await bot.orchestrator.receive(message(n))
        await gate.began.wait()
    clock.offset = timedelta(seconds=1600)
    async with running(tmp_path, platform, Scripted(), clock=clock):
        await platform.settled("m1", "m2", "m3")
    assert sorted(platform.texts) == sorted([sentences.cut_off(1), sentences.stale(2)])
    assert set(platform.outcomes.values()) == {"failed"}


async def test_new_input_waits_behind_the_recovery_of_its_thread(tmp_path, platform):
    gate = Gate(None)
    async with running(tmp_path, platform, Scripted(gate)) as bot:
        await bot.orchestrator.receive(message(1))
        await gate.hold(bot, message(2))
    async with running(tmp_path, platform, Scripted(says("1"), says("2"), says("3"))) as bot:
        await bot.orchestrator.receive(message(3))
        await platform.settled("m1", "m2", "m3")
    assert [post.reply_to for post in platform.posts] == ["m1", "m2", "m3"]


async def test_a_stop_that_was_received_before_a_crash_is_carried_out_after_it(tmp_path):
    disk, platform = FaultyDisk(), Platform()
    gate = Gate(None)
    async with running(tmp_path, platform, Scripted(gate), disk=disk) as bot:
        await gate.hold(bot, message(1))
        await bot.orchestrator.receive(message(2, "/stop"))
    async with running(tmp_path, platform, Scripted(says("no"))):
        await platform.settled("m1", "m2")
    assert platform.outcomes == {"m1": "stopped", "m2": "answered"}


async def test_a_quiet_thread_leaves_memory_and_comes_back_with_its_history(tmp_path, platform):
    model = Scripted(says("one"), says("two"))
    async with running(tmp_path, platform, model, limits=TurnLimits(idle_timeout_s=60)) as bot:
        await platform.exchange(bot, message(1))
        assert len(bot.registry) == 1
        await anyio.sleep(61)
        assert len(bot.registry) == 0
        await platform.exchange(bot, message(2))
    assert [m.text for m in model.requests[1].messages][1] == "one"


async def test_a_rate_limited_post_waits_as_told_and_a_rejected_one_is_mentioned_with_the_next(
    tmp_path, platform
):
    platform.faults.extend([TransportRateLimited(retry_after=20), None, TransportRejected("gone")])
    async with running(tmp_path, platform, Scripted(says("one"), says("two"), says("three"))) as bot:
        before = anyio.current_time()
        await platform.exchange(bot, message(1))
        assert anyio.current_time() - before >= 20
        for n in (2, 3, 4):
            await bot.orchestrator.receive(message(n))
            await platform.settled(f"m{n}")
    assert platform.outcomes["m2"] == "undelivered"
    assert platform.texts == ["one", f"{wording.undelivered(1)}\n\nthree", "ok"]


async def test_a_bug_in_a_transport_is_a_failed_post_and_the_thread_goes_on(tmp_path):
    platform = Platform(find=False)
    platform.faults.append(ZeroDivisionError("in the transport"))
    await converse(tmp_path, platform, Scripted(says("one")), message(1))
    assert platform.texts == [f"one\n\n{wording.MAYBE_REPEAT}"]


async def test_one_persons_turns_do_not_take_every_slot(tmp_path, platform):
    gates = [Gate(says("slow")) for _ in range(4)]
    model = Scripted(*gates, says("bob"))
    threads = [type(T1)("fake", "W", f"C{n}", "1") for n in range(6)]
    async with running(tmp_path, platform, model, limits=TurnLimits(running_turns=5)) as bot:
        for n in range(5):
            await bot.orchestrator.receive(message(n, thread=threads[n]))
        for gate in gates:
            await gate.began.wait()
        await platform.exchange(bot, message(9, thread=threads[5], author=Author("U2", "bob")))
        assert list(platform.outcomes) == ["m9"]
        for gate in gates:
            gate.open.set()
        await platform.until(lambda: len(platform.outcomes) == 6)


async def test_a_turn_that_takes_too_long_is_ended_with_a_word(tmp_path, platform):
    async with running(tmp_path, platform, Scripted(anyio.sleep_forever, says("next"))) as bot:
        await bot.orchestrator.receive(message(1))
        await bot.orchestrator.receive(message(2))
        await platform.settled("m1", "m2")
    assert platform.texts[0].startswith(wording.FRIENDLY["turn_timeout"])


async def test_commands_go_around_a_running_turn(tmp_path, platform):
    gate = Gate(says("done"))
    async with running(tmp_path, platform, Scripted(gate)) as bot:
        await gate.hold(bot, message(1))
        for n, text in enumerate(["/status", "/new", "/halp", "!help"], 2):
            await bot.orchestrator.receive(message(n, text))
            await platform.settled(f"m{n}")
        gate.open.set()
        await platform.settled("m1")
        await platform.exchange(bot, message(9, "/new"))
    assert "Working on a message; 0 waiting" in platform.texts[0]
    assert "Say /stop first" in platform.texts[1]
    assert "Did you mean /help?" in platform.texts[2]
    assert context(tmp_path) == []
    assert (thread_folder(tmp_path, T1) / "context.old.jsonl").read_bytes()


async def test_odd_text_is_stored_and_answered(tmp_path, platform):
    texts = ["", "x" * 1_000_000, "half \ud83d emoji", "line\u2028sep\x85arator", "nul \0 bell \a", "\r\n\n"]
    async with running(tmp_path, platform, Scripted(says("half \udc00 too"))) as bot:
        for n, text in enumerate(texts):
            await bot.orchestrator.receive(message(n, text))
            await platform.settled(f"m{n}")
    assert set(platform.outcomes.values()) == {"answered"}
    stored = [m["blocks"][-1]["text"] for m in context(tmp_path) if m["role"] == "user"]
    assert stored == ["(an empty message)", texts[1], "half ? emoji", *texts[3:5], "(an empty message)"]
