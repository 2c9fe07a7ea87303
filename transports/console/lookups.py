"""What a terminal looks up: earlier chats, and what may be chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from threads.model import ThreadId


class Exchange(NamedTuple):
    """What a person said last, and the answer; ``at`` is when that came, in words."""

    at: str
    asked: str
    answer: str


@dataclass(frozen=True, slots=True)
class Lookups:
    """All of them may block. What they return has its secrets masked.

    ``asked`` returns the text of a message of an earlier session that has no outcome yet, blank for any other;
    ``last`` what was said last in a thread. ``threads`` and ``models`` return the names that may be chosen, the
    newest or the usual one first, each with a few words about it.
    """

    asked: Callable[[ThreadId, str], str] = lambda *_: ""
    last: Callable[[ThreadId], Exchange | None] = lambda _: None
    threads: Callable[[], Mapping[str, str]] = dict
    models: Callable[[], Mapping[str, str]] = dict


NOTHING = Lookups()
"""For a chat without a store."""
