"""Who and where: threads, people and the keys of messages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class ThreadId:
    """Where a conversation lives, for example ``slack:T1:C123:1700000000.1``.

    Only ``root`` may hold a colon, so that the text form can be parsed back.
    """

    transport: str
    workspace: str
    channel: str
    root: str

    def __str__(self) -> str:
        return f"{self.transport}:{self.workspace}:{self.channel}:{self.root}"

    def within(self, place: ThreadId) -> bool:
        """Return whether this is *place*, or, if that has a blank root, a thread of that channel."""
        return self == (place if place.root else replace(place, root=self.root))

    @staticmethod
    @lru_cache(4096)
    def parse(text: str) -> ThreadId:
        """Read the text form back; raises ValueError when it has fewer than four parts."""
        transport, workspace, channel, root = text.split(":", 3)
        return ThreadId(transport, workspace, channel, root)


def message_key(thread: ThreadId, message_id: str) -> str:
    """Return what makes a message itself, whatever thread view or event it arrived through."""
    return f"{thread.transport}:{thread.workspace}:{thread.channel}:{message_id}"


@dataclass(frozen=True, slots=True)
class Author:
    """Who wrote a message. ``id`` is the platform's and is what rights hang on; ``name`` is for reading.

    ``roles`` are the ids of what they are there, as far as rights hang on that too.
    """

    id: str
    name: str = ""
    roles: tuple[str, ...] = ()
