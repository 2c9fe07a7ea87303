"""Reactions that are put on messages and taken off again.

| reaction is | event  | what is done                         | becomes  |
|-------------|--------|--------------------------------------|----------|
| absent      | add    | reactions.add                        | wanted   |
| wanted      | done   |                                      | there    |
| wanted      | remove | nothing, if the call is not made yet | absent   |
| wanted      | remove | the removal waits for the call       | unwanted |
| unwanted    | done   | reactions.remove                     | absent   |
| there       | remove | reactions.remove                     | absent   |
"""

from __future__ import annotations

from cachetools import FIFOCache

from transports.slack.api.json_fields import is_stamp
from transports.slack.api.web_api import Web
from transports.slack.live.latest_wins import Arguments, Board

ADD, REMOVE = "reactions.add", "reactions.remove"

MOST_THERE = 2_000
"""Reactions of ours that are remembered, to be taken off."""

MOST_LATE = 20
"""Removals that wait at most before no sign is put on that another makes up for: a minute's, by Slack's limits."""

Key = tuple[str, str, str]


class Reactions:
    def __init__(self, web: Web) -> None:
        self._adding: Board[Key] = Board(web, ADD, self._added)
        self._removing: Board[Key] = Board(web, REMOVE)
        self._there: FIFOCache[Key, None] = FIFOCache(MOST_THERE)
        self._unwanted: set[Key] = set()

    @property
    def boards(self) -> tuple[Board[Key], Board[Key]]:
        return self._adding, self._removing

    @property
    def late(self) -> bool:
        """Whether what is put on now would stay for long after it should have gone."""
        return self._removing.waiting >= MOST_LATE

    def add(self, channel: str, ts: str, name: str) -> None:
        """Put it on; nothing for a press or a slash command, which is no message in Slack."""
        if is_stamp(ts):
            self._adding.want((channel, ts, name), _arguments((channel, ts, name)))

    def remove(self, channel: str, ts: str, name: str, *, maybe: bool = False) -> None:
        """Take it off; *maybe*: an earlier process may have put it on."""
        key = (channel, ts, name)
        self._adding.forget(key)
        if self._adding.busy(key):
            self._unwanted.add(key)
        elif key in self._there or (maybe and is_stamp(ts)):
            self._there.pop(key, None)
            self._removing.want(key, _arguments(key))

    def _added(self, key: Key) -> None:
        if key in self._unwanted:
            self._unwanted.discard(key)
            self._removing.want(key, _arguments(key))
            return
        self._there[key] = None


def _arguments(key: Key) -> Arguments:
    channel, ts, name = key
    return {"channel": channel, "timestamp": ts, "name": name}
