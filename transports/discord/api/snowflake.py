"""Discord's ids: 64 bit numbers that hold the time they were made, in milliseconds since 2015; pure.

They are text in our code, as in Discord's JSON. https://docs.discord.com/developers/reference#snowflakes
"""

from __future__ import annotations

from datetime import UTC, datetime

EPOCH_MS = 1_420_070_400_000
SHIFT = 22
"""The bits below the time."""


def is_snowflake(text: str) -> bool:
    """Return whether *text* is an id of Discord's: a press or a slash command of ours is none."""
    return text.isascii() and text.isdigit() and len(text) <= 20


def number(text: str) -> int:
    """Return an id as a number, by which ids are ordered in time; 0 for what is no id."""
    return int(text) if is_snowflake(text) else 0


def at(moment: datetime) -> str:
    """Return the least id that is made at that moment, "0" before 2015."""
    return str(max(0, round(moment.timestamp() * 1000) - EPOCH_MS) << SHIFT)


def instant(text: str) -> datetime:
    return datetime.fromtimestamp(((number(text) >> SHIFT) + EPOCH_MS) / 1000, UTC)


def before(text: str, seconds: float) -> str:
    """Return the least id that was made so many seconds before *text* was."""
    return str(max(0, number(text) - (round(seconds * 1000) << SHIFT)))
