"""The message that a thread began with: its first words are its title until somebody gives it one; pure."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from operator import attrgetter

from threads.log import LogEntry
from transports.shared.buttons import is_control

FIRST_ENTRIES = 60
"""Entries at the beginning of a log that are searched for it."""


def first_message(log: Iterable[LogEntry]) -> LogEntry | None:
    """Return the first message of a log that says something to the bot; None if there is none."""
    said = [one for one in islice(log, FIRST_ENTRIES) if one.kind == "message" and not is_control(one.text)]
    return min(said, key=attrgetter("at"), default=None)  # a log has messages by when they ended
