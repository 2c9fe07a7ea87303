"""Events of a turn, for transports to show."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from .messages import Outcome
from .questions import QuestionKind


@dataclass(frozen=True, slots=True)
class Taken:
    """A message is on disk and waits for its turn. ``text`` and ``author`` are the message's.

    ``again``: an earlier process had received it, and may have left signs on it. ``replaces`` is the earlier message
    whose place it takes.
    """

    text: str = ""
    author: str = ""
    again: bool = False
    replaces: str = ""


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """The turn of a message began. ``text`` and ``author`` are the message's."""

    text: str = ""
    author: str = ""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More of the answer's visible text."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """More of the model's reasoning. It shows progress and is not part of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class TextReset:
    """Remove the text shown since the last step began. The call failed and is made again."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The turn waits ``seconds`` for something outside the process. It holds no slot while it waits.

    Before a retry, ``attempt`` is the number of the coming attempt and ``attempts`` how many there are at most; the
    first one is counted in both.
    """

    reason: str
    seconds: float
    attempt: int = 0
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class Resumed:
    """The wait is over."""


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A tool call began. ``label`` says what it does in a few plain words, such as "reading notes.md".

    ``arguments`` are all of them, as JSON, with secrets masked.
    """

    name: str
    summary: str = ""
    call_id: str = ""
    label: str = ""
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """A tool call ended. ``result`` is the beginning of what the model gets, with secrets masked."""

    name: str
    ok: bool
    call_id: str = ""
    result: str = ""


@dataclass(frozen=True, slots=True)
class UsageCounted:
    """What the turn has used so far: ``tokens`` of all its calls, and the share of its prompts that was ``cached``.

    ``cost_usd`` is None if a price is unknown.
    """

    model: str
    tokens: int
    cached: float
    cost_usd: float | None


UNDECIDED = "Not decided."
"""The decision of a question whose turn ended first."""


@dataclass(frozen=True, slots=True)
class QuestionClosed:
    """The question with this post ``key`` is closed. ``by`` is the person who decided, blank if time ran out.

    ``kind`` is the question's. ``choice`` is the label of the option that an answer chose. ``stopped``: its turn was
    stopped first.
    """

    key: str
    approved: bool
    by: str = ""
    kind: QuestionKind = "decision"
    choice: str = ""
    stopped: bool = False

    def decision(self, who: str) -> str:
        """Return the decision, for below the question; *who* is the person's name, if known."""
        if self.stopped:
            return UNDECIDED
        if not self.by:
            return f"Nobody {'answered' if self.kind == 'answer' else 'decided'} in time."
        by = who and f" by {who}"
        if self.kind == "answer":
            return f"Answered{by}{f': {self.choice}' if self.choice else '.'}"
        return f"{'Approved' if self.approved else 'Declined'}{by}."


@dataclass(frozen=True, slots=True)
class Asked:
    """A question as it was posted, and how it was closed."""

    text: str
    closed: QuestionClosed


StageState = Literal["waiting", "running", "passed", "failed", "skipped", "parked"]

STAGE_SIGNS: Mapping[StageState, str] = {
    "waiting": "○",
    "running": "▸",
    "passed": "✓",
    "failed": "✗",
    "skipped": "↷",
    "parked": "⏸",
}


@dataclass(frozen=True, slots=True)
class StageShown:
    """One stage of a playbook, for a list of them."""

    name: str
    state: StageState


@dataclass(frozen=True, slots=True)
class StagesChanged:
    """A playbook went on. ``stages`` are all of its stages, in their order. It replaces the event before."""

    title: str
    stages: tuple[StageShown, ...]

    @property
    def lines(self) -> str:
        """Return the stages with their signs, one a line."""
        return "\n".join(f"{STAGE_SIGNS[stage.state]} {stage.name}" for stage in self.stages)

    @property
    def text(self) -> str:
        """Return the name of the playbook, and its stages below."""
        return f"{self.title}\n{self.lines}"


@dataclass(frozen=True, slots=True)
class TurnSettled:
    """The message has its outcome. No more events of this turn follow.

    ``again``: an earlier process had received it, and may already have shown this outcome. ``interrupted``: that
    process had begun to answer, and an unfinished answer may still be visible. ``code`` says why a message failed or
    was refused. ``shown`` is what people saw of an answer that was stopped.
    """

    outcome: Outcome
    again: bool = False
    interrupted: bool = False
    code: str = ""
    shown: str = ""


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
    | UsageCounted
    | QuestionClosed
    | StagesChanged
    | TurnSettled
)

OnEvent = Callable[[TurnEvent], Awaitable[None]]
