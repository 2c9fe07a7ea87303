"""Decides whether a message is for the bot. A message that is not is never stored.

sent to the bot alone       -> accepted; a stranger's is accepted once a day, to be refused
mentions the bot            -> accepted; a stranger's is refused
others, in a joined thread  -> accepted from everyone who may use the bot

Any process may hear a message, so it asks the store, not its memory, what came before.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime

import anyio

from threads.model import Feedback, Incoming, ThreadId, WallClock

MENTION_WITHIN_S = 1.0
"""Seconds after a message in which the store may not yet have the mention before it.

The mention may be on its way in this process or in another one.
"""

Allowed = Callable[[Incoming | Feedback], bool]


@dataclass(frozen=True, slots=True)
class Admission:
    """``joined`` returns whether the bot has a conversation in a thread, begun by something said before an instant.

    ``first_today`` returns whether a message is the first of its day about something; see `threads.ports.Store`. Both
    raise `threads.errors.StoreUnavailable`.
    """

    allowed: Allowed
    joined: Callable[[ThreadId, str], Awaitable[bool]]
    first_today: Callable[[str, str], Awaitable[bool]]
    now: WallClock

    async def admits(self, incoming: Incoming) -> bool:
        match incoming.via:
            case "direct":
                return self.allowed(incoming) or await self._is_to_be_refused(incoming)
            case "mention":
                return True
            case "overheard":
                return self.allowed(incoming) and await self._is_in_joined_thread(incoming)

    async def _is_to_be_refused(self, incoming: Incoming) -> bool:
        """Return whether a stranger has not been refused today. The same message again still counts as the first."""
        return await self.first_today(f"refused:{incoming.author.id} {incoming.thread.channel}", incoming.key)

    async def _is_in_joined_thread(self, incoming: Incoming) -> bool:
        if await self.joined(incoming.thread, ""):
            return True
        if incoming.id == incoming.thread.root or not incoming.sent_at:
            return False  # nothing was said before it in its thread
        age = (self.now() - datetime.fromisoformat(incoming.sent_at)).total_seconds()
        if age >= MENTION_WITHIN_S:
            return False
        await anyio.sleep(min(MENTION_WITHIN_S, MENTION_WITHIN_S - age))
        return await self.joined(incoming.thread, incoming.sent_at)
