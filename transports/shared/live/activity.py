"""What a turn is doing, in a few plain words: the tools that run, and what it waits for. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable

from threads.model import ToolFinished, ToolStarted, Waiting

MOST_RUNNING = 50
"""Running tools of one turn that are known by name; more are not shown."""


def doing(tool: ToolStarted) -> str:
    """Return what a tool does in a few plain words, such as "reading notes.md"; nothing in them is escaped."""
    return tool.label or tool.name


def waiting_words(waiting: Waiting) -> str:
    """Return what a turn waits for, after the bot's name: "is waiting: …"."""
    if not 0 < waiting.seconds < math.inf:
        return f"is waiting: {waiting.reason}"
    tries = f", {waiting.attempt} of {waiting.attempts}" if waiting.attempts else ""
    return f"is waiting: {waiting.reason}, trying again in {math.ceil(waiting.seconds)} s{tries}"


class Running:
    """The tools of a turn that run, oldest first; one that nobody gave an id gets a number."""

    __slots__ = ("_count", "_tools")

    def __init__(self) -> None:
        self._tools: dict[str, ToolStarted] = {}
        self._count = 0

    @property
    def words(self) -> str:
        """Return what the newest of them does, ``""`` when none runs."""
        return doing(next(reversed(self._tools.values()))) if self._tools else ""

    def started(self, tool: ToolStarted) -> str:
        """Return an id for the running tool, ``""`` when too many run."""
        if len(self._tools) >= MOST_RUNNING:
            return ""
        self._count += 1
        tool_id = tool.call_id or f"tool-{self._count}"
        self._tools[tool_id] = tool
        return tool_id

    def finished(self, tool: ToolFinished) -> tuple[str, ToolStarted] | None:
        """Return the tool's id and how it started, if that is known."""
        tool_id = tool.call_id if tool.call_id in self._tools else _named(self._tools.items(), tool.name)
        return (tool_id, self._tools.pop(tool_id)) if tool_id in self._tools else None

    def clear(self) -> None:
        self._tools.clear()


def _named(tools: Iterable[tuple[str, ToolStarted]], name: str) -> str:
    return next((tool_id for tool_id, tool in tools if tool.name == name and not tool.call_id), "")
