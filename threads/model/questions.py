"""Questions to the people of a thread, and their answers."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal

QuestionKind = Literal["decision", "answer"]
"""What a question is about: a decision, which is a yes or a no, or an answer in words, which approves nothing."""


@dataclass(frozen=True, slots=True)
class Option:
    """A possible answer to a question. ``words`` are what it grants, such as an amount, or what identifies it."""

    label: str
    approve: bool
    words: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """A person's decision or answer. ``words`` are what they added or wrote, or the option's own.

    If time ran out, the answer is a no and ``by`` is blank. ``message_id`` is that of a message which is the answer.
    """

    approved: bool
    by: str
    words: str = ""
    message_id: str = ""

    @property
    def declines_all(self) -> bool:
        return not self.approved and self.words.strip().lower() == "all"


async def nothing_to_keep(_: Answer) -> None:
    """Do nothing: the answer need not outlive this process."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question that only a person may decide or answer.

    ``may_answer`` says whether the author with this id may answer. ``about`` is for a status line. ``brief``
    distinguishes the question from others that are open at the same time. ``fault`` returns what is wrong with the
    words of a yes, or a blank; the question stays open after a fault. ``same`` identifies the question after a
    restart; without it, its text and its place among the turn's questions do. The question stays open for
    ``within_s`` seconds. ``keep`` makes the answer durable before anybody sees it.

    For a question about an answer, ``fault`` judges the words of any answer. ``asker`` is the person whose next
    message in the thread is the answer: any message with ``free_text``, else one that chooses an option.
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
    kind: QuestionKind = "decision"
    asker: str = ""
    free_text: bool = False

    def option(self, words: str) -> Option | None:
        """Return the option that a person means: by its label, by its own words, or by its number."""
        return chosen(self.options, words)


def chosen(options: Sequence[Option], words: str) -> Option | None:
    """Return the option that *words* choose: by its label, with or without the number before it, or by its words.

    A bare number chooses the option with that number, unless a label is a number itself.
    """
    said = " ".join(words.split()).casefold()
    bare = {_bare(option.label): option for option in reversed(options)}
    numbered = {} if any(label.isdigit() for label in bare) else {o.words.lstrip("#"): o for o in options}
    named = {name.casefold(): option for option in options for name in (option.label, option.words)}
    return bare.get(said) or named.get(said) or numbered.get(said)


def _bare(label: str) -> str:
    """Return a label without its number, as it is compared."""
    return " ".join(re.sub(r"\A\d+\. ", "", label).split()).casefold()
