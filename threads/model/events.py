"""What happens in a turn, for those who show it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from .messages import Outcome


@dataclass(frozen=True, slots=True)
class Taken:
    """A message is on disk and waits for its turn: show a sign. ``text`` and ``author`` are the message's.

    ``again``: an earlier process had taken it, and may have left its signs.
    """

    text: str = ""
    author: str = ""
    again: bool = False


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """A message's turn began: show a sign. ``text`` and ``author`` are the message's."""

    text: str = ""
    author: str = ""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More of the answer's visible text."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """More of what the model says to itself: a sign of progress, no part of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class TextReset:
    """Forget the text shown since the last step began: the call failed and will be made again."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The turn waits ``seconds`` for something outside, and holds no slot meanwhile."""

    reason: str
    seconds: float
    attempt: int = 0
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class Resumed:
    """The wait is over."""


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """``label`` says what the tool does, in a few plain words such as "reading notes.md"."""

    name: str
    summary: str = ""
    call_id: str = ""
    label: str = ""


@dataclass(frozen=True, slots=True)
class ToolFinished:
    name: str
    ok: bool
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class QuestionClosed:
    """The question that was posted under ``key`` is open no more: decided ``by`` a person, or by nobody in time."""

    key: str
    approved: bool
    by: str = ""


@dataclass(frozen=True, slots=True)
class TurnSettled:
    """The message at hand has its outcome; nothing more of this turn follows.

    ``again``: an earlier process had taken it, and may even have shown this; ``interrupted``: it had begun to answer,
    and what it showed may still stand there unfinished. ``code`` says why a message failed or was refused.
    """

    outcome: Outcome
    again: bool = False
    interrupted: bool = False
    code: str = ""


TurnEvent = (
    Taken
    | TurnStarted
    | TextDelta
    | ThinkingDelta
    | TextReset
    | Waiting
    | Resumed
    | ToolStarted
    | ToolFinished
    | QuestionClosed
    | TurnSettled
)

OnEvent = Callable[[TurnEvent], Awaitable[None]]
