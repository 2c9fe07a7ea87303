"""Threads and channels that take no posts of the bot now, as far as refusals told.

A place is closed when a post is refused for the place itself, not for the post. Then no model is asked there before
a short post, which is removed at once, was taken. Its person is told the reason once, where they can see it.
"""

from __future__ import annotations

from cachetools import LRUCache

from threads.errors import TransportRejected
from threads.model import ThreadId

TOLD = "I cannot answer in {link}: {why}. Once that has changed, write there again."

DOTS = "…"
"""The text with which a place is tried out."""

MOST_CLOSED = 5_000
"""Places that are remembered; another post finds out about the others."""

MOST_TOLD = 100
"""People of one place who are remembered as told; the others are not told."""


class ClosedPlaces:
    def __init__(self) -> None:
        self._told: LRUCache[ThreadId, set[str]] = LRUCache(MOST_CLOSED)

    def note(self, thread: ThreadId, refused: TransportRejected, person: str) -> bool:
        """Note a refused post. Returns whether its *person* is to be told: the first time that it concerns them."""
        if not refused.closed:
            return False
        told = self._told.setdefault(thread if refused.only_thread else _channel(thread), set())
        new = bool(person) and person not in told and len(told) < MOST_TOLD
        told.update([person] if new else [])
        return new

    def holds(self, thread: ThreadId) -> bool:
        return thread in self._told or _channel(thread) in self._told

    def opened(self, thread: ThreadId) -> None:
        """Note that a post was taken in a thread."""
        for place in (thread, _channel(thread)):
            self._told.pop(place, None)


def _channel(thread: ThreadId) -> ThreadId:
    return ThreadId(thread.transport, thread.workspace, thread.channel, "")
