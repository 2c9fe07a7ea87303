"""What tools do, as the task cards of a native stream. Pure.

A card goes from in_progress to complete or error, at most once each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import JsonValue

from transports.slack.markdown.escape import safe
from transports.slack.markdown.links import Links


@dataclass(frozen=True, slots=True)
class Card:
    """One tool's card: ``title`` is safe to show."""

    id: str
    title: str
    status: Literal["in_progress", "complete", "error"]

    @property
    def chunk(self) -> dict[str, JsonValue]:
        return {"type": "task_update", "id": self.id, "title": self.title, "status": self.status}


def inert(text: str, links: Links) -> str:
    """Return *text* so that no link, mention or markup of it works."""
    return safe(text.replace("`", "'"), links)
