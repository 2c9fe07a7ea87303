"""The seam: who belongs to whom, and how each piece of work ended."""

import anyio
import pytest

from bot.observe.turn_events import Observing, turn_ids
from tests.bot.observe.watching import RecordingSink, busy, says, wants, watched
from tests.world import Gate, Platform, Scripted, message, running
from tests.world import says as answer
from threads.model import TurnLimits

READ = ("read_file", {"path": "none.txt"})
LIST = ("list_files", {"path": "."})


async def test_a_turn_has_its_steps_and_each_step_its_calls_and_tools(tmp_path):
    seen = RecordingSink()
    async with watched(tmp_path, [wants(LIST, READ), says()], seen) as seat:
        await seat.say("look")
    (turn,) = seen.of("turn")
    first, second = seen.of("step")
    assert [first.parent, second.parent] == [turn, turn]
    assert [call.parent for call in seen.of("model_call")] == [first, second]
    assert [tool.parent for tool in seen.of("tool")] == [first, first]
    expected = {"list_files": "ok", "read_file": "tool_not_found"}
    assert {tool.name: tool.outcome for tool in seen.of("tool")} == expected
    assert turn.steps == 2 and turn.outcome == "ok"
    assert seen.outcomes == [("fake", "answered", pytest.approx(0, abs=10))]


async def test_a_call_is_told_with_what_its_account_was_charged(tmp_path):
    seen = RecordingSink()
    async with watched(tmp_path, [says()], seen) as seat:
        await seat.say("hello")
    (call,) = seen.of("model_call")
    assert (call.name, call.outcome, call.stop) == ("one/m", "ok", "end")
    assert (call.usage.prompt, call.usage.output) == (18, 7)
    assert call.cost_usd == pytest.approx((18 + 7 * 10) / 1_000_000, rel=0.1)
    assert 0 < call.first_content_s <= call.seconds


async def test_a_retry_is_a_second_call_of_the_same_step(tmp_path):
    seen = RecordingSink()
    async with watched(tmp_path, [busy(), says()], seen) as seat:
        await seat.say("hello")
    assert [(call.outcome, call.attempt) for call in seen.of("model_call")] == [("unavailable", 1), ("ok", 2)]
    assert len(seen.of("step")) == 1


async def test_a_failover_is_a_step_that_another_model_took_over(tmp_path):
    seen = RecordingSink()
    broken = lambda _: busy()  # noqa: E731
    async with watched(tmp_path, broken, seen, fallback=lambda _: says()) as seat:
        await seat.say("hello")
    (step,) = seen.of("step")
    assert (step.switched_from, step.name) == ("one/m", "two/m")
    assert [call.name for call in seen.of("model_call")][-1] == "two/m"
    assert seen.of("model_call")[-1].attempt == 1


async def test_a_call_that_was_denied_is_told_and_took_no_time(tmp_path):
    seen = RecordingSink()
    tools = {"enabled": ["files"], "policy": {"list_files": "deny"}}
    async with watched(tmp_path, [wants(LIST), says()], seen, tools=tools) as seat:
        await seat.say("look")
    (tool,) = seen.of("tool")
    assert tool.outcome == "tool_denied" and tool.seconds < 0.1


async def test_a_turn_that_is_stopped_ends_all_that_it_had_begun(tmp_path):
    seen, gate = RecordingSink(), Gate(answer("never"))
    async with running(tmp_path, platform := Platform(), Scripted(gate), observing=Observing(seen)) as core:
        await gate.hold(core, message(1))
        await core.orchestrator.receive(message(2, "/stop"))
        await platform.settled("m1", "m2")
    (turn,) = seen.of("turn")
    assert turn.outcome == "turn_stopped"
    assert len(seen.ends) == seen.begun
    expected = [("stopped", False), ("answered", True)]
    assert [(outcome, took is None) for _, outcome, took in seen.outcomes] == expected


async def test_a_turn_past_its_deadline_is_told_apart_from_one_that_was_stopped(tmp_path):
    seen, gate = RecordingSink(), Gate(answer("never"))
    limits = TurnLimits(turn_timeout_s=0.05)
    async with running(
        tmp_path, platform := Platform(), Scripted(gate), limits=limits, observing=Observing(seen)
    ) as core:
        await core.orchestrator.receive(message(1))
        await platform.settled("m1")
    assert seen.of("turn")[0].outcome == "turn_timeout"


async def test_turns_side_by_side_keep_their_own_work(tmp_path):
    seen = RecordingSink()
    observing = Observing(seen)

    async def turn(name: str) -> None:
        with observing.work("turn", name, {"thread_id": name}):
            for _ in range(2):
                observing.step("m")
                await anyio.lowlevel.checkpoint()
                async with anyio.create_task_group() as tools:
                    tools.start_soon(tool, name)
                    tools.start_soon(tool, name)

    async def tool(name: str) -> None:
        with observing.work("tool", name):
            await anyio.lowlevel.checkpoint()
            assert turn_ids() == {"thread_id": name}

    async with anyio.create_task_group() as turns:
        turns.start_soon(turn, "a")
        turns.start_soon(turn, "b")
    assert len(seen.of("tool")) == 8
    assert all(tool.parent.parent.name == tool.name for tool in seen.of("tool"))
    assert turn_ids() == {}


async def test_what_a_turn_started_and_left_behind_is_no_part_of_it_any_more():
    seen, over = RecordingSink(), anyio.Event()
    observing = Observing(seen)

    async def left() -> None:
        await over.wait()
        assert turn_ids() == {}
        with observing.work("tool", "later") as work:
            assert work.parent is None

    async with anyio.create_task_group() as tasks:
        with observing.work("turn", "fake", {"thread_id": "t"}):
            tasks.start_soon(left)
        over.set()


async def test_a_sink_that_fails_costs_no_turn_and_the_others_nothing(tmp_path, caplog):
    class Fails(RecordingSink):
        def began(self, work):
            raise ValueError("a bug")

    seen = RecordingSink()
    async with watched(tmp_path, [says()], Fails(), seen) as seat:
        assert (await seat.say("hello")).text == "All right."
    assert len(seen.of("turn")) == 1
    assert [record.message for record in caplog.records if "sink" in record.message] == [
        "observe.sink_failed: it gets no more events"
    ]
