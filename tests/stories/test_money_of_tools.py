"""What tools can make a turn cost: bounded by steps, by repeated calls, by a sender's rate; never by a tool itself."""

from __future__ import annotations

import json

import anyio

from bot.agent.loop_guard import MOST_AT_ONCE
from bot.ports.model import Completion, Usage
from tests.one_model import OneModel
from tests.stories.test_isolation_tools import Hangs
from tests.world import Platform, converse, message, running, says
from threads.model import Message, ToolCall, TurnLimits


class Quick(Hangs):
    """A tool that answers at once; each answer differs a little."""

    done = 0

    async def __call__(self, arguments, context):
        self.inside += 1
        self.most = max(self.most, self.inside)
        await anyio.lowlevel.checkpoint()
        self.inside -= 1
        self.done += 1
        return f"almost the same {self.done}"


class Endless(OneModel):
    """A model that always wants *count* more calls, each with arguments of its own if *fresh*."""

    def __init__(self, count: int = 1, *, fresh: bool = True) -> None:
        self.count, self.fresh, self.asked = count, fresh, 0
        self.requests = []

    async def complete(self, request, on_event):
        self.asked += 1
        self.requests.append(request)
        if request.tool_choice == "none":
            return Completion(says("enough"), Usage(100_000, 5), "end")
        number = self.asked * 1_000 if self.fresh else 0
        calls = (ToolCall(f"c{self.asked}-{n}", "hangs", {"n": number + n}) for n in range(self.count))
        return Completion(Message("assistant", tuple(calls), model="m"), Usage(100_000, 5), "tool_calls")


async def test_a_model_that_never_stops_calling_ends_at_the_last_step(tmp_path):
    platform, model, tool = Platform(), Endless(), Quick()
    await converse(tmp_path, platform, model, message(), tools=[tool])
    assert model.asked == 51, "50 steps, and one word at the end"
    assert tool.done == 50


async def test_the_same_call_with_results_that_differ_is_a_loop_all_the_same(tmp_path):
    platform, model, tool = Platform(), Endless(fresh=False), Quick()
    await converse(tmp_path, platform, model, message(), tools=[tool])
    assert tool.done == 2
    assert model.asked == 4
    assert platform.outcomes == {"m1": "failed"}


async def test_of_five_hundred_calls_in_one_message_few_run_eight_at_a_time_and_cost_no_call_of_a_model(
    tmp_path,
):
    platform, model, tool = Platform(), Endless(500), Quick()
    async with running(tmp_path, platform, model, tools=[tool], limits=TurnLimits(turn_timeout_s=600)) as bot:
        await bot.orchestrator.receive(message())
        await platform.until(lambda: model.asked == 2)
        assert tool.done == MOST_AT_ONCE
        assert tool.most <= 8
        results = [result for entry in model.requests[1].messages for result in entry.results]
        assert [result.call_id for result in results] == [f"c1-{n}" for n in range(500)]
        assert [json.loads(result.content)["success"] for result in results] == (
            [True] * MOST_AT_ONCE + [False] * (500 - MOST_AT_ONCE)
        )
