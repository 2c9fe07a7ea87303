"""Copies a store from files into the tables, and back.

One transaction locks the table of the workers, so no worker can enter, and nothing is ever half copied.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from threads.errors import BotError

from .migrations import migrate
from .reading import AT_ONCE, WORKERS
from .session import SessionLost, address, outages
from .worker import LEASE_S, LOCKS

LOCKED = "55P03"
"""The SQLSTATE of a lock that was not to be had in time."""

OPTIONS = "-c lock_timeout=5s -c idle_in_transaction_session_timeout=0 -c statement_timeout=0"

Row = Sequence[object]

TABLES = {
    "thread": ("id", "epoch", "generation", "files_stored", "changed_at"),
    "message": (
        *("key", "thread", "received", "started", "intent", "posted", "settled"),
        *("at", "settled_at", "outcome", "logged"),
    ),
    "alias": ("key", "message"),
    "context": ("thread", "generation", "n", "line"),
    "log": ("thread", "n", "line"),
    "spending": ("seq", "at", "line", "part"),
    "account": ("scope", "key", "spent", "granted", "prompt", "cached", "output", "said", "day", "reserved"),
    "audit": ("at", "line"),
    "slot": ("name", "rev", "body"),
    "file": ("thread", "path", "part", "sha", "mode"),
    "blob": ("sha", "data"),
}
"""The tables to fill, in this order.

Everything is compared except times, which are the database's, and data beside its hash.
"""

JOURNAL = (
    "SELECT line FROM (SELECT r.line::text AS line, m.seq, r.n, "
    """max(substring(r.line::text FROM '"at":"([^"]*)"')) OVER earlier AS at, """
    """max(substring(r.line::text FROM '"seq":([0-9]+)')::bigint) OVER earlier AS number """
    "FROM message m CROSS JOIN LATERAL (VALUES (1, m.received), (2, m.started), (3, m.intent), (4, m.posted), "
    "(5, m.settled)) r (n, line) WHERE r.line IS NOT NULL WINDOW earlier AS (PARTITION BY m.seq ORDER BY r.n)"
    ") l ORDER BY at, number, seq, n"
)
"""All records in the order of their time. Those of one message always keep theirs."""

CONTEXT = (
    "SELECT c.generation = t.generation, c.line::text FROM context c JOIN thread t ON t.id = c.thread "
    "WHERE t.id = %s ORDER BY c.generation, c.n"
)


class Unmovable(BotError):
    """The store cannot be moved now, or not to that place. ``str(error)`` says why."""

    code = "config_invalid"


class Tables:
    """The tables of a database that nobody else uses at the same time."""

    def __init__(self, connection: psycopg.Connection[Any], counted: Callable[[int], None]) -> None:
        self._connection, self._counted, self._numbers = connection, counted, count(1)

    def refuse_unless_empty(self) -> None:
        for table in TABLES:
            if self.rows(f"SELECT EXISTS (SELECT FROM {table})") == [(True,)]:  # noqa: S608 - a constant
                raise Unmovable(f"the database holds data already (table {table}); name an empty one")

    def fill(self, table: str, rows: Iterable[Row]) -> int:
        """Copy the rows into the table, compare the table with them, and return their number."""
        columns = TABLES[table]
        compared = [place for place, name in enumerate(columns) if not name.endswith(("at", "data"))]
        sent = read = given = found = 0
        names = ", ".join(columns)
        with self._connection.cursor().copy(f"COPY {table} ({names}) FROM STDIN".encode()) as copy:
            for row in rows:
                copy.write_row(row)
                sent, given = (sent + digest([row[place] for place in compared])) % (1 << 128), given + 1
                self._counted(1)
        texts = ", ".join(f"{columns[place]}::text" for place in compared)
        for row in self.stream(f"SELECT {texts} FROM {table}"):  # noqa: S608 - constants
            read, found = (read + digest(row)) % (1 << 128), found + 1
        if (sent, given) != (read, found):
            raise Unmovable(
                f"table {table} holds {found} rows that differ from the {given} sent; nothing was moved"
            )
        return given

    def rows(self, statement: str, values: Row = ()) -> list[tuple[Any, ...]]:
        cursor = self._connection.execute(statement.encode(), values)
        return cursor.fetchall() if cursor.description else []

    def stream(self, statement: str) -> Iterator[tuple[Any, ...]]:
        """Yield rows, a few at a time. Other statements may run in between."""
        with self._connection.cursor(name=f"rows_{next(self._numbers)}") as cursor:
            cursor.itersize = AT_ONCE
            yield from cursor.execute(statement.encode())


def digest(row: Row) -> int:
    """Return a digest of the row. Its texts are as PostgreSQL writes them."""
    texts = [
        "\0" if value is None else str(value).lower() if value is True or value is False else str(value)
        for value in row
    ]
    return int.from_bytes(hashlib.sha256("\x1f".join(texts).encode()).digest()[:16], "big")


@contextmanager
def alone(dsn: str, counted: Callable[[int], None]) -> Iterator[Tables]:
    """Lock the tables during the block, and commit when it ends without an error. Raises OSError and `Unmovable`."""
    migrate(dsn)
    try:
        with outages(), psycopg.connect(address(dsn, options=OPTIONS)) as connection:
            tables = Tables(connection, counted)
            tables.rows("LOCK TABLE worker IN EXCLUSIVE MODE")
            alive = [name for name, _, is_alive, *_ in tables.rows(WORKERS, (LOCKS, LEASE_S)) if is_alive]
            if alive:
                raise Unmovable(f"workers run on the database: {', '.join(alive)}; stop them first")
            yield tables
    except SessionLost as error:
        if error.sqlstate != LOCKED:
            raise
        raise Unmovable("workers run on the database; stop them first") from error


def place_of(dsn: str) -> str:
    """Return the name of the database, without a password."""
    given = conninfo_to_dict(dsn)
    return f"PostgreSQL {given.get('dbname', '')} on {given.get('host', 'this machine')}"
