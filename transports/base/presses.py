"""What becomes of a button after it was pressed: it goes, or what was chosen stands in its place.

Only when the press was taken: a stranger's press changes nothing for the others. The buttons of a question go when
the question is closed, whoever answered it and however.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from cachetools import FIFOCache

from threads.model import Incoming, QuestionClosed, Taken, TurnEvent, TurnSettled

REMEMBERED = 1_000
"""Presses whose fate is waited for."""

ANSWERS = ("/approve", "/deny")

UNDECIDED = "Not decided."
"""How a question ended whose turn ended before anybody answered it."""


class Press(Protocol):
    """A choice that a person made. An ``ephemeral`` message is one that only this person sees."""

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
        if not press.ephemeral and not press.incoming.text.startswith(ANSWERS):
            self._pressed[press.incoming.id] = press

    def taken(self, message_id: str, event: TurnEvent) -> P | None:
        """Return the press that this event says was taken, once."""
        match event:
            case Taken() | TurnSettled("answered"):
                return self._pressed.pop(message_id, None)
            case TurnSettled():
                self._pressed.pop(message_id, None)
            case _:
                pass
        return None


def decided(event: QuestionClosed, who: str) -> str:
    """Return how a question ended, for below its text; *who* is the name of the person, if it is known."""
    if not event.by:
        return "Nobody decided in time."
    return f"{'Approved' if event.approved else 'Declined'}{who and ' by '}{who}."
