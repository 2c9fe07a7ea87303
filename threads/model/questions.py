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
    """Return the option that *words* choose: by its label, with or without its number, or by its own words.

    The own words "#2" stand for "2" as well.
    """
    said = " ".join(words.split()).casefold()
    by_mark = {option.words.removeprefix("#"): option for option in options}
    by_name = {name.casefold(): option for option in options for name in (option.label, option.words)}
    by_label = {_bare(option.label): option for option in options}
    return {**by_mark, **by_name, **by_label}.get(said)


def _bare(label: str) -> str:
    """Return a label without its number, or the letter in its place, as it is compared."""
    return re.sub(r"\A\w\. ", "", label).casefold()
