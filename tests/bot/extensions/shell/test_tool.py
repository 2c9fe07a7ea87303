"""The shell tool: its results, its errors and its arguments."""

import json
from dataclasses import replace
from fnmatch import fnmatchcase

import anyio
import pytest
from pydantic import ValidationError

from bot.extensions.shell.sandbox import CommandResult, Sandbox
from bot.extensions.shell.sandbox.profile import DEFAULT_LIMITS
from bot.extensions.shell.tool import MAX_COMMAND, Shell, ShellArguments
from bot.ports.errors import CommandFailed, SandboxFailed, ToolDenied, ToolTimeout
from bot.ports.tool import ToolOutput
from tests.tool_context import make_toolbox, tool_context, unheard
from threads.model import ToolCall

from .sandbox.sandboxes import offload, ran, real, sandbox_named


class FakeSandbox:
    """Returns one result, and records the calls."""

    layer, why = "bubblewrap", ""

    def __init__(self, result: CommandResult):
        self.result, self.calls = result, []

    async def run(self, command, workspace, deadline, _proxy=None):
        self.calls.append((command, workspace, deadline))
        return self.result


def shell(outcome="exited", code=0, stdout="", stderr="", left_out=0):
    return Shell(FakeSandbox(CommandResult(outcome, code, stdout, stderr, left_out)), offload)


async def test_a_command_that_ends_well_returns_what_it_printed(tmp_path):
    result = await shell(stdout="fine\n")(ShellArguments(command="ls"), tool_context(tmp_path / "w"))
    assert result == ToolOutput({"exit_code": 0, "stdout": "fine\n", "stderr": ""})


@pytest.mark.parametrize(
    ("command", "code", "means"),
    [
        ("make x", 2, r"ended with exit code 2\.$"),
        ("cat a | /bin/grep b", 1, r"exit code 1\. From `grep`, that means that nothing matched\."),
        ("diff a b; test -f c", 1, r"From `diff`, .* they differ\. From `test`, .* the condition is false\."),
        ("grep -r x nowhere", 2, r"ended with exit code 2\.$"),
        ("frob", 127, "not installed here"),
        ("./frob", 126, "cannot be run"),
        (
            "python big.py",
            137,
            r"ended by SIGKILL \(exit code 137\), as the system does when memory runs out",
        ),
        ("yes > a", 153, r"ended by SIGXFSZ \(exit code 153\), because a file grew larger"),
        ("frob", 143, r"ended by SIGTERM \(exit code 143\)\."),
        ("exit 255", 255, r"ended with exit code 255\.$"),
    ],
)
async def test_a_command_that_fails_is_a_failure_with_what_its_exit_code_means(
    command, code, means, tmp_path
):
    tool = shell(code=code, stdout="half", stderr="no such file\n")
    with pytest.raises(CommandFailed, match=means) as raised:
        await tool(ShellArguments(command=command), tool_context(tmp_path / "w"))
    assert raised.value.partial == {"exit_code": code, "stdout": "half", "stderr": "no such file\n"}
    assert raised.value.suggestion


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
async def test_through_the_gate_a_failed_command_is_no_success(tmp_path):
    sandbox = await sandbox_named("landlock", tmp_path, replace(DEFAULT_LIMITS, file_size=1_000_000))
    toolbox = make_toolbox([Shell(sandbox, offload)])
    for number, (command, code) in enumerate(
        {"exit 3": 3, "kill -9 $$": 137, "exec head -c 2000000 /dev/zero > big": 153}.items()
    ):
        call = ToolCall(f"c{number}", "shell", {"command": f"echo begun; {command}"})
        (result,) = await toolbox.run([call], tool_context(tmp_path / "w"), unheard)
        content = json.loads(result.content)
        assert result.is_error and content["success"] is False
        assert content["error"]["type"] == "exit_code"
        assert content["partial"] == {"exit_code": code, "stdout": "begun\n", "stderr": ""}


@real
async def test_a_workspace_is_made_for_its_owner_alone(tmp_path):
    sandbox = await sandbox_named("landlock", tmp_path)
    await ran(sandbox, "true", tmp_path / "new" / "workspace")
    assert (tmp_path / "new" / "workspace").stat().st_mode & 0o777 == 0o700


async def test_where_it_is_off_it_says_why(tmp_path):
    tool = Shell(Sandbox(None, "no sandbox works here", offload=offload), offload)
    with pytest.raises(ToolDenied, match="no sandbox works here"):
        await tool(ShellArguments(command="id"), tool_context(tmp_path))
