"""Connections to PostgreSQL, few for each process, and what it means when the server refuses or is gone."""

from __future__ import annotations

import re
import select
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from secrets import token_hex
from typing import Any, Generic, TypeVar

import anyio
import psycopg
from psycopg.adapt import Dumper
from psycopg.conninfo import make_conninfo

from bot.ports.config_error import ConfigInvalid, StoreRefused
from threads.errors import StoreUnavailable

Row = tuple[Any, ...]
"""A row of a result. Each caller knows the columns that it asked for."""

Connection = psycopg.AsyncConnection[Row]
Ask = TypeVar("Ask")
Answer = TypeVar("Answer")

STATEMENT_S = 10.0
"""Seconds that a statement may take. The server ends it a little earlier."""

TRIES = 5
"""How often a statement is sent again after a deadlock."""

SHARED = 3
"""Connections that all parts of a worker share. With the one of its lease a worker has four."""

OPTIONS = (
    "-c statement_timeout=9s -c idle_in_transaction_session_timeout=2s -c client_connection_check_interval=1s "
    "-c synchronous_commit=on -c plan_cache_mode=force_generic_plan -c enable_seqscan=off"
)
"""A client that hangs inside a transaction would keep its locks, and nobody could take its threads over.

Each statement is planned once, and for its index: the first ones meet tables that are still small.
"""

START_S = 3.0
"""Seconds in which a statement that goes through a pooler has to begin."""

BEGIN = "SELECT begin_pooled(%s)"
NOW = "SELECT clock_timestamp()"

END_FORMER = (
    "SELECT pg_terminate_backend(pid, 3000) FROM pg_stat_activity WHERE application_name = ANY (%s::text[])"
)
"""Ends what is left of earlier connections, and waits until they are gone."""

DEFAULTS = {
    "application_name": "threadfast",
    "connect_timeout": "3",
    "keepalives_idle": "2",
    "keepalives_interval": "1",
    "keepalives_count": "2",
    "tcp_user_timeout": "4000",
}

DEADLOCKS = ("40001", "40P01")
"""The SQLSTATEs after which the same statement is sent again."""

MISTAKES = ("22", "23", "42")
"""The classes of SQLSTATEs that mean a mistake in a statement."""

MAY_NOT = "42501"
"""The SQLSTATE of a missing right. Somebody may have taken it away for a moment."""

FOR_OPERATORS = ("28", "3D", "3F", MAY_NOT)
"""The SQLSTATEs that only an operator mends: a wrong user or password, no database, no schema, no right."""

REFUSALS = {
    r'authentication failed|no password supplied|no pg_hba\.conf entry|role ".*" (does not|is not)': "28000",
    r'database ".*" does not exist': "3D000",
    r"permission denied for database": MAY_NOT,
}
"""How a server refuses a connection, in English. libpq passes its SQLSTATE on for statements only.

A refusal in another language counts as one that passes: it is tried again.
"""

LATE = "no answer in time"

MALFORMED = (
    "store.dsn: what it names is not an address of PostgreSQL; it looks like postgresql://USER@HOST/DATABASE"
)


class ArrayDumper(Dumper):
    """Writes a list as PostgreSQL reads an array. The driver's own way costs more than the rest of a statement."""

    def dump(self, obj: Sequence[object]) -> bytes:
        return f"{{{','.join(map(_element, obj))}}}".encode()


def _element(value: object) -> str:
    if value is None:
        return "NULL"
    text = f"\\x{value.hex()}" if isinstance(value, bytes) else str(value)
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


class SessionLost(ConnectionError):
    """The server is away, or the connection broke. It is unknown whether the last statement was committed.

    Its text is one line: the driver's may be several.
    """

    def __init__(self, reason: object, sqlstate: str = "") -> None:
        super().__init__(f"postgres: {' '.join(str(reason).split())}")
        self.sqlstate = sqlstate


class SessionRefused(SessionLost, StoreRefused):
    """The server does not serve this user, until an operator changes something."""


def is_answered(error: BaseException) -> bool:
    """Return whether the server itself refused a statement: it is over then. A pooler's word says less (08)."""
    sqlstate = error.sqlstate if isinstance(error, psycopg.Error) else None
    return bool(sqlstate) and not str(sqlstate).startswith("08")


def is_mistake(sqlstate: str) -> bool:
    """Return whether an SQLSTATE means that a statement is wrong. Any other one means that the server is away."""
    return sqlstate.startswith(MISTAKES) and sqlstate != MAY_NOT


def outage(reason: object, sqlstate: str = "") -> SessionLost:
    """Return what an SQLSTATE means that is no mistake."""
    return (SessionRefused if sqlstate.startswith(FOR_OPERATORS) else SessionLost)(reason, sqlstate)


def refusal(text: str) -> str:
    """Return the SQLSTATE of connections that were refused, or "" if one of the hosts may take the next one."""
    reasons = [line.rpartition(" failed: ")[2] for line in text.splitlines() if " failed: " in line]
    states = [next((REFUSALS[one] for one in REFUSALS if re.search(one, reason)), "") for reason in reasons]
    return states[0] if all(states) and states else ""


@contextmanager
def outages() -> Iterator[None]:
    """Raise `SessionLost` in the block for what means that the server is away. Mistakes pass."""
    try:
        yield
    except psycopg.Error as error:
        sqlstate = error.sqlstate or ""
        if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            sqlstate = sqlstate or refusal(str(error))
        elif is_mistake(sqlstate) or not sqlstate:
            raise  # without an SQLSTATE the driver itself refuses a statement
        raise outage(error, sqlstate) from error
    except TimeoutError as error:
        raise SessionLost(error or LATE) from error


@contextmanager
def as_unavailable(what: str = "") -> Iterator[None]:
    """Raise `StoreUnavailable` in the block for an OSError; its text begins with *what*."""
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(f"{what}{error}") from error


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


class Pool:
    """At most so many connections, opened when they are needed. *prepare* runs on each new one.

    The server shows the *tag* in their names, by default a random one.
    The server may still carry out a statement whose connection was given up. So what was given up is ended before a
    connection is lent again. Nothing that was sent earlier can happen after what is sent now.

    If the connections are `pooled`, their address is that of a pooler that gives each transaction any session of the
    server. Then nothing is kept in a session: no prepared statement, and no setting that outlives a transaction. The
    pooler may pass on a statement whose sender has given up, and nobody could find it there. So each one refuses to
    begin more than `START_S` after it was sent, and after one of unknown fate the pool waits for so long.
    """

    def __init__(
        self,
        dsn: str,
        most: int = SHARED,
        prepare: Callable[[Connection], Awaitable[None]] | None = None,
        tag: str = "",
        *,
        pooled: bool = False,
    ) -> None:
        self.tag, self.pooled = tag or token_hex(8), pooled
        self.places = anyio.Semaphore(most, fast_acquire=True)
        self.places_for_all = anyio.Semaphore(max(1, most - 1), fast_acquire=True)
        self._dsn = address(dsn) if pooled else address(dsn, options=OPTIONS)
        self._prepare, self._not_before, self._ahead = prepare, 0.0, 0.0
        self._idle: list[tuple[str, Connection]] = []
        self._former: set[str] = set()

    def saw(self, now: datetime) -> None:
        """Take what the server has just answered as its time. A late answer only makes the limits earlier."""
        self._ahead = now.timestamp() - anyio.current_time()

    @property
    def begins_until(self) -> datetime:
        """Until when a statement that is sent now may begin, by the server's clock."""
        return datetime.fromtimestamp(anyio.current_time() + self._ahead + START_S, UTC)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Lend a connection; hold one of the ``places`` meanwhile. If the block fails, it is closed.

        Raises `SessionLost`, also in place of what psycopg raises in the block.
        """
        with outages():
            with anyio.fail_after(STATEMENT_S):
                name, connection = await self.lend()
            try:
                yield connection
            except BaseException as error:
                await self.lose(name, connection, error)
                raise
            self.take_back(name, connection)

    async def lend(self) -> tuple[str, Connection]:
        """Return a connection with its name. Either `take_back` or `lose` has to follow."""
        if self._not_before > anyio.current_time():
            await anyio.sleep_until(self._not_before)
        return await self._reuse() or await self._open()

    def take_back(self, name: str, connection: Connection) -> None:
        self._idle.append((name, connection))

    async def lose(self, name: str, connection: Connection, error: BaseException) -> None:
        """Close a connection over which something failed."""
        if self.pooled and not is_answered(error):
            self._not_before = anyio.current_time() + START_S
        await self._give_up(name, connection)

    async def close(self) -> None:
        """Close the connections that nobody uses. They are opened again when they are needed."""
        while self._idle:
            await self._give_up(*self._idle.pop())

    async def _reuse(self) -> tuple[str, Connection] | None:
        while self._idle:
            name, connection = self._idle.pop()
            try:
                if not is_over(connection):
                    await self._end_former(connection)
                    return name, connection
            except BaseException:
                await self._give_up(name, connection)
                raise
            await self._give_up(name, connection)
        return None

    async def _open(self) -> tuple[str, Connection]:
        name = f"threadfast {self.tag} {token_hex(8)}"
        target = make_conninfo(self._dsn, application_name=name)
        connection = await psycopg.AsyncConnection.connect(target, autocommit=True)
        connection.adapters.register_dumper(list, ArrayDumper)
        try:
            await self._end_former(connection)
            if self.pooled:
                connection.prepare_threshold = None
                [(now,)] = await (await connection.execute(NOW)).fetchall()
                self.saw(now)
            if self._prepare is not None:
                await self._prepare(connection)
        except BaseException:
            await self._give_up(name, connection)
            raise
        return name, connection

    async def _end_former(self, connection: Connection) -> None:
        if former := list(self._former):
            ends = await (await connection.execute(END_FORMER, (former,))).fetchall()
            if not all(ended for (ended,) in ends):
                raise psycopg.OperationalError("an earlier connection is still at work")
            self._former.difference_update(former)

    async def _give_up(self, name: str, connection: Connection) -> None:
        self._former.add(name)
        with suppress(psycopg.Error):
            await connection.close()


class DatabaseSession:
    """Runs statements one after another over a pool, each in a transaction of its own.

    A cancelled caller waits for the end of its statement, because psycopg would close the connection otherwise.
    One place of the pool is for sessions that come *first*: what a message waits for waits for no file of 1 MiB.
    """

    def __init__(self, pool: Pool, *, first: bool = False) -> None:
        self._pool, self._turn = pool, anyio.Lock(fast_acquire=True)
        self._place = nullcontext() if first else pool.places_for_all

    async def rows(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Return the rows of one statement. Raises `SessionLost`."""
        async with self._turn, self._place, self._pool.places:
            for left in reversed(range(TRIES)):
                try:
                    return await self.try_once(statement, parameters)
                except SessionLost as error:
                    if error.sqlstate not in DEADLOCKS or not left:
                        raise
        raise AssertionError  # the last try returns or raises

    async def try_once(self, statement: str, parameters: Sequence[object]) -> list[Row]:
        """Run a statement once. One scope for all: they cost more than what goes over the wire."""
        with outages(), anyio.CancelScope(deadline=anyio.current_time() + STATEMENT_S, shield=True):
            name, connection = await self._pool.lend()
            try:
                if self._pool.pooled:
                    async with connection.pipeline():  # one transaction, sent at once
                        await connection.execute(BEGIN, (self._pool.begins_until,))
                        cursor = await connection.execute(statement.encode(), parameters)
                else:
                    cursor = await connection.execute(statement.encode(), parameters, prepare=True)
                has_rows = cursor.pgresult and cursor.pgresult.nfields  # `description` describes each column
                rows = await cursor.fetchall() if has_rows else []
            except BaseException as error:
                await self._pool.lose(name, connection, error)
                raise
            self._pool.take_back(name, connection)
            return rows
        raise SessionLost(LATE)


class Together(Generic[Ask, Answer]):
    """Callers who wait at the same time ask with one statement. *run* gets what they ask, and returns the answers."""

    def __init__(self, run: Callable[[list[Ask]], Awaitable[Sequence[Answer]]]) -> None:
        self._run, self._turn = run, anyio.Lock(fast_acquire=True)
        self._waiting = dict[object, Ask]()
        self._answers = dict[object, Answer | OSError]()

    async def ask(self, one: Ask) -> Answer:
        """Return the answer. Raises the OSError of the statement."""
        me = object()
        self._waiting[me] = one
        try:
            async with self._turn:
                if me in self._waiting:
                    await self._ask_all()
            answer = self._answers[me]
        finally:
            self._waiting.pop(me, None)
            self._answers.pop(me, None)
        if isinstance(answer, OSError):
            raise SessionLost(answer) from answer
        return answer

    async def _ask_all(self) -> None:
        asked = dict(self._waiting)
        try:
            answers: Sequence[Answer | OSError] = await self._run([*asked.values()])
        except OSError as error:
            answers = [error] * len(asked)
        for one, answer in zip(asked, answers, strict=True):
            if self._waiting.pop(one, None) is not None:  # it still waits
                self._answers[one] = answer
