"""Identities: threads, people and the keys of messages."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache

_TIME = re.compile(r"[0-9]{1,20}(?:\.[0-9]{1,9})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class ThreadId:
    """The id of a conversation, for example ``slack:T1:C123:1700000000.1``.

    Only ``root`` may contain a colon, so that `parse` can read the text form.
    """

    transport: str
    workspace: str
    channel: str
    root: str

    def __str__(self) -> str:
        return f"{self.transport}:{self.workspace}:{self.channel}:{self.root}"

    def within(self, place: ThreadId) -> bool:
        """Return whether this thread is *place*, or is in the channel *place* if that has a blank root."""
        return self == (place if place.root else replace(place, root=self.root))

    @staticmethod
    @lru_cache(4096)
    def parse(text: str) -> ThreadId:
        """Parse the text form. Raises ValueError if it has fewer than four parts."""
        transport, workspace, channel, root = text.split(":", 3)
        return ThreadId(transport, workspace, channel, root)


def message_key(thread: ThreadId, message_id: str) -> str:
    """Return the identity of a message. It is the same for every event that carries the message."""
    return f"{thread.transport}:{thread.workspace}:{thread.channel}:{message_id}"


def time_of(message_id: str) -> Decimal | None:
    """Return a message's id as a number that grows with the time of writing, as chat platforms give them.

    Returns None for an id that no platform knows, as of a schedule.
    """
    return Decimal(message_id) if _TIME.fullmatch(message_id) else None


def is_of_platform(message_id: str) -> bool:
    """Return whether a chat platform knows a message by this id: a time, or ``$`` with letters that say nothing."""
    return message_id.startswith("$") or time_of(message_id) is not None


@dataclass(frozen=True, slots=True)
class Author:
    """The author of a message. ``id`` is the platform's, and decides about rights. ``name`` is only shown.

    ``roles`` are the ids of the author's roles, on platforms where roles give rights.
    """

    id: str
    name: str = ""
    roles: tuple[str, ...] = ()
