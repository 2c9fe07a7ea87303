"""A process that dies at each step of a question loses no answer, uses each once, and is never silent.

The steps and the crashes are those of `test_approvals_crash`.
"""

import json
from dataclasses import replace
from functools import partial
from itertools import count

import anyio
import pytest

from bot.ports.errors import McpUnavailable
from bot.ports.model import Completion, Usage
from bot.tools.ask_person import AskingPermits, AskPerson
from bot.tools.questions import DurableQuestions, QuestionsFile
from bot.tools.recovery import Recovery
from tests.one_model import OneModel
from tests.run_tool import Run
from tests.tool_context import PermitAll, make_toolbox
from tests.world import ANN, T1, says, state_file
from threads.model import Incoming, Message, ToolCall

from .test_approvals_crash import DATA, Scenario, _quiet, crashed_operation, offload, run_with_crash, step

__all__ = ["_quiet"]


class Asker(OneModel):
    """Asks the questions of its plan, one after another, and then says what it was told."""

    def __init__(self, plan, fate):
        self.plan, self.fate = plan, fate

    async def complete(self, request, on_event):
        step(self.fate, "model")
        await anyio.sleep(0.1)
        before = [json.loads(result.content) for entry in request.messages for result in entry.results]
        results = [result for result in before if self.is_done(result)]
        if len(results) >= len(self.plan):
            text = "; ".join(str(result.get("result", {}).get("answer")) for result in results)
            return Completion(replace(says(f"told: {text}"), model="fake/one"), Usage(1, 1), "end")
        call = replace(self.call(len(results)), id=f"c{len(before)}")
        return Completion(Message("assistant", (call,), model="fake/one"), Usage(1, 1), "tool_calls")

    def is_done(self, result):
        """Return whether a call has an answer: one that was interrupted before it was asked is made again."""
        return "result" in result

    def call(self, number):
        arguments = {"question": self.plan[number], "answers": ["yes", f"answer to {self.plan[number]}"]}
        return ToolCall("", "ask_person", arguments)


class QuestionScenario(Scenario):
    """A turn that asks questions; a person presses the second button, or types."""

    def __init__(self, plan, *, typed, seed=1):
        super().__init__(plan, choice=1, eager=bool(seed % 2), seed=seed)
        self.typed = typed

    def _model(self):
        return Asker(self.plan, self.fate)

    def _toolbox(self, audit):
        questions = DurableQuestions(
            state_file(DATA / "questions.json", QuestionsFile(), self.disk, offload),
            now=self._now,
            is_admin=lambda who: False,
            note=audit.note,
            mask=str,
            expires_s=3600,
        )
        permits = Recovery(AskingPermits(PermitAll(), questions), questions, choice="ask")
        tools = [AskPerson(questions), self.run]
        return make_toolbox(tools, permits=permits, recovery=permits), {"asked": questions}

    def _answers(self):
        if not self.typed:
            return super()._answers()
        return [
            Incoming(
                f"typed-{post.key}", T1, ANN, f"answer to {post.text.split()[5]}", "2026-11-21T10:00:00+00:00"
            )
            for post in {post.key: post for post in self.platform.posts if post.choices}.values()
            if post.key not in self.platform.closed
        ]

    async def _deliver(self, core, incoming):
        # what another person types is a message of its own
        if not (self.typed and incoming.id.endswith("-bob")):
            await super()._deliver(core, incoming)


@pytest.mark.parametrize(("power_cut", "typed"), [(False, True), (False, False), (True, True), (True, False)])
def test_a_crash_at_any_step_of_a_question_loses_no_answer_and_uses_each_once(power_cut, typed):
    faults = []
    for crash in count(1):
        try:
            scenario = run_with_crash(
                partial(QuestionScenario, ("One?", "Two?"), typed=typed, seed=crash), crash, power_cut
            )
            if scenario is None:
                break
            assert scenario.faults == []
            outcomes = scenario.platform.outcomes
            assert outcomes["m1"] == "answered"
            answers = [post.text for post in scenario.platform.posts if post.kind == "reply"]
            assert all("told: answer to One?; answer to Two?" in text for text in answers)
            assert {how for id_, how in outcomes.items() if id_.startswith("typed")} <= {"merged"}
        except AssertionError as error:
            faults.append((crash, crashed_operation(scenario), str(error).split("\n")[0]))
    assert crash > 20
    assert faults == []


class Failing(Run):
    """Does harm, and fails the first time."""

    def __init__(self, fate, failed):
        super().__init__()
        self.fate, self.failed = fate, failed

    async def __call__(self, arguments, context):
        step(self.fate, "tool begins")
        await super().__call__(arguments, context)
        step(self.fate, "tool ran")
        if len(self.ran) == 1:
            raise McpUnavailable("went away")
        return {"answer": "fine"}


class Caller(Asker):
    def is_done(self, result):
        return True

    def call(self, number):
        return ToolCall("", "shell", {"command": self.plan[number]})


class RecoveryScenario(QuestionScenario):
    """A turn whose call fails; a person presses *retry*, or *go on without*."""

    def __init__(self, choice, *, seed=1):
        super().__init__(("rm a",), typed=False, seed=seed)
        self.choice, self.run = choice, Failing(self.fate, self.plan)

    def _model(self):
        return Caller(self.plan, self.fate)


@pytest.mark.parametrize("power_cut", [False, True])
@pytest.mark.parametrize("choice", [0, 1])
def test_a_crash_at_any_step_of_a_recovery_runs_nothing_twice_without_a_persons_word(choice, power_cut):
    faults = []
    for crash in count(1):
        try:
            scenario = run_with_crash(partial(RecoveryScenario, choice, seed=crash), crash, power_cut)
            if scenario is None:
                break
            assert scenario.faults == []
            assert scenario.platform.outcomes["m1"] == "answered"
            assert len(scenario.run.ran) <= (1 if choice else 2)
        except AssertionError as error:
            faults.append((crash, crashed_operation(scenario), str(error).split("\n")[0]))
    assert crash > 20
    assert faults == []
