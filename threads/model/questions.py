"""Questions to the people of a thread, and their answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Option:
    """One answer to a question. ``words`` are what it grants, such as an amount."""

    label: str
    approve: bool
    words: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person decided. ``words`` are what they added, or the option's own.

    A no ``by`` nobody: the question was open for as long as it may be.
    """

    approved: bool
    by: str
    words: str = ""

    @property
    def declines_all(self) -> bool:
        return not self.approved and self.words.strip().lower() == "all"


async def nothing_to_keep(_: Answer) -> None:
    """Do nothing: the answer is for this process alone."""


@dataclass(frozen=True, slots=True)
class Question:
    """Something only a person may decide. ``may_answer`` judges an author's id; ``about`` is for a status line.

    ``brief`` tells it from other questions that are open beside it. ``fault`` tells what is wrong with the words of
    a yes, or gives ``""``: then the question stays open. ``same`` is what makes it the same question after a restart;
    without it, its text and its place among the turn's questions do. It stays open for ``within_s`` seconds. ``keep``
    makes the answer durable, before anybody is told of it.
    """

    text: str
    options: tuple[Option, ...]
    may_answer: Callable[[str], bool]
    about: str = "your decision"
    brief: str = ""
    fault: Callable[[str], str] = lambda _: ""
    same: str = ""
    within_s: float = 3600
    keep: Callable[[Answer], Awaitable[None]] = nothing_to_keep
