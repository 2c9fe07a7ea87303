"""What a turn is doing, in a few plain words: the tools that run, and what it waits for. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from threads.model import ToolFinished, ToolStarted, Waiting

MOST_RUNNING = 50
"""Running tools of one turn that are known by name; more are not shown."""


def tool_label(tool: ToolStarted) -> str:
    """Return what a tool does in a few plain words, such as "reading notes.md"; nothing in them is escaped."""
    return tool.label or tool.name


def waiting_words(waiting: Waiting) -> str:
    """Return what a turn waits for, after the bot's name: "is waiting: …"."""
    if not 0 < waiting.seconds < math.inf:
        return f"is waiting: {waiting.reason}"
    tries = f", {waiting.attempt} of {waiting.attempts}" if waiting.attempts else ""
    return f"is waiting: {waiting.reason}, trying again in {math.ceil(waiting.seconds)} s{tries}"


@dataclass(slots=True)
class RunningTools:
    """The running tools of a turn, oldest first, by their calls' ids, or their names where a call has no id."""

    _tools: dict[str, ToolStarted] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """Return what the newest of them does, ``""`` when none runs."""
        return tool_label(next(reversed(self._tools.values()))) if self._tools else ""

    def started(self, tool: ToolStarted) -> str:
        """Return an id for the running tool, ``""`` when too many run."""
        if len(self._tools) >= MOST_RUNNING:
            return ""
        tool_id = tool.call_id or tool.name
        self._tools[tool_id] = tool
        return tool_id

    def finished(self, tool: ToolFinished) -> tuple[str, ToolStarted] | None:
        """Return the tool's id and how it started, if that is known."""
        tool_id = tool.call_id or tool.name
        started = self._tools.pop(tool_id, None)
        return (tool_id, started) if started else None

    def clear(self) -> None:
        self._tools.clear()
