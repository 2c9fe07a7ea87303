"""Two bots in one thread must not talk for ever."""

from __future__ import annotations

from collections import OrderedDict

from threads.model import Incoming, ThreadId

IN_A_ROW = 10
"""How many messages of other bots are heard in a thread before a person has to speak again."""

MOST_THREADS = 10_000


class BotCap:
    """Counts what the bots in *bots* say in each thread since a person last spoke there."""

    def __init__(self, bots: frozenset[str]) -> None:
        self._bots = bots
        self._counts: OrderedDict[ThreadId, int] = OrderedDict()

    def admits(self, incoming: Incoming) -> bool:
        if incoming.author.id not in self._bots:
            self._counts.pop(incoming.thread, None)
            return True
        count = self._counts[incoming.thread] = self._counts.pop(incoming.thread, 0) + 1
        if len(self._counts) > MOST_THREADS:
            self._counts.popitem(last=False)
        return count <= IN_A_ROW
