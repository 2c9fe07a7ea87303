"""What tools do, in words and as the task cards of a native stream. Pure.

A card goes from in_progress to complete or error, at most once each; a tool that nobody gave an id gets a number.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from pydantic import JsonValue

from threads.model import ToolFinished, ToolStarted
from transports.slack.render.escape import safe
from transports.slack.render.hosts import Links

MOST_RUNNING = 50
"""Running tools of one turn that are known by name; more are not shown."""

LONGEST_TITLE = 120
"""Characters; Slack documents none for a title and 256 for details and output."""

DOING = {
    "read_file": "reading",
    "write_file": "writing",
    "edit_file": "editing",
    "list_files": "looking through",
    "attach": "attaching",
    "shell": "running",
    "web_fetch": "reading",
    "browser": "browsing",
    "load_skill": "looking up",
    "recall": "remembering",
}
"""Verbs of the tools that people meet most; another is "using" by its name."""


@dataclass(frozen=True, slots=True)
class Card:
    """One tool's card: ``title`` is safe to show."""

    id: str
    title: str
    status: Literal["in_progress", "complete", "error"]

    @property
    def chunk(self) -> dict[str, JsonValue]:
        return {"type": "task_update", "id": self.id, "title": self.title, "status": self.status}


def doing(tool: ToolStarted) -> str:
    """Return what a tool does in a few plain words, such as "reading notes.md"."""
    verb = DOING.get(tool.name)
    words = f"{verb or f'using {tool.name}'} {tool.summary}" if tool.summary or not verb else f"{verb} files"
    line = " ".join(words.split())
    return line if len(line) <= LONGEST_TITLE else f"{line[: LONGEST_TITLE - 1]}…"


def inert(text: str, links: Links) -> str:
    """Return *text* so that no link, mention or markup of it works."""
    return safe(text.replace("`", "'"), links)


class Running:
    """The tools of a turn that run, oldest first."""

    __slots__ = ("_count", "_tools")

    def __init__(self) -> None:
        self._tools: dict[str, ToolStarted] = {}
        self._count = 0

    @property
    def words(self) -> str:
        """Return what the newest of them does, ``""`` when none runs."""
        return doing(next(reversed(self._tools.values()))) if self._tools else ""

    def started(self, tool: ToolStarted) -> str:
        """Return the id of the tool's card, ``""`` when too many run."""
        if len(self._tools) >= MOST_RUNNING:
            return ""
        self._count += 1
        card_id = tool.call_id or f"tool-{self._count}"
        self._tools[card_id] = tool
        return card_id

    def finished(self, tool: ToolFinished) -> tuple[str, ToolStarted] | None:
        """Return the card's id and how the tool started, if that is known."""
        card_id = tool.call_id if tool.call_id in self._tools else _named(self._tools.items(), tool.name)
        return (card_id, self._tools.pop(card_id)) if card_id in self._tools else None

    def clear(self) -> None:
        self._tools.clear()


def _named(tools: Iterable[tuple[str, ToolStarted]], name: str) -> str:
    return next((card_id for card_id, tool in tools if tool.name == name and not tool.call_id), "")
