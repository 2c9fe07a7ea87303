"""The loop's rules: what goes to the model, what is run, when it ends."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import anyio
import pytest

from bot import wording
from bot.agent.loop import CONTINUATIONS, FINISH, Agent
from bot.agent.model_calls import EMPTY
from bot.extensions.files.read import ListFiles, ReadFile
from bot.ports.errors import LoopDetected, OutputInvalid, StepLimit, ToolTimeout
from bot.ports.model import Completion, Usage
from tests.one_model import unspilled
from tests.tool_context import make_toolbox, nobody, nowhere
from tests.world import Scripted, calls, inline, message, says
from threads.errors import BotError
from threads.model import Earlier, Message, Text, ToolCall
from threads.wording import friendly


async def no_folder(thread):
    return Path("/nowhere")


PLACES = (no_folder, lambda thread: unspilled)


class FakeTurn:
    """A turn without an actor: it remembers what the agent did, in order."""

    known_answer = ""

    def __init__(self, *messages):
        self.incoming = message(1, "question")
        self.messages = list(messages)
        self.did: list[str] = []
        self.told = []

    def add(self, *messages):
        self.messages.extend(messages)
        self.did.append("add " + "+".join(m.role for m in messages))

    def replace_messages(self, messages):
        self.messages[:] = messages
        self.did.append("repair")

    async def checkpoint(self):
        self.did.append("checkpoint")

    async def steer(self, render):
        self.add()

    async def earlier(self, incoming):
        return Earlier()

    async def sent_files(self):
        return []

    async def fetch(self, sent):
        return []

    attach = staticmethod(nowhere)
    ask = staticmethod(nobody)

    def note(self, text):
        self.did.append(f"note {text}")

    async def tell(self, event):
        self.told.append(event)


class Stops(Scripted):
    """A scripted model whose steps are ``(message, stop)``."""

    async def complete(self, request, on_event):
        self.requests.append(request)
        answer, stop = self.script.popleft()
        return Completion(answer, Usage(1, 1), stop)


def agent(model, **limits):
    toolbox = make_toolbox([ReadFile(inline), ListFiles(inline)])
    return Agent(model, toolbox, "You are kind.", *PLACES, **limits)


def nothing():
    return Message("assistant", (Text(" "),))


async def test_the_call_is_on_disk_before_its_tool_runs_and_the_result_before_the_next_call():
    turn, model = FakeTurn(), Scripted(calls("list_files"), says("done"))
    assert await agent(model).run(turn) == "done"
    step = ["add assistant", "checkpoint", "add user", "checkpoint"]
    assert turn.did[:7] == ["add user", *step, "add ", "add assistant"]


async def test_a_turn_served_again_with_its_answer_in_the_context_asks_no_model():
    first = FakeTurn()
    await agent(Scripted(says("paid"))).run(first)
    model = Scripted()
    assert await agent(model).run(FakeTurn(*first.messages)) == "paid"
    assert model.requests == []


async def test_the_system_prompt_and_the_history_are_the_same_bytes_from_step_to_step():
    model = Scripted(calls("list_files"), calls("read_file", path="x", id="c2"), says("done"))
    await agent(model).run(FakeTurn())
    requests = model.requests
    for earlier, later in pairwise(requests):
        assert later.messages[: len(earlier.messages)] == earlier.messages
        assert replace(later, messages=()) == replace(earlier, messages=())
    assert [tool.name for tool in requests[0].tools] == ["list_files", "read_file"]


async def test_the_model_reads_who_wrote_and_when_but_not_in_the_system_prompt():
    model = Scripted(says("ok"))
    await agent(model).run(FakeTurn())
    assert model.requests[0].messages[0].blocks[0].text == "[ann (U1), 2026-11-21 10:00 UTC]"
    assert "ann" not in model.requests[0].system


@pytest.mark.parametrize(
    ("call", "kind", "word"),
    [
        (ToolCall("c", "rm_rf", {}), "not_found", "no tool named"),
        (ToolCall("c", "read_file", {}), "validation", "path: Field required"),
        (ToolCall("c", "read_file", {}, malformed='{"path'), "validation", "not a JSON object"),
        (ToolCall("c", "read_file", {"path": "../../etc/passwd"}), "permission", "out of the workspace"),
    ],
)
async def test_a_bad_call_becomes_an_error_that_the_model_reads(call, kind, word):
    model = Scripted(Message("assistant", (call,)), says("sorry"))
    assert await agent(model).run(FakeTurn()) == "sorry"
    result = model.requests[1].messages[-1].results[0]
    error = json.loads(result.content)["error"]
    assert result.is_error
    assert error["type"] == kind
    assert word in error["message"]


async def test_a_tool_that_breaks_tells_the_model_no_more_than_that():
    class Broken:
        name, description, risk = "broken", "", "read"
        arguments = ListFiles.arguments

        async def __call__(self, arguments, context):
            raise RuntimeError("/secret/path")

    model = Scripted(calls("broken"), says("oh"))
    toolbox = make_toolbox([Broken()])
    await Agent(model, toolbox, "", *PLACES).run(FakeTurn())
    assert "/secret/path" not in model.requests[1].messages[-1].results[0].content


async def test_a_call_that_repeats_is_told_so_and_then_ends_the_turn():
    model = Scripted(*[calls("list_files", id=f"c{n}") for n in range(9)])
    with pytest.raises(LoopDetected):
        await agent(model).run(FakeTurn())
    assert len(model.requests) == 4
    assert "Already tried" in model.requests[3].messages[-1].results[0].content


async def test_at_the_step_limit_one_call_without_tools_may_still_answer():
    steps = [calls("read_file", path=str(n), id=f"c{n}") for n in range(3)]
    model = Scripted(*steps, says("what I have"))
    assert await agent(model, max_steps=3).run(FakeTurn()) == "what I have"
    assert model.requests[-1].tool_choice == "none"
    assert model.requests[-1].messages[-1] == FINISH
    with pytest.raises(StepLimit):
        await agent(Scripted(*steps, nothing(), nothing()), max_steps=3).run(FakeTurn())


async def test_an_empty_answer_is_asked_for_once_more_then_admitted():
    model = Scripted(nothing(), says("at last"))
    turn = FakeTurn()
    assert await agent(model).run(turn) == "at last"
    assert all(m.text.strip() for m in turn.messages)
    assert model.requests[1].messages[-1] == EMPTY
    model = Scripted(nothing(), nothing(), says("never asked for"))
    with pytest.raises(OutputInvalid):
        await agent(model).run(FakeTurn())
    assert len(model.requests) == 2


class Hangs(ListFiles):
    """A tool that never ends by itself."""

    async def __call__(self, arguments, context):
        await anyio.sleep_forever()


def hanging_agent(model, timeout_s=0.0, **limits):
    toolbox = make_toolbox([Hangs(inline), ReadFile(inline)], per_tool={"list_files": timeout_s})
    return Agent(model, toolbox, "", *PLACES, **limits)


async def failure_of(agent, turn) -> Exception:
    with pytest.raises(BotError) as caught:
        await agent.run(turn)
    return caught.value


async def test_a_turn_that_ends_because_a_tool_ran_out_of_time_says_so(monkeypatch):
    monkeypatch.setattr("bot.tools.gate.GRACE_S", 0.0)
    again = [calls("list_files", id=f"c{n}") for n in range(4)]
    for script, limits in [
        ([again[0], nothing(), nothing()], {}),
        ([again[0], nothing(), nothing()], {"max_steps": 1}),
        (again, {}),
    ]:
        error = await failure_of(hanging_agent(Scripted(*script), **limits), FakeTurn())
        assert type(error) is ToolTimeout
        assert friendly(error) == (
            "A command I was running timed out. Let me know if you'd like me to try again."
        )


async def test_a_time_out_that_the_turn_got_over_is_not_blamed(monkeypatch):
    monkeypatch.setattr("bot.tools.gate.GRACE_S", 0.0)
    script = calls("list_files", id="c1"), calls("read_file", id="c2", path="a"), nothing(), nothing()
    assert isinstance(await failure_of(hanging_agent(Scripted(*script)), FakeTurn()), OutputInvalid)


@pytest.mark.parametrize(("timed_out", "error"), [(True, ToolTimeout), (False, None)])
async def test_a_turn_whose_own_time_is_over_while_a_tool_runs_says_so_too(timed_out, error):
    turn, caught = FakeTurn(), None
    turn.timed_out = timed_out
    with anyio.move_on_after(0.2):
        try:
            await hanging_agent(Scripted(calls("list_files")), timeout_s=60).run(turn)
        except ToolTimeout as raised:
            caught = raised
    assert type(caught) is (error or type(None))


async def test_an_answer_cut_by_its_length_is_continued_and_posted_whole():
    model = Stops((says("one "), "length"), (says("two"), "end"))
    turn = FakeTurn()
    assert await agent(model).run(turn) == "one two"
    assert not any(did.startswith("note") for did in turn.did)


async def test_an_answer_that_never_reaches_its_end_says_so():
    model, turn = Stops(*[(says("x"), "length")] * (CONTINUATIONS + 1)), FakeTurn()
    assert await agent(model).run(turn) == "x" * (CONTINUATIONS + 1)
    assert f"note {wording.CUT_SHORT}" in turn.did


async def test_calls_of_an_answer_cut_by_its_length_are_never_run():
    cut = Message("assistant", (Text("let me"), ToolCall("c", "list_files", {})))
    model = Stops((cut, "length"), (says(" see"), "end"))
    turn = FakeTurn()
    assert await agent(model).run(turn) == "let me see"
    assert not any(r for m in model.requests[1].messages for r in m.results if "entries" in r.content)


async def test_a_pause_is_sent_back_unchanged():
    paused = says("thinking")
    model = Stops((paused, "pause"), (says("done"), "end"))
    assert await agent(model).run(FakeTurn()) == "done"
    assert model.requests[1].messages[-1].blocks is paused.blocks


async def test_an_answer_that_only_the_journal_held_closes_the_calls_whose_results_are_lost():
    asked = Message("user", (Text("question"),), source="m1")
    turn = FakeTurn(asked, calls("list_files", path="."))
    turn.known_answer = "the answer"
    assert await agent(Scripted()).run(turn) == "the answer"
    question, call, result, answer = turn.messages
    assert (question, answer.text, answer.source) == (asked, "the answer", "m1")
    assert [block.call_id for block in result.blocks] == [block.id for block in call.blocks]
    assert "may or may not have run" in result.blocks[0].content
