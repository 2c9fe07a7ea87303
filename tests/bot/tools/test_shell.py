"""The shell tool: its results, its errors and its arguments."""

import json
from fnmatch import fnmatchcase

import anyio
import pytest
from pydantic import ValidationError

from bot.ports.errors import SandboxFailed, ToolDenied, ToolTimeout
from bot.ports.tool import ToolOutput
from bot.tools.sandbox import CommandResult, Sandbox
from bot.tools.shell import MAX_COMMAND, Shell, ShellArguments
from tests.tool_context import make_toolbox, tool_context, unheard
from threads.model import ToolCall

from .sandbox.sandboxes import offload, ran, real, sandbox_named


class FakeSandbox:
    """Returns one result, and records the calls."""

    layer, why = "bubblewrap", ""

    def __init__(self, result: CommandResult):
        self.result, self.calls = result, []

    async def run(self, command, workspace, deadline):
        self.calls.append((command, workspace, deadline))
        return self.result


def shell(outcome="exited", code=0, stdout="", stderr="", left_out=0):
    return Shell(FakeSandbox(CommandResult(outcome, code, stdout, stderr, left_out)), offload)


async def test_a_failing_command_is_a_result_too(tmp_path):
    result = await shell(code=2, stderr="no such file\n")(
        ShellArguments(command="ls x"), tool_context(tmp_path / "w")
    )
    assert result == ToolOutput({"exit_code": 2, "stdout": "", "stderr": "no such file\n"})


async def test_a_result_counts_the_bytes_left_out(tmp_path):
    output = await shell(left_out=5)(ShellArguments(command="x"), tool_context(tmp_path / "w"))
    assert output.result["left_out_bytes"] == 5


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        ("timeout", ToolTimeout),
        ("flood", SandboxFailed),
        ("memory", SandboxFailed),
        ("killed", SandboxFailed),
    ],
)
async def test_a_command_that_is_stopped_returns_its_output_so_far(outcome, error, tmp_path):
    with pytest.raises(error) as raised:
        await shell(outcome, None, "half")(ShellArguments(command="x"), tool_context(tmp_path / "w"))
    assert raised.value.partial == {"stdout": "half", "stderr": ""}
    assert raised.value.suggestion


@pytest.mark.parametrize("outcome", ["exited", "timeout"])
async def test_output_counts_as_outside_text_once_something_from_outside_is_in_the_workspace(
    outcome, tmp_path
):
    tool, context = shell(outcome), tool_context(tmp_path / "w")
    (tmp_path / "w" / "attachments").mkdir(parents=True)
    try:
        origin = (await tool(ShellArguments(command="x"), context)).origin
    except ToolTimeout as error:
        origin = error.origin
    assert origin


async def test_the_earlier_of_two_deadlines_holds(tmp_path):
    tool, now = shell(), anyio.current_time()
    await tool(ShellArguments(command="x", timeout_s=5), tool_context(tmp_path, deadline=now + 100))
    await tool(ShellArguments(command="x", timeout_s=500), tool_context(tmp_path, deadline=now + 100))
    await tool(ShellArguments(command="x"), tool_context(tmp_path, deadline=now + 100))
    await tool(ShellArguments(command="x", timeout_s=5), tool_context(tmp_path))
    timeouts = [deadline - now for _, _, deadline in tool.sandbox.calls]
    assert [round(each) for each in timeouts] == [5, 100, 100, 5]


@pytest.mark.parametrize(
    "command", ["", "nul\0", "\ud800", "x" * (MAX_COMMAND + 1), "ä" * (MAX_COMMAND // 2 + 1)]
)
def test_a_command_that_does_not_fit_an_argument_is_refused(command):
    with pytest.raises(ValidationError):
        ShellArguments(command=command)


def test_a_rule_sees_the_command_as_it_is_and_always_allows_only_just_that():
    arguments = ShellArguments(command="rm [ab]*", timeout_s=3)
    assert arguments.subject() == "rm [ab]*"
    assert fnmatchcase("rm [ab]*", arguments.always())
    assert not fnmatchcase("rm a", arguments.always()) and not fnmatchcase("rm [ab]* /", arguments.always())


@real
async def test_through_the_gate_a_time_out_gives_back_the_output_so_far(tmp_path):
    sandbox = await sandbox_named("landlock", tmp_path)
    toolbox = make_toolbox([Shell(sandbox, offload)], per_tool={"shell": 0.6})
    call = ToolCall("c1", "shell", {"command": "echo begun; sleep 60"})

    (result,) = await toolbox.run([call], tool_context(tmp_path / "w"), unheard)
    content = json.loads(result.content)
    assert content["error"]["type"] == "timeout" and content["partial"]["stdout"] == "begun\n"


@real
async def test_a_workspace_is_made_for_its_owner_alone(tmp_path):
    sandbox = await sandbox_named("landlock", tmp_path)
    await ran(sandbox, "true", tmp_path / "new" / "workspace")
    assert (tmp_path / "new" / "workspace").stat().st_mode & 0o777 == 0o700


async def test_where_it_is_off_it_says_why(tmp_path):
    tool = Shell(Sandbox(None, "no sandbox works here", offload=offload), offload)
    with pytest.raises(ToolDenied, match="no sandbox works here"):
        await tool(ShellArguments(command="id"), tool_context(tmp_path))
