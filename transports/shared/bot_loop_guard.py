"""Two bots in one thread must not talk for ever."""

from __future__ import annotations

from cachetools import LRUCache

from threads.model import Incoming, ThreadId

IN_A_ROW = 10
"""How many messages of other bots are admitted in a thread before a person has to write again."""

MOST_THREADS = 10_000


class BotLoopGuard:
    """Counts the messages of other bots in each thread since a person last wrote there; a message counts once."""

    def __init__(self, bots: frozenset[str]) -> None:
        self._bots = bots
        self._messages: LRUCache[ThreadId, set[str]] = LRUCache(MOST_THREADS)

    def admits(self, incoming: Incoming) -> bool:
        if incoming.author.id not in self._bots:
            self._messages.pop(incoming.thread, None)
            return True
        messages = self._messages.setdefault(incoming.thread, set())
        if len(messages) < IN_A_ROW:
            messages.add(incoming.id)
        return incoming.id in messages
