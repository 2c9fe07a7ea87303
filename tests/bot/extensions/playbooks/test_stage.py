"""One attempt of a stage: its checks, by the rules of tools, each made once; and what its failure is called."""

from types import SimpleNamespace

import pytest

from bot.agent.prompt.user_message import UserMessages
from bot.extensions.playbooks.definition import Stage
from bot.extensions.playbooks.folder import examples
from bot.extensions.playbooks.run_state import LONGEST_RESULT, RunsFile
from bot.extensions.playbooks.runs import Runs
from bot.extensions.playbooks.stage import (
    StageAttempt,
    StageFailed,
    StageParts,
    failure_from,
    without_attempts,
)
from bot.extensions.playbooks.stage_turn import StageClock, StageTurn
from bot.ports.errors import (
    AllProvidersFailed,
    BudgetExceeded,
    CommandFailed,
    EmptyAnswer,
    ModelTimeout,
    SchemaMismatch,
    StepLimit,
    ToolDenied,
    ToolError,
    report,
)
from bot.ports.tool import Arguments
from bot.tools.results import MAX_RESULT
from tests.bot.extensions.playbooks.test_runs import NOW
from tests.bot.extensions.playbooks.test_transitions import run_of
from tests.bot.ports.test_error_codes import leaves
from tests.tool_context import make_toolbox, no_spill
from tests.world import T1, inline, message, says, state_file
from threads.errors import BotError
from threads.model import Earlier, Message, Text


class ShellArguments(Arguments):
    command: str


class Shell:
    """Runs nothing: the exit code is the number that the command ends with."""

    name, description, risk, arguments = "shell", "Run it.", "exec", ShellArguments

    def __init__(self, printed=0):
        self.commands, self.printed = [], printed

    async def __call__(self, arguments, context):
        self.commands.append(arguments.command)
        report = {"exit_code": int(arguments.command[-1]), "stdout": "x" * self.printed, "stderr": ""}
        if report["exit_code"]:
            raise CommandFailed("It failed.", partial=report)
        return report


class Denying:
    async def permit(self, tool, arguments, context):
        raise ToolDenied("A person denied this.")

    def waits(self, tool, arguments, context):
        return False


class Turn(SimpleNamespace):
    """A turn whose conversation is in memory."""

    def __init__(self):
        super().__init__(incoming=message(1, "/play p"), messages=[], attempt=1, correlation_id="c")

    def add(self, *messages):
        self.messages.extend(messages)

    async def checkpoint(self):
        pass

    async def earlier(self, incoming):
        return Earlier()

    async def sent_files(self):
        return []

    async def tell(self, event):
        pass

    def __getattr__(self, name):
        """Have nothing else that a stage takes from its turn."""


async def attempt_at(folder, checks, *, answer="Done.", shell=None, permits=None, schema=None):
    given = {"name": "a", "act": {"prompt": "Do it."}, "assert": {"checks": checks, "schema": schema}}
    stage = Stage.model_validate(given, strict=False)
    runs = Runs(state_file(folder / "playbooks.json", RunsFile()), lambda: NOW)
    run = await runs.take_up(runs.of(T1) or run_of(stage, thread=str(T1), message_id="m1"))
    toolbox = make_toolbox([shell or Shell()], permits=permits)

    async def workspace(_):
        return folder

    async def no_files():
        pass

    async def answered(turn):
        turn.add(says(answer))
        return answer

    agent = SimpleNamespace(
        tools=toolbox,
        workspace=workspace,
        spill=lambda _: no_spill,
        user_messages=UserMessages(),
        run=answered,
    )

    async def same(*_):
        return agent

    agents = SimpleNamespace(usual=same, of_stage=same)
    turn = StageTurn(Turn(), run.visit_id, "Do it.", StageClock(60), no_files)
    return StageAttempt(
        StageParts(agents.usual, agents.of_stage, runs, inline, lambda who: who == "U9"), turn, run, stage
    )


async def failure_of(attempt):
    with pytest.raises(StageFailed) as failed:
        await attempt.play()
    return failed.value.failure


@pytest.mark.parametrize("printed", [0, MAX_RESULT])
async def test_a_command_passes_with_its_exit_code_and_is_not_run_again_after_a_crash(tmp_path, printed):
    shell = Shell(printed)
    checks = [{"command": "exit 0"}, {"command": "exit 3", "exit_code": 3}]
    assert (await (await attempt_at(tmp_path, checks, shell=shell)).play()).value == "Done."
    await (await attempt_at(tmp_path, checks, shell=shell)).play()
    assert shell.commands == ["exit 0", "exit 3"]


async def test_another_exit_code_is_a_failed_check(tmp_path):
    failure = await failure_of(await attempt_at(tmp_path, [{"command": "exit 1"}]))
    assert (failure.type, failure.message) == ("assertion", "`exit 1` ended with exit code 1, not 0.")


async def test_a_command_that_is_not_allowed_is_a_failure_of_its_type_and_runs_nothing(tmp_path):
    shell = Shell()
    failure = await failure_of(
        await attempt_at(tmp_path, [{"command": "exit 0"}], shell=shell, permits=Denying())
    )
    assert (failure.type, failure.tool, failure.message) == ("permission", "shell", "A person denied this.")
    assert shell.commands == []


async def test_a_file_must_be_a_regular_one_in_the_workspace(tmp_path):
    (tmp_path / "there.txt").write_text("x")
    (tmp_path / "link").symlink_to("/etc/passwd")
    await (await attempt_at(tmp_path, [{"file": "there.txt"}])).play()
    for path in ("gone.txt", "link", "../x", "."):
        assert (await failure_of(await attempt_at(tmp_path, [{"file": path}]))).type == "assertion"


async def test_a_result_has_a_bound_and_the_value_of_its_schema(tmp_path):
    schema = {"type": "object", "required": ["a"]}
    assert (await (await attempt_at(tmp_path, [], answer='{"a": 1}', schema=schema)).play()).value == {"a": 1}
    assert (
        await failure_of(await attempt_at(tmp_path, [], answer="x" * (LONGEST_RESULT + 1)))
    ).type == "assertion"
    with pytest.raises(SchemaMismatch):
        await (await attempt_at(tmp_path, [], answer='{"b": 1}', schema=schema)).play()


async def test_a_result_is_one_that_a_file_can_hold(tmp_path):
    half = r'{"a": "x\ud83d"}'
    attempt = await attempt_at(tmp_path, [], answer=half, schema={"type": "object"})
    assert (await attempt.play()).value == {"a": "x?"}
    assert (await (await attempt_at(tmp_path, [], answer="x\ud83d")).play()).value == "x?"
    failure = await failure_of(await attempt_at(tmp_path, [], answer="1e999", schema={}))
    assert failure.message == "The result has a number that is too large."


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (SchemaMismatch("$.a: no"), "assertion"),
        (EmptyAnswer(), "provider"),
        (ModelTimeout("secret of the provider"), "provider"),
        (AllProvidersFailed(ModelTimeout("x"), []), "provider"),
        (BudgetExceeded("x"), "budget"),
        (StepLimit("x"), "unknown"),
    ],
)
def test_an_error_of_the_model_is_a_failure_of_its_type_without_the_providers_words(error, kind):
    failure = failure_from(error)
    assert failure.type == kind
    assert "secret" not in failure.message


def test_a_failure_says_as_everywhere_whether_there_is_a_way_on():
    for leaf in leaves():
        if not issubclass(leaf, ToolError):
            error = BotError("no")
            error.code, error.ways = leaf.code, leaf.ways
            assert failure_from(error).recoverable == report(error, "", NOW).recoverable, leaf.code


def test_without_its_attempts_a_conversation_still_has_what_people_said():
    def said(source):
        return Message("user", (Text(source),), source=source)

    before, mine, answer = said("m1"), said("m2.a.1.1"), says("no")
    assert without_attempts([before, mine, answer, said("m3"), says("ok")], "m2.a.1.") == [before, said("m3")]
    assert without_attempts([before, answer], "m2.a.1.") == [before, answer]


def test_the_examples_lie_in_the_package():
    assert "triage.yaml" in examples()
