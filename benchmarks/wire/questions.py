"""What people ask and what the model answers: a question names its kind and a number, which the answer has too."""

from __future__ import annotations

import itertools
import re
from typing import Literal

Kind = Literal["short", "long", "tool"]
WORDS = 2_000
STREAM_S = 4.0
"""The words of a long answer come at an even pace over so many seconds."""

TOOLS = ("list_files", "list_dir")
"""The model calls the first of these that it is offered, with the folder that it starts in."""

_QUESTION = re.compile(r"q-(short|long|tool)-(\d+)-q")
_SENTENCE = (
    "the",
    "build",
    "of",
    "this",
    "morning",
    "went",
    "through",
    "and",
    "every",
    "check",
    "is",
    "green.",
)


def question(kind: Kind, number: int) -> str:
    return f"please have a look at the build q-{kind}-{number}-q"


def newest_question(text: str) -> tuple[Kind, int] | None:
    """Return the newest question in *text*, which may hold earlier ones too."""
    found = _QUESTION.findall(text)
    if not found:
        return None
    kind, number = max(found, key=lambda one: int(one[1]))
    return kind, int(number)


def words_of_answer(kind: Kind, number: int) -> list[str]:
    """Return the answer in words, each with the space or break after it."""
    first, last = [opening(number) + " "], [closing(number)]
    if kind != "long":
        return [*first, "all ", "right, ", *last]
    words = itertools.islice(itertools.cycle(_SENTENCE), WORDS - 2)
    body = [word + ("\n\n" if n % 100 == 99 else " ") for n, word in enumerate(words)]
    return [*first, *body, *last]


def opening(number: int) -> str:
    return f"Answer{number}:"


def closing(number: int) -> str:
    return f"done{number}."
