"""Which messages are known, so that none is taken twice, however often its event comes.

A message is known by its key: the thread, and the platform's id of it. Some have a second key, by which a platform
names the same message in another event.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from threads.journal.records import PendingMessage, Settled
    from threads.model import Outcome

DEDUPE_WINDOW = timedelta(hours=1)
"""Redelivery after six minutes has been seen in the field; one hour is the floor."""

DEDUPE_AT_LEAST = 20_000
"""Ids that stay in the journal however old they are: about 10 MB."""


@dataclass(slots=True)
class KnownMessages:
    """The messages that wait or run, those that have an outcome, and second keys with the first ones."""

    pending: dict[str, PendingMessage] = field(default_factory=dict)
    settled: dict[str, Settled] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)

    def knows(self, key: str) -> bool:
        return key in self.pending or key in self.settled or key in self.aliases

    def outcome(self, key: str) -> Outcome | None:
        """Return how a message ended, by any of its keys."""
        end = self.settled.get(self.aliases.get(key, key))
        return end.outcome if end else None

    def forget(self, now: datetime) -> None:
        """Drop ids older than the window, except the newest `DEDUPE_AT_LEAST`: no platform delivers them again."""
        horizon = (now - DEDUPE_WINDOW).isoformat(timespec="milliseconds")
        surplus = max(0, len(self.settled) - DEDUPE_AT_LEAST)
        for key in [key for key, end in islice(self.settled.items(), surplus) if end.at < horizon]:
            del self.settled[key]
        self.aliases = {
            alias: key for alias, key in self.aliases.items() if key in self.pending or key in self.settled
        }
