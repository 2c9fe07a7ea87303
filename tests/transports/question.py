"""A question of the bot as people see it, on any transport."""

from __future__ import annotations

from dataclasses import dataclass

ASKS = "May I use"


@dataclass(frozen=True)
class Question:
    """A question as it is shown now: its words, and its buttons by what they say."""

    id: str
    text: str
    buttons: dict[str, str]
