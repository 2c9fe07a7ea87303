"""A thread's conversation in PostgreSQL: one row per message. A checkpoint writes the rows that changed."""

from __future__ import annotations

from collections.abc import Callable
from operator import is_

from threads.delivery import retry_until_stored
from threads.errors import Fenced
from threads.model import Message, ThreadId
from threads.store.checksummed_lines import encode, read_records
from threads.store.context import Line, Loaded, line_adapter

from .journal import PostgresJournal
from .session import DatabaseSession, as_unavailable

LOAD = (
    "SELECT t.generation > 0, c.line::text FROM thread t LEFT JOIN context c ON c.thread = t.id "
    "AND c.generation = t.generation WHERE t.id = %s ORDER BY c.n"
)
NEXT = "SELECT next_generation(%s, %s, %s, %s)"
NOT_ARCHIVED = (
    "DELETE FROM context c USING thread t WHERE t.id = %s AND t.owner = %s AND t.epoch = %s AND c.thread = t.id "
    "AND c.generation = t.generation - 1 AND c.n < %s"
)
"""Leaves only the end of the last generation in the archive."""


class PostgresContext:
    """A `threads.ports.Context`. Its writes share the transaction of the journal."""

    def __init__(
        self, thread: ThreadId, journal: PostgresJournal, reader: DatabaseSession, me: Callable[[], int]
    ) -> None:
        self._thread, self._journal, self._reader, self._me = thread, journal, reader, me
        self._messages: list[Message] = []

    async def load(self) -> Loaded:
        """Load the conversation. Waits for the server, because a turn needs it anyway."""
        return await retry_until_stored(self._load)

    async def _load(self) -> Loaded:
        with as_unavailable():
            rows = await self._reader.rows(LOAD, (str(self._thread),))
        lines, broken = read_records(
            line_adapter(), b"".join(f"{line}\n".encode() for _, line in rows if line)
        )
        messages = [line.message for line, _ in lines]
        # A damaged line shifts those after it, so write them again.
        self._messages = [] if broken else list(messages)
        archived = not messages and any(is_later for is_later, _ in rows)
        return Loaded(messages, len(broken), archived)

    async def save(self, messages: list[Message]) -> None:
        same = [*map(is_, self._messages, messages), False].index(False)
        lines = [encode(line_adapter(), Line(message)) for message in messages[same:]]
        await self._journal.durable(self._journal.save(self._thread, same, lines))
        self._messages[same:] = messages[same:]

    async def copy_to_archive(self, first: int = 0) -> None:
        await self._turn_the_page(copied=True, first=first)

    async def archive(self) -> None:
        await self._turn_the_page(copied=False)
        self._messages = []

    async def _turn_the_page(self, *, copied: bool, first: int = 0) -> None:
        thread, owned = str(self._thread), self._journal.owned.get(str(self._thread))
        epoch = owned.epoch if owned else -1
        with as_unavailable():
            [[done]] = await self._reader.rows(NEXT, (self._me(), thread, epoch, copied))
            if first:
                await self._reader.rows(NOT_ARCHIVED, (thread, self._me(), epoch, first))
        if not done:
            raise Fenced(thread_id=str(self._thread))
