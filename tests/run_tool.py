"""A shell that runs nothing, for tests about permissions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from bot.ports.tool import Arguments


class RunArguments(Arguments):
    command: str

    def subject(self):
        return self.command


@dataclass
class Run:
    """Records the commands that it would run."""

    ran: list[str] = field(default_factory=list)
    name: ClassVar[str] = "shell"
    description: ClassVar[str] = "Run a command."
    risk: ClassVar[str] = "exec"
    arguments: ClassVar[type[Arguments]] = RunArguments

    async def __call__(self, arguments, context):
        self.ran.append(arguments.command)
        return f"ran {arguments.command}"
