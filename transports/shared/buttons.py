"""Buttons: which questions are open, and what replaces the buttons of a message.

An accepted press replaces the buttons by the choice. A stranger's press is not accepted and changes nothing for the
others. The buttons of a question go when the question is closed.
"""

from __future__ import annotations

import re
from typing import Generic, Protocol, TypeVar

from cachetools import FIFOCache, LRUCache

from threads.model import Incoming, Taken, TurnEvent, TurnSettled, Verdict

MOST_PRESSES = 1_000
"""Presses that may still be accepted."""

MOST_QUESTIONS = 1_000

ANSWERS = ("/approve", "/deny", "/answer")
LASTING = ("/stop", *ANSWERS)
"""Commands whose buttons stay after a press. They go with their draft or question: without its stop button, what a
killed process left would no longer be known as unfinished."""

THANKS: dict[Verdict, str] = {
    "up": "Thank you.",
    "down": "Thank you. Tell me here what was wrong with it, and I will try again.",
}
"""The reply to a verdict on an answer, for its person alone."""

_CONTROL = re.compile(r"\s*(?:[/!](?!play\b)[a-z]|stop\s*\Z)", re.IGNORECASE)
_PRESS = re.compile(
    r"\s*(?:[/!]?stop|[/!](?:approve|deny|answer)\s+q[0-9a-f]{8}\b.*)\s*\Z", re.IGNORECASE | re.DOTALL
)


def is_control(text: str) -> bool:
    """Return whether a message steers the bot and says nothing to it."""
    return _CONTROL.match(text) is not None


def is_press(text: str) -> bool:
    """Return whether a message does what a button does: it stops, or answers a question by its id."""
    return _PRESS.match(text) is not None


class Press(Protocol):
    """A choice that a person made. Only this person sees an ``ephemeral`` message."""

    @property
    def incoming(self) -> Incoming: ...

    @property
    def ephemeral(self) -> bool: ...


P = TypeVar("P", bound=Press)
Q = TypeVar("Q")


class Presses(Generic[P]):
    def __init__(self) -> None:
        self._pressed: FIFOCache[str, P] = FIFOCache(MOST_PRESSES)

    def add(self, press: P) -> None:
        """Remember a press before it is handed over."""
        if not press.ephemeral and not press.incoming.text.startswith(LASTING):
            self._pressed[press.incoming.id] = press

    def pop_accepted(self, message_id: str, event: TurnEvent) -> P | None:
        """Return the press that this event accepts, once."""
        if not isinstance(event, Taken | TurnSettled):
            return None
        press = self._pressed.pop(message_id, None)
        return press if isinstance(event, Taken) or event.outcome == "answered" else None


class OpenQuestions(LRUCache[str, Q]):
    """The open questions by the keys of their posts."""

    def __init__(self) -> None:
        super().__init__(MOST_QUESTIONS)

    def pop_all_of(self, key: str) -> list[Q]:
        """Remove the questions of the message with this *key*, and return them."""
        return [self.pop(question) for question in [*self] if question.startswith(f"{key}?")]
