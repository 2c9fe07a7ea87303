"""Scheduled messages: a person set the time, and a schedule sends them.

The id names the schedule and the occurrence: ``schedule-<schedule>-<seconds since 1970>``. It is always the same for
an occurrence, so the journal takes each only once. No platform knows such an id. It begins with ``play-`` if a person
scheduled a command: only then the text is one. A part of its turn appends its own name to the id.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from .model import Incoming

QUOTED = 200
"""Characters of the message that its answer begins with."""

_ID = re.compile(r"(play-)?schedule-[a-z0-9]{1,64}-([0-9]{1,11})(?:\.[a-z0-9_.-]+)?", re.ASCII)


def scheduled_id(schedule: str, due: datetime, *, command: bool = False) -> str:
    """Return the id of the message that is due at that time, to the second. *command*: a person scheduled one."""
    return f"{'play-' if command else ''}schedule-{schedule}-{int(due.timestamp())}"


def due_of(message_id: str) -> datetime | None:
    """Return when a scheduled message was due, or None for any other id."""
    found = _ID.fullmatch(message_id)
    return datetime.fromtimestamp(int(found[2]), UTC) if found else None


def is_command(message_id: str) -> bool:
    """Return whether a person scheduled a command with this message."""
    found = _ID.fullmatch(message_id)
    return found is not None and found[1] is not None


def headings(incoming: Incoming) -> list[str]:
    """Return a heading for the answer to a scheduled message, which nobody sees. Empty for other messages."""
    if due_of(incoming.id) is None:
        return []
    return [
        f"⏰ Scheduled by {_line(incoming.author.name, 80) or 'someone here'}: {shortened(incoming.text)}"
    ]


def shortened(text: str) -> str:
    """Return the beginning of a message as one line, for a quotation."""
    return _line(text, QUOTED)


def _line(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"
