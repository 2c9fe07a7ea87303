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

from collections.abc import Callable

from cachetools import FIFOCache

from transports.slack.api.json_fields import is_stamp
from transports.slack.api.web_api import WebApi
from transports.slack.live.latest_wins import Arguments, LatestCalls

ADD, REMOVE = "reactions.add", "reactions.remove"

MOST_PRESENT = 2_000
"""Our reactions that are remembered, so that they can be removed."""

Key = tuple[str, str, str]


class Reactions:
    """``on_refused`` is called when the workspace or a channel turns out to have no reactions."""

    def __init__(self, web: WebApi, on_refused: Callable[[], None]) -> None:
        self._adding: LatestCalls[Key] = LatestCalls(web, ADD, on_done=self._added, on_refused=on_refused)
        self._removing: LatestCalls[Key] = LatestCalls(web, REMOVE)
        self._present: FIFOCache[Key, None] = FIFOCache(MOST_PRESENT)
        self._unwanted: set[Key] = set()

    @property
    def queues(self) -> tuple[LatestCalls[Key], LatestCalls[Key]]:
        return self._adding, self._removing

    @property
    def late(self) -> bool:
        """Whether a reaction would be added, or removed, late."""
        return self._adding.late or self._removing.late

    def offered_in(self, channel: str) -> bool:
        return self._adding.offered_in(channel)

    def add(self, channel: str, ts: str, name: str) -> None:
        """Add a reaction to a message; presses and slash commands are not messages in Slack, and get none."""
        if is_stamp(ts):
            self._adding.request((channel, ts, name), _arguments((channel, ts, name)))

    def remove(self, channel: str, ts: str, name: str, *, maybe: bool = False) -> None:
        """Remove a reaction; *maybe*: an earlier process may have added it."""
        key = (channel, ts, name)
        if self._adding.cancel(key):
            self._unwanted.add(key)
        elif key in self._present or (maybe and is_stamp(ts)):
            self._present.pop(key, None)
            self._removing.request(key, _arguments(key))

    def _added(self, key: Key) -> None:
        if key in self._unwanted:
            self._unwanted.discard(key)
            self._removing.request(key, _arguments(key))
            return
        self._present[key] = None


def _arguments(key: Key) -> Arguments:
    channel, ts, name = key
    return {"channel": channel, "timestamp": ts, "name": name}
