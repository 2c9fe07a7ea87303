"""Commands in the thread's workspace, in the sandbox of `bot.extensions.shell.sandbox`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal

import anyio
from pydantic import Field, JsonValue, field_validator

from bot.extensions.shell.exit_codes import explain_exit
from bot.extensions.shell.sandbox import CommandResult, Sandbox
from bot.ports.errors import CommandFailed, SandboxFailed, ToolTimeout
from bot.ports.tool import Arguments, ToolContext, ToolOutput
from bot.tools.files.workspace import holds_outside_text, mark_output
from threads.store.disk import Offload

if TYPE_CHECKING:
    from bot.extensions.shell.network.proxy import Network, Proxy
    from bot.observe.audit import Note

MAX_COMMAND = 100_000
"""Bytes of a command: the kernel takes no argument of more than 128 KiB."""

ORIGIN = "command"

_DESCRIPTION = (
    "Run a shell command in this thread's workspace, which is its current folder and the only one it can write to"
    "{tmp}. {network}, no input, none of the bot's own files. Processes that it leaves running are killed. "
    "If it fails, `partial` has its exit_code, stdout and stderr. Long output is cut in the middle: write it to a "
    "file.{more}"
)
_NETWORK = (
    "Network to nothing but {hosts}, by the proxy that the environment names (curl, git, pip and npm use it; "
    "`network` has what was refused)"
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
    """With *network*, which needs *note*, commands reach its hosts."""

    sandbox: Sandbox
    offload: Offload
    network: Network | None = None
    note: Note | None = None
    name: ClassVar[str] = "shell"
    risk: ClassVar[Literal["exec"]] = "exec"
    arguments: ClassVar[type[Arguments]] = ShellArguments

    @property
    def description(self) -> str:
        landlock = self.sandbox.layer == "landlock"
        return _DESCRIPTION.format(
            network=_NETWORK.format(hosts=self.network.named) if self.network else "No network",
            tmp="" if landlock else " besides /tmp, which is empty at each start",
            more=" chmod does not work here (use `sh script`), nor does /tmp." if landlock else "",
        )

    async def __call__(self, arguments: ShellArguments, context: ToolContext) -> JsonValue | ToolOutput:
        now = anyio.current_time()
        deadline = min(context.deadline, now + (arguments.timeout_s or context.deadline - now))
        # Checked before, because a command can remove the trace, and after, because a file may arrive meanwhile.
        outside = await self.offload(holds_outside_text, context.workspace)
        proxy = self._proxy(context)
        result = await self.sandbox.run(arguments.command, context.workspace, deadline, proxy)
        origin = ORIGIN if outside or await self.offload(holds_outside_text, context.workspace) else ""
        report = _report(result)
        if proxy and proxy.refusals:
            report["network"] = [*proxy.refusals]
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

    def _proxy(self, context: ToolContext) -> Proxy | None:
        """Return what a command's connections go through; None without a network."""
        if self.network is None or self.note is None:
            return None
        from bot.extensions.shell.network.proxy import Proxy  # noqa: PLC0415 - only where there is a network

        note, workspace = self.note, context.workspace

        async def audit(details: Mapping[str, str]) -> None:
            await note("network", context.thread, context.message_id, context.asker.id, details)

        async def opening() -> None:
            # What a command fetches is text from outside, in all later calls too.
            await self.offload(partial(mark_output, workspace, outside=True))

        return Proxy(self.network, audit, opening)


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
