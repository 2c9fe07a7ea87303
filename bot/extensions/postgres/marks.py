"""The high-water marks of a transport's channels: one row per worker, which outlives the worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal

import anyio
import anyio.from_thread

from .session import DatabaseSession, Pool, Row

READ = "SELECT worker, body FROM mark WHERE transport = %s AND worker = %s"
LEFT = (
    "SELECT worker, body FROM mark m WHERE transport = %s AND worker <> %s "
    "AND NOT EXISTS (SELECT FROM worker w WHERE w.id = m.worker)"
)
WRITE = (
    "WITH given AS (SELECT %s AS transport, %s::int AS worker, %s::bytea AS body), "
    "gone AS (DELETE FROM mark m USING given g WHERE m.transport = g.transport AND m.worker = ANY (%s)) "
    "INSERT INTO mark (transport, worker, body) SELECT transport, worker, body FROM given "
    "ON CONFLICT (transport, worker) DO UPDATE SET body = excluded.body"
)
CLAIM = "SELECT claim_reading(%s, %s, %s, %s, %s, %s, %s)"
FINISH = "UPDATE reading SET upto = %s WHERE transport = %s AND channel = %s AND worker = %s"


class PostgresMarks:
    """A `threads.store.mark_file.MarkStore` of the worker *me*. It blocks a thread that the event loop started."""

    overlap_s = 120.0

    def __init__(self, pool: Pool, me: Callable[[], int], transport: str) -> None:
        self._session, self._me, self._transport = DatabaseSession(pool), me, transport
        self._taken = set[int]()

    def read(self) -> bytes:
        return b"".join(bytes(body) for _, body in self._rows(READ, (self._transport, self._me())))

    def write(self, data: bytes) -> None:
        taken = list(self._taken)
        self._rows(WRITE, (self._transport, self._me(), data, taken))
        self._taken.difference_update(taken)

    def set_aside(self, _: bytes) -> None:
        """Do nothing. The next `write` replaces it."""

    def take_over(self) -> list[bytes]:
        left = self._rows(LEFT, (self._transport, self._me()))
        fresh = [(worker, bytes(body)) for worker, body in left if worker not in self._taken]
        self._taken.update(worker for worker, _ in fresh)
        return [body for _, body in fresh]

    def claim(self, channel: str, since: str, begins: str, due: str, now: str) -> str | None:
        times = (Decimal(time) for time in (since, begins, due, now))
        [[upto]] = self._rows(CLAIM, (self._me(), self._transport, channel, *times))
        return None if upto is None else str(upto)

    def finish(self, channel: str, upto: str) -> None:
        self._rows(FINISH, (upto, self._transport, channel, self._me()))

    def _rows(self, statement: str, parameters: Sequence[object]) -> list[Row]:
        async def run() -> list[Row]:
            with anyio.CancelScope(shield=True):  # a cancellation would reach the thread as an error
                rows = await self._session.rows(statement, parameters)
            return rows  # noqa: RET504 - mypy takes the scope above for one that may swallow

        return anyio.from_thread.run(run)
