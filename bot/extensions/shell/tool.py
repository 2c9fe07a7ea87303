"""Commands in the thread's workspace, in the sandbox of `bot.extensions.shell.sandbox`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import anyio
from pydantic import Field, JsonValue, field_validator

from bot.extensions.shell.exit_codes import explain_exit
from bot.extensions.shell.sandbox import CommandResult, Sandbox
from bot.ports.errors import CommandFailed, SandboxFailed, ToolTimeout
from bot.ports.tool import Arguments, ToolContext, ToolOutput
from bot.tools.files.workspace import holds_outside_text
from threads.store.disk import Offload

MAX_COMMAND = 100_000
"""Bytes of a command: the kernel takes no argument of more than 128 KiB."""

ORIGIN = "command"

_DESCRIPTION = (
    "Run a shell command in this thread's workspace, which is its current folder and the only one it can write to"
    "{tmp}. No network, no input, none of the bot's own files. Processes that it leaves running are killed. "
    "If it fails, `partial` has its exit_code, stdout and stderr. Long output is cut in the middle: write it to a "
    "file.{more}"
)
FREE_IT = (
    "What it wrote is still there. Nothing more can be written; reading and deleting still work. "
    "Delete what you made and do not need, and ask the person about the rest."
)
_ERRORS: dict[str, tuple[str, str]] = {
    "flood": ("It wrote too much and was stopped.", "Write the output to a file, or ask for less of it."),
    "memory": ("It used too much memory and was stopped.", "Work on smaller pieces."),
    "disk": ("It filled the disk and was stopped.", "Remove what it wrote, and say so."),
    "full": ("It was stopped when the workspace was full.", FREE_IT),
    "killed": ("The system ended it, as it does when memory runs out.", "Work on smaller pieces."),
}


class ShellArguments(Arguments):
    command: str = Field(min_length=1, description="Command for the shell")
    timeout_s: float | None = Field(
        default=None, gt=0, description="Seconds until it is stopped; less than the tool's own limit"
    )

    @field_validator("command")
    @classmethod
    def _fits_an_argument(cls, command: str) -> str:
        try:
            size = len(command.encode())
        except UnicodeEncodeError:
            raise ValueError("must be valid Unicode") from None
        if "\0" in command:
            raise ValueError("must not contain a NUL character")
        if size > MAX_COMMAND:
            raise ValueError(f"must be at most {MAX_COMMAND} bytes: write a script to a file and run that")
        return command

    def subject(self) -> str:
        return self.command


@dataclass(frozen=True)
class Shell:
    sandbox: Sandbox
    offload: Offload
    name: ClassVar[str] = "shell"
    risk: ClassVar[Literal["exec"]] = "exec"
    arguments: ClassVar[type[Arguments]] = ShellArguments

    @property
    def description(self) -> str:
        landlock = self.sandbox.layer == "landlock"
        return _DESCRIPTION.format(
            tmp="" if landlock else " besides /tmp, which is empty at each start",
            more=" chmod does not work here (use `sh script`), nor does /tmp." if landlock else "",
        )

    async def __call__(self, arguments: Arguments, context: ToolContext) -> JsonValue | ToolOutput:
        assert isinstance(arguments, ShellArguments)
        now = anyio.current_time()
        deadline = min(context.deadline, now + (arguments.timeout_s or context.deadline - now))
        # Checked before, because a command can remove the trace, and after, because a file may arrive meanwhile.
        outside = await self.offload(holds_outside_text, context.workspace)
        result = await self.sandbox.run(arguments.command, context.workspace, deadline)
        origin = ORIGIN if outside or await self.offload(holds_outside_text, context.workspace) else ""
        report = _report(result)
        match result.outcome:
            case "exited" if not result.exit_code:
                return ToolOutput(report, origin=origin)
            case "exited":
                message, suggestion = explain_exit(result.exit_code or 0, arguments.command)
                raise CommandFailed(message, suggestion=suggestion, partial=report, origin=origin)
            case "timeout":
                raise ToolTimeout(
                    f"The command was stopped after {anyio.current_time() - now:.0f} s; "
                    "it may have done half its work.",
                    suggestion="Do less at once, or let it write to a file and look at that.",
                    partial=report,
                    origin=origin,
                )
            case stopped:
                message, suggestion = _ERRORS[stopped]
                raise SandboxFailed(message, suggestion=suggestion, partial=report, origin=origin)


def _report(result: CommandResult) -> dict[str, JsonValue]:
    report: dict[str, JsonValue] = {"stdout": result.stdout, "stderr": result.stderr}
    if result.exit_code is not None:
        report = {"exit_code": result.exit_code, **report}
    if result.left_out:
        report["left_out_bytes"] = result.left_out
    if result.limit_reached:
        report["workspace"] = (
            f"{result.limit_reached} {FREE_IT}" if result.outcome == "exited" else result.limit_reached
        )
    return report
