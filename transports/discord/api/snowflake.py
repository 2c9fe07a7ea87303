"""Discord's ids: 64 bit numbers that hold the time they were made, in milliseconds since 2015; pure.

They are text in our code, as in Discord's JSON. https://docs.discord.com/developers/reference#snowflakes
"""

from __future__ import annotations

from datetime import UTC, datetime

EPOCH_MS = 1_420_070_400_000
SHIFT = 22
"""The bits below the time."""


def is_snowflake(text: str) -> bool:
    """Return whether *text* is an id of Discord's; presses and slash commands have ids of our own."""
    return text.isascii() and text.isdigit() and len(text) <= 20


def number(text: str) -> int:
    """Return an id as a number, which rises with time; 0 if it is not an id."""
    return int(text) if is_snowflake(text) else 0


def at(moment: datetime) -> str:
    """Return the least id of that moment, "0" before 2015."""
    return str(max(0, round(moment.timestamp() * 1000) - EPOCH_MS) << SHIFT)


def instant(text: str) -> datetime:
    return datetime.fromtimestamp(((number(text) >> SHIFT) + EPOCH_MS) / 1000, UTC)


def before(text: str, seconds: float) -> str:
    """Return the least id of so many seconds before *text*."""
    return str(max(0, number(text) - (round(seconds * 1000) << SHIFT)))
