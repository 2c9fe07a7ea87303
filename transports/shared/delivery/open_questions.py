"""The questions that are out, by the keys of their posts."""

from __future__ import annotations

from typing import TypeVar

from cachetools import LRUCache

MOST_OPEN = 1_000

Q = TypeVar("Q")


class OpenQuestions(LRUCache[str, Q]):
    def __init__(self) -> None:
        super().__init__(MOST_OPEN)

    def pop_all_of(self, key: str) -> list[Q]:
        """Take the questions of the message *key* out, and return them."""
        return [self.pop(asked) for asked in [*self] if asked.startswith(f"{key}?")]
