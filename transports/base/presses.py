"""Presses of buttons: an accepted press replaces the buttons by the choice.

A stranger's press is not accepted and changes nothing for the others. The buttons of a question go when the question
is closed.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from cachetools import FIFOCache

from threads.model import Incoming, QuestionClosed, Taken, TurnEvent, TurnSettled

REMEMBERED = 1_000
"""Presses that may still be accepted."""

ANSWERS = ("/approve", "/deny")
LASTING = ("/stop", *ANSWERS)
"""Commands whose buttons stay after a press. They go with their draft or question: without its stop button, what a
killed
process left would no longer be known as unfinished."""

UNDECIDED = "Not decided."
"""The decision of a question whose turn ended first."""


class Press(Protocol):
    """A choice that a person made. Only this person sees an ``ephemeral`` message."""

    @property
    def incoming(self) -> Incoming: ...

    @property
    def ephemeral(self) -> bool: ...


P = TypeVar("P", bound=Press)


class Presses(Generic[P]):
    def __init__(self) -> None:
        self._pressed: FIFOCache[str, P] = FIFOCache(REMEMBERED)

    def pressed(self, press: P) -> None:
        """Remember a press before it is handed over."""
        if not press.ephemeral and not press.incoming.text.startswith(LASTING):
            self._pressed[press.incoming.id] = press

    def taken(self, message_id: str, event: TurnEvent) -> P | None:
        """Return the press that this event accepts, once."""
        match event:
            case Taken() | TurnSettled("answered"):
                return self._pressed.pop(message_id, None)
            case TurnSettled():
                self._pressed.pop(message_id, None)
            case _:
                pass
        return None


def decided(event: QuestionClosed, who: str) -> str:
    """Return the decision of a question, for below its text; *who* is the person's name, if known."""
    if not event.by:
        return "Nobody decided in time."
    return f"{'Approved' if event.approved else 'Declined'}{who and ' by '}{who}."
