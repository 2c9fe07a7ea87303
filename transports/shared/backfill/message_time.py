"""How a platform writes times: as text, and the ids of its messages are such times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

NEVER = "0"
"""A time that is older than all others."""


@dataclass(frozen=True, slots=True)
class Scale:
    """One platform's.

    ``at`` writes a moment and ``before`` the time so many seconds earlier, neither less than `NEVER`; ``just_before``
    is less than a message's id, and not less than that of any message before. ``unheard`` says whether something may
    have been said in a channel that was never heard of.
    """

    order: Callable[[str], Decimal]
    at: Callable[[datetime], str]
    before: Callable[[str, float], str]
    just_before: Callable[[str], str]
    unheard: Callable[[str], bool]

    def later(self, one: str, other: str) -> str:
        return max(one, other, key=self.order)

    def earlier(self, one: str, other: str) -> str:
        return min(one, other, key=self.order)

    def is_before(self, one: str, other: str) -> bool:
        return self.order(one) < self.order(other)
