"""Money: micro-dollars as whole numbers inside, dollars for people."""

from __future__ import annotations

import math

MICRO = 1_000_000
"""Micro-dollars in a dollar."""


def micros(usd: float) -> int:
    """Return a cost in whole micro-dollars, rounded up beyond what floats make of it; never negative."""
    return max(0, math.ceil(round(usd * MICRO, 6)))


def dollars(amount: int) -> float:
    return amount / MICRO


def usd(amount: int) -> str:
    """Return an amount for people, in cents; an amount below a cent has more digits."""
    digits = 2 if amount == 0 or amount >= 10_000 else 4
    return f"${dollars(amount):.{digits}f}"
