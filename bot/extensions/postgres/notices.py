"""Short texts from worker to worker, for what may be lost. Each worker hears them in its session of notifications."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .session import DatabaseSession, Pool

CHANNEL = "worker_page"
SEND = "SELECT pg_notify(%s, text) FROM unnest(%s::text[]) text"


class Notices:
    """``heard`` gets the texts of all workers, its own too; ``missed`` is called when some may have been lost."""

    def __init__(self, pool: Pool) -> None:
        self._session = DatabaseSession(pool)
        self.heard: Callable[[str], None] = lambda _: None
        self.missed: Callable[[], None] = lambda: None

    async def send(self, texts: Sequence[str]) -> None:
        """Send each text, of less than 8,000 bytes. Raises OSError."""
        await self._session.rows(SEND, (CHANNEL, list(texts)))
