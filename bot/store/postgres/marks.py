"""The high-water marks of a transport's channels: one row per worker, which outlives the worker."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from threading import Lock
from typing import Any

import psycopg

from .session import OPTIONS, SessionLost, address, is_over

READ = "SELECT worker, body FROM mark WHERE transport = %s AND worker = %s"
LEFT = (
    "SELECT worker, body FROM mark m WHERE transport = %s AND worker <> %s "
    "AND NOT EXISTS (SELECT FROM worker w WHERE w.id = m.worker)"
)
WRITE = (
    "WITH gone AS (DELETE FROM mark WHERE transport = %(transport)s AND worker = ANY (%(taken)s)) "
    "INSERT INTO mark (transport, worker, body) VALUES (%(transport)s, %(me)s, %(body)s) "
    "ON CONFLICT (transport, worker) DO UPDATE SET body = excluded.body"
)
CLAIM = "SELECT claim_reading(%s, %s, %s, %s, %s, %s, %s)"
FINISH = "UPDATE reading SET upto = %s WHERE transport = %s AND channel = %s AND worker = %s"


class PostgresMarks:
    """A `threads.store.mark_file.MarkStore` of the worker *me*. It blocks, and every thread may use it."""

    overlap_s = 120.0

    def __init__(self, dsn: str, me: Callable[[], int], transport: str) -> None:
        self._dsn, self._me, self._transport = address(dsn, options=OPTIONS), me, transport
        self._connection: psycopg.Connection[Any] | None = None
        self._taken, self._turn = set[int](), Lock()

    def read(self) -> bytes:
        return b"".join(bytes(body) for _, body in self._rows(READ, (self._transport, self._me())))

    def write(self, data: bytes) -> None:
        taken = list(self._taken)
        self._rows(WRITE, {"transport": self._transport, "taken": taken, "me": self._me(), "body": data})
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

    def close(self) -> None:
        """Close the connection. The next call opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()

    def _rows(self, statement: str, parameters: Any) -> list[tuple[Any, ...]]:
        with self._turn:
            try:
                if self._connection is None or is_over(self._connection):
                    self.close()
                    self._connection = psycopg.connect(self._dsn, autocommit=True)
                cursor = self._connection.execute(statement.encode(), parameters)
                return cursor.fetchall() if cursor.description else []
            except psycopg.Error as error:
                self.close()
                raise SessionLost(f"postgres: {error}") from error
