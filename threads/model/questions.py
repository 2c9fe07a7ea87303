"""Questions to the people of a thread, and their answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Option:
    """A possible answer to a question. ``words`` are what it grants, such as an amount."""

    label: str
    approve: bool
    words: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """A person's decision. ``words`` are what they added, or the option's own.

    If time ran out, the answer is a no and ``by`` is blank.
    """

    approved: bool
    by: str
    words: str = ""

    @property
    def declines_all(self) -> bool:
        return not self.approved and self.words.strip().lower() == "all"


async def nothing_to_keep(_: Answer) -> None:
    """Do nothing: the answer need not outlive this process."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question that only a person may decide.

    ``may_answer`` says whether the author with this id may answer. ``about`` is for a status line. ``brief``
    distinguishes the question from others that are open at the same time. ``fault`` returns what is wrong with the
    words of a yes, or a blank; the question stays open after a fault. ``same`` identifies the question after a
    restart; without it, its text and its place among the turn's questions do. The question stays open for
    ``within_s`` seconds. ``keep`` makes the answer durable before anybody sees it.
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
