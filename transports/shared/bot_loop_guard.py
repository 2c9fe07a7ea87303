"""Two bots in one thread must not talk for ever."""

from __future__ import annotations

from collections import OrderedDict

from threads.model import Incoming, ThreadId

IN_A_ROW = 10
"""How many messages of other bots are heard in a thread before a person has to speak again."""

MOST_THREADS = 10_000


class BotCap:
    """Counts what the bots in *bots* say in each thread since a person last spoke there; a message counts once."""

    def __init__(self, bots: frozenset[str]) -> None:
        self._bots = bots
        self._said: OrderedDict[ThreadId, set[str]] = OrderedDict()

    def admits(self, incoming: Incoming) -> bool:
        if incoming.author.id not in self._bots:
            self._said.pop(incoming.thread, None)
            return True
        said = self._said[incoming.thread] = self._said.pop(incoming.thread, set())
        if len(self._said) > MOST_THREADS:
            self._said.popitem(last=False)
        if len(said) < IN_A_ROW:
            said.add(incoming.id)
        return incoming.id in said
