"""One connection to PostgreSQL, for one task at a time. It opens again after it was lost."""

from __future__ import annotations

import select
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from secrets import token_hex
from typing import Any

import anyio
import psycopg
from psycopg.conninfo import make_conninfo

from bot.ports.config_error import ConfigInvalid

Row = tuple[Any, ...]
"""A row of a result. Each caller knows the columns that it asked for."""

STATEMENT_S = 10.0
"""Seconds that a statement may take. The server ends it a little earlier."""

TRIES = 5
"""How often a statement is sent again after a deadlock."""

OPTIONS = (
    "-c statement_timeout=9s -c idle_in_transaction_session_timeout=2s -c client_connection_check_interval=1s "
    "-c synchronous_commit=on"
)
"""A client that hangs inside a transaction would keep its locks, and nobody could take its threads over."""

END_FORMER = (
    "SELECT pg_terminate_backend(pid, 3000) FROM pg_stat_activity "
    "WHERE application_name = %s AND pid <> pg_backend_pid()"
)
"""Ends what is left of a session's earlier connections, and waits until they are gone."""

DEFAULTS = {
    "application_name": "threadfast",
    "connect_timeout": "3",
    "keepalives_idle": "2",
    "keepalives_interval": "1",
    "keepalives_count": "2",
    "tcp_user_timeout": "4000",
}


REFUSED = (psycopg.OperationalError, psycopg.errors.InsufficientPrivilege)
"""What a server or a connection raises that is away, or does not let this user in."""


class SessionLost(ConnectionError):
    """The server is away, or the connection broke. It is unknown whether the last statement was committed.

    Its text is one line: the driver's may be several.
    """

    def __init__(self, why: str) -> None:
        super().__init__(" ".join(why.split()))


MALFORMED = (
    "store.dsn: what it names is not an address of PostgreSQL; it looks like postgresql://USER@HOST/DATABASE"
)


def address(dsn: str, **more: str) -> str:
    """Return the address of a server with our options, and *more*.

    Raises `ConfigInvalid`, which does not repeat the address: it may hold a password.
    """
    try:
        return make_conninfo(dsn, **{**DEFAULTS, **more})
    except psycopg.ProgrammingError:
        raise ConfigInvalid(MALFORMED) from None


def is_over(connection: psycopg.BaseConnection[Any]) -> bool:
    """Return whether a connection is closed, or the server ended it while it was idle."""
    if connection.closed:
        return True
    idle = select.poll()
    idle.register(connection.fileno(), select.POLLIN)
    while idle.poll(0):
        try:
            connection.pgconn.consume_input()
        except psycopg.OperationalError:
            return True
    return False


class Session:
    """Runs statements one after another, each in a transaction of its own.

    *prepare* runs on each new connection. A cancelled caller waits for the end of its statement, because psycopg
    would close the connection otherwise.

    The server may still carry out a statement whose connection was given up. So a new connection first ends the
    earlier ones, which share its name. Nothing that was sent earlier can happen after what is sent now.
    """

    def __init__(
        self, dsn: str, prepare: Callable[[psycopg.AsyncConnection[Row]], Awaitable[None]] | None = None
    ) -> None:
        self._name = f"threadfast {token_hex(8)}"
        self._dsn = address(dsn, application_name=self._name, options=OPTIONS)
        self._prepare = prepare
        self._has_former = False
        self._connection: psycopg.AsyncConnection[Row] | None = None
        self._turn = anyio.Lock()

    async def rows(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Return the rows of one statement. Raises `SessionLost`."""
        async with self._turn:
            with anyio.CancelScope(shield=True):
                rows = await self._run(statement, parameters)
        return rows

    async def connection(self) -> psycopg.AsyncConnection[Row]:
        """Return the connection, a new one if there is none. Raises `SessionLost`."""
        if self._connection is None or is_over(self._connection):
            try:
                with anyio.fail_after(STATEMENT_S):
                    return await self._connect()
            except (psycopg.OperationalError, TimeoutError) as error:
                await self._drop()
                raise SessionLost(f"postgres: {error}") from error
        return self._connection

    async def _connect(self) -> psycopg.AsyncConnection[Row]:
        await self._drop()
        has_former, self._has_former = self._has_former, True
        self._connection = connection = await psycopg.AsyncConnection.connect(self._dsn, autocommit=True)
        if has_former:
            ends = await (await connection.execute(END_FORMER, (self._name,))).fetchall()
            if not all(ended for (ended,) in ends):
                raise psycopg.OperationalError("an earlier connection is still at work")
        if self._prepare is not None:
            await self._prepare(connection)
        return connection

    async def close(self) -> None:
        """Close the connection after the running statement. The next one opens another."""
        async with self._turn:
            await self._drop()

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                await connection.close()

    async def _run(self, statement: str, parameters: Sequence[object]) -> list[Row]:
        for left in reversed(range(TRIES)):
            try:
                return await self.try_once(statement, parameters)
            except (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure) as error:
                if not left:
                    raise SessionLost(f"postgres: {error}") from error
            except (psycopg.OperationalError, psycopg.InterfaceError, TimeoutError) as error:
                await self._drop()
                raise SessionLost(f"postgres: {error}") from error
        raise AssertionError  # the last try returns or raises

    async def try_once(self, statement: str, parameters: Sequence[object]) -> list[Row]:
        connection = await self.connection()
        with anyio.fail_after(STATEMENT_S):
            cursor = await connection.execute(statement.encode(), parameters, prepare=True)
            rows = list(await cursor.fetchall()) if cursor.description else []
        return rows  # noqa: RET504 - mypy takes the scope above for one that may swallow
