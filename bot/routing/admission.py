"""Decides whether a message is for the bot. A message that is not is never stored.

sent to the bot alone       -> accepted; a stranger's is accepted once a day, to be refused
mentions the bot            -> accepted; a stranger's is refused
others, in a joined thread  -> accepted from everyone who may use the bot
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import date, datetime

from threads.model import Feedback, Incoming, ThreadId

Allowed = Callable[[Incoming | Feedback], bool]


class Admission:
    """``joined`` returns whether the bot has a conversation in a thread.

    It raises `threads.errors.StoreUnavailable`.
    """

    def __init__(
        self, allowed: Allowed, joined: Callable[[ThreadId], Awaitable[bool]], now: Callable[[], datetime]
    ) -> None:
        self.allowed = allowed
        self._joined, self._now = joined, now
        self._today = date.min
        self._refused: dict[tuple[str, str], str] = {}

    async def admits(self, incoming: Incoming) -> bool:
        match incoming.via:
            case "direct":
                return self.allowed(incoming) or self._first_today(incoming)
            case "mention":
                return True
            case "overheard":
                return self.allowed(incoming) and await self._joined(incoming.thread)

    def _first_today(self, incoming: Incoming) -> bool:
        """Return whether a stranger has not been refused today. The same message again still counts as the first."""
        if (today := self._now().date()) != self._today:
            self._today, self._refused = today, {}
        who = (incoming.author.id, incoming.thread.channel)
        return self._refused.setdefault(who, incoming.id) == incoming.id
