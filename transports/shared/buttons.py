"""Buttons: which questions are open, and what replaces the buttons of a message.

An accepted press replaces the buttons by the choice. A stranger's press is not accepted and changes nothing for the
others. The buttons of a question go when the question is closed. A death may come before any of that: what is pressed
again after it was carried out loses its buttons then.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

from cachetools import FIFOCache, LRUCache

from threads.model import Incoming, Outcome, Taken, TurnEvent, TurnSettled, Verdict

MOST_PRESSES = 1_000
"""Presses that may still be accepted."""

MOST_QUESTIONS = 1_000

ANSWERS = ("/approve", "/deny", "/answer")
"""Commands whose buttons stay after a press, and go with their question. So do those of `/stop`, with their draft:
without its stop button, what a killed process left would no longer be known as unfinished."""

CARRIED_OUT: tuple[Outcome, ...] = ("answered", "merged")

THANKS: dict[Verdict, str] = {
    "up": "Thank you.",
    "down": "Thank you. Tell me here what was wrong with it, and I will try again.",
}
"""The reply to a verdict on an answer, for its person alone."""

_CONTROL = re.compile(r"\s*(?:[/!](?!play\b)[a-z]|stop\s*\Z)", re.IGNORECASE)


def is_control(text: str) -> bool:
    """Return whether a message steers the bot and says nothing to it."""
    return _CONTROL.match(text) is not None


class Press(Protocol):
    """A choice that a person made: ``place`` is the message with its button.

    Only this person sees an ``ephemeral`` message.
    """

    @property
    def incoming(self) -> Incoming: ...

    @property
    def place(self) -> str: ...

    @property
    def ephemeral(self) -> bool: ...


P = TypeVar("P", bound=Press)
Q = TypeVar("Q")


class OpenQuestions(LRUCache[str, Q]):
    """The open questions by the keys of their posts."""

    def __init__(self) -> None:
        super().__init__(MOST_QUESTIONS)
        self._places: FIFOCache[str, None] = FIFOCache(MOST_QUESTIONS)

    def add(self, key: str, place: str, question: Q) -> None:
        """Add a question; *place* is the message with its buttons."""
        self[key], self._places[place] = question, None

    def has_seen(self, place: str) -> bool:
        """Return whether a message holds or held a question of this process, which takes its buttons off itself."""
        return place in self._places

    def pop_all_of(self, key: str) -> list[Q]:
        """Remove the questions of the message with this *key*, and return them."""
        return [self.pop(question) for question in [*self] if question.startswith(f"{key}?")]


class Presses(Generic[P]):
    """The presses that are not over."""

    def __init__(self, questions: OpenQuestions[Any]) -> None:
        self.questions = questions
        self._pressed: FIFOCache[str, P] = FIFOCache(MOST_PRESSES)

    async def hand_over(
        self, press: P, click: str, take: Callable[[Incoming], Awaitable[Outcome | None]]
    ) -> bool:
        """Hand a press over to *take*. Returns whether its buttons go at once, because it was carried out before.

        A second press of a button by the same person is the same message, but for one that came to nothing: that
        is a new one. *click* is different for each press.
        """
        if (outcome := await take(self._add(press, press.incoming))) is not None:
            self._pressed.pop(press.incoming.id, None)  # nothing more is told of it
        if outcome in CARRIED_OUT:
            return self._has_to_go(press)
        if outcome is not None:
            await take(self._add(press, replace(press.incoming, id=f"{press.incoming.id}-{click}")))
        return False

    def pop_over(self, message_id: str, event: TurnEvent) -> P | None:
        """Return the press whose buttons go with this event, once."""
        if not isinstance(event, Taken | TurnSettled) or (press := self._pressed.get(message_id)) is None:
            return None
        if (answers := press.incoming.text.startswith(ANSWERS)) and isinstance(event, Taken):
            return None
        del self._pressed[message_id]
        accepted = answers or isinstance(event, Taken) or event.outcome == "answered"
        return press if accepted and self._has_to_go(press) else None

    def _add(self, press: P, incoming: Incoming) -> Incoming:
        self._pressed[incoming.id] = press
        return incoming

    def _has_to_go(self, press: P) -> bool:
        """Return whether nothing else takes the buttons off, as the end of a draft or of a question does."""
        if press.ephemeral or press.incoming.text.startswith("/stop"):
            return False
        return not (press.incoming.text.startswith(ANSWERS) and self.questions.has_seen(press.place))
