"""Reading foreign JSON: a field that is missing or of another type reads as empty; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal

from pydantic import JsonValue

Shape = Mapping[str, JsonValue]
"""An unchecked JSON object."""

_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_STAMP = re.compile(r"[0-9]{1,11}(?:\.[0-9]{1,9})?")


def string(shape: Shape, name: str) -> str:
    value = shape.get(name)
    return value if isinstance(value, str) else ""


def count(shape: Shape, name: str) -> int:
    """Return a whole number that is not negative, or 0."""
    value = shape.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def part(shape: Shape, name: str) -> Shape:
    value = shape.get(name)
    return value if isinstance(value, dict) else {}


def parts(shape: Shape, name: str) -> Sequence[Shape]:
    value = shape.get(name)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def identifier(shape: Shape, name: str) -> str:
    """Return the id of a person, a channel or an event; one with odd characters reads as missing."""
    value = string(shape, name)
    return value if _ID.fullmatch(value) else ""


def stamp(shape: Shape, name: str) -> str:
    """Return a Slack time such as ``1700000000.000100``, which is also the id of a message in its channel."""
    value = string(shape, name)
    return value if is_stamp(value) else ""


def is_stamp(value: str) -> bool:
    """Return whether an id is a message's; a press, a slash command and a stop have ids of our own."""
    return _STAMP.fullmatch(value) is not None


def instant(ts: str) -> Decimal:
    """Return a Slack time in seconds since 1970, exactly."""
    return Decimal(ts)


def place_of(channel: str, ts: str) -> str:
    """Return what tells a message from all others of its workspace."""
    return f"{channel} {ts}"


def is_direct(channel: str) -> bool:
    """Return whether a channel is a DM with the bot: only their ids begin with a D."""
    return channel.startswith("D")


def is_one_persons(message_id: str) -> bool:
    """Return whether the answer to this message is for the person alone who pressed, typed or chose it."""
    return message_id.startswith(("ask-", "press-", "slash-"))
