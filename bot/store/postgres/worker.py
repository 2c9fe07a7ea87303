"""The life of one worker: its lease, its notifications, and the threads that it claims and releases.

A worker lives as long as it renews its lease and its session holds the lock of its number. Whoever finds a dead
worker frees its threads. A worker that was cut off judges no other for the length of a lease, because after a restart
of the server all locks are gone at once.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime, timedelta

import anyio
import psycopg
from anyio.abc import TaskGroup

from threads.errors import Fenced

from .journal import ANYBODY, BEAT_S, PostgresJournal
from .notices import CHANNEL, Notices
from .session import Row, Session

log = logging.getLogger(__name__)

LEASE_S = 3.0
MARGIN_S = 0.5
"""Seconds before its end at which a lease stops counting: clocks drift, and a post takes a moment to leave."""

LOOK_S = 0.5
"""Seconds between looks for dead workers and for threads without an owner. A notification causes a look at once."""

CLAIMED_AT_ONCE = 50
"""Threads that one look claims before the next look, so that workers leave some to each other."""

SPARE = 16
"""A worker with so many more pending messages than the others leaves new threads to them."""

PATIENCE_S = 0.5
"""Seconds for which it leaves them. If the others have as much to do, it serves them itself."""

LOCKS = 7777
"""The class of the advisory locks that show which workers are alive."""

NUMBER = "SELECT nextval('worker_id')"
LOCK = "SELECT pg_try_advisory_lock(%s, %s)"
TIMELINE = "SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8)"
ENTER = (
    "INSERT INTO worker (id, alive_until, name, version) "
    "VALUES (%s, clock_timestamp() + %s * interval '1s', %s, %s) RETURNING clock_timestamp()"
)
BEAT = (
    "UPDATE worker w SET alive_until = clock_timestamp() + %s * interval '1s', pending = %s WHERE w.id = %s "
    "RETURNING clock_timestamp(), (SELECT count(*) FROM worker), "
    "(SELECT avg(o.pending)::float8 FROM worker o WHERE o.id <> w.id)"
)
LEAVE = "DELETE FROM worker WHERE id = %s"
FREE = "UPDATE thread SET owner = NULL WHERE owner = %s"
RING_ALL = "SELECT pg_notify(%s, '')"
REAP = "SELECT reap(%s, %s)"
CLAIM = "SELECT * FROM claim(%s, %s, %s)"
OWN = "SELECT id, epoch FROM thread WHERE owner = %s"
"""Own threads that this worker does not know of. Nobody else would serve them."""

TAKE_ROLE = "SELECT take_role(%s, %s)"
RELEASE = "SELECT release(%s, %s)"


class WorkerLost(Fenced):
    """The other workers took this one for dead. It starts over."""

    def __init__(self, reason: str = "the other workers took this one for dead") -> None:
        super().__init__(reason)


class Worker:
    """Keeps the lease of worker ``number``, which `enter` draws."""

    def __init__(self, dsn: str, name: str, version: str, *, lease_s: float = LEASE_S) -> None:
        self.number, self._transports = 0, list[str]()
        self.alive = 1
        """The number of workers."""
        self._name, self._version, self._lease_s = name, version, lease_s
        self._life, self._hands = Session(dsn, self._lock), Session(dsn)
        self._ears = Session(dsn, self._listen)
        self.notices = Notices(dsn)
        self._timeline, self._work = "", set[anyio.CancelScope]()
        self.clock_ahead = timedelta()
        """How far the server's clock is ahead of this machine's."""
        self._sure_until = 0.0
        self._renewed, self._rung, self._lost = anyio.Event(), anyio.Event(), False
        self.is_cut_off = False
        """Whether the database did not answer the last beat."""

    async def enter(self, transports: Iterable[str]) -> None:
        """Draw a number, take its lock, and join the workers for threads of *transports*. Raises OSError."""
        self._transports = list(transports)
        [[self.number]] = await self._hands.rows(NUMBER)
        # The lock comes before the row: without its lock the worker would be taken for dead.
        await self._life.connection()
        sent = anyio.current_time()
        [[now]] = await self._life.rows(ENTER, (self.number, self._lease_s, self._name, self._version))
        self._renew(sent, now)

    async def leave(self) -> None:
        """Leave the workers. The threads are free at once. Raises OSError."""
        for statement in (LEAVE, FREE):
            await self._hands.rows(statement, (self.number,))
        await self.ring_all()

    async def close(self) -> None:
        """Close the sessions, as the end of the process would."""
        for session in (self._life, self._ears, self._hands, self.notices):
            await session.close()

    async def ring_all(self) -> None:
        """Notify all workers. Raises OSError."""
        await self._hands.rows(RING_ALL, (ANYBODY,))

    async def hold(
        self, role: str, work: Callable[[], Awaitable[None]], waits: Callable[[], None] = lambda: None
    ) -> None:
        """Run *work* while this worker holds the role, again whenever it does. Returns when *work* returns.

        *work* is cancelled as soon as the lease is not sure, because another worker may hold the role then.
        """
        while True:
            await self.ensure_ownership()
            if await self._take_role(role):
                with anyio.CancelScope() as scope:
                    self._work.add(scope)
                    try:
                        return await work()
                    finally:
                        self._work.discard(scope)
            else:
                waits()
                await anyio.sleep(LOOK_S)

    async def _take_role(self, role: str) -> bool:
        try:
            [[is_mine]] = await self._hands.rows(TAKE_ROLE, (self.number, role))
        except OSError:
            return False
        return bool(is_mine)

    async def _watch_lease(self) -> None:
        """Cancel what only one worker may do as soon as the lease is not sure."""
        while True:
            renewed = self._renewed
            await anyio.sleep_until(self._sure_until)
            if anyio.current_time() >= self._sure_until:
                for scope in self._work:
                    scope.cancel()
                await renewed.wait()

    async def ensure_ownership(self) -> None:
        while anyio.current_time() >= self._sure_until:
            if self._lost:
                raise WorkerLost
            await self._renewed.wait()

    def start(
        self, tasks: TaskGroup, journal: PostgresJournal, refresh: Callable[[], Awaitable[None]]
    ) -> None:
        """Run until *tasks* are cancelled. Raises `WorkerLost` in them when the others take this worker for dead.

        *refresh* reads what others have changed, before threads are claimed.
        """
        tasks.start_soon(self._beat, journal)
        tasks.start_soon(self._watch_lease)
        tasks.start_soon(self._hear, journal)
        tasks.start_soon(self._look_around, journal, refresh)

    async def _beat(self, journal: PostgresJournal) -> None:
        while True:
            sent = anyio.current_time()
            try:
                pending = len(journal.ledger.pending) if journal.accepting else None
                alive = await self._life.rows(BEAT, (self._lease_s, pending, self.number))
            except OSError as error:
                self._cut_off(error)
                self._renew(0.0)  # the lock is gone with the session, so others may judge at once
            else:
                if not alive:
                    self._lost = True
                    self._renew(0.0)
                    journal.lose(list(journal.owned))
                    raise WorkerLost
                now, self.alive, others = alive[0]
                journal.share = math.inf if others is None else others + SPARE
                if self.is_cut_off:
                    log.info("worker.back: the database answers again")
                    self.is_cut_off = False
                self._renew(sent, now)
            await anyio.sleep(BEAT_S)

    def _renew(self, sent: float, now: datetime | None = None) -> None:
        """Renew the lease. It counts from before the request: the server's clock started later."""
        if now is not None:
            self.clock_ahead = now - datetime.now(UTC)
        self._sure_until = sent + self._lease_s - MARGIN_S
        renewed, self._renewed = self._renewed, anyio.Event()
        renewed.set()

    def _cut_off(self, error: OSError) -> None:
        """Log the beginning of an outage."""
        if not self.is_cut_off:
            log.warning(
                "worker.cut_off: nothing is acknowledged or posted until the database is back: %s", error
            )
        self.is_cut_off = True

    async def _lock(self, connection: psycopg.AsyncConnection[Row]) -> None:
        cursor = await connection.execute(LOCK, (LOCKS, self.number))
        if (await cursor.fetchone()) != (True,):
            raise psycopg.OperationalError(f"the lock of worker {self.number} is held by another session")
        row = await (await connection.execute(TIMELINE)).fetchone()
        timeline = str(row[0]) if row else ""
        if self._timeline not in ("", timeline):
            # A promoted replica may lack the last commits.
            raise WorkerLost("another server answers than before")
        self._timeline = timeline

    async def _listen(self, connection: psycopg.AsyncConnection[Row]) -> None:
        await connection.execute(f"LISTEN w{self.number}")
        await connection.execute(f"LISTEN {ANYBODY}")
        await connection.execute(f"LISTEN {CHANNEL}")

    async def _hear(self, journal: PostgresJournal) -> None:
        """Look at once after a notification. A lost notification only delays a look."""
        while True:
            try:
                connection = await self._ears.connection()
                self.notices.missed()
                async for bell in connection.notifies():
                    if bell.channel == CHANNEL:
                        self.notices.heard(bell.payload)
                        continue
                    journal.look([bell.payload])
                    self._rung.set()
            except (OSError, psycopg.Error) as error:
                log.debug("worker.deaf: %s", error)
                await self._ears.close()
                await anyio.sleep(BEAT_S)

    async def _look_around(self, journal: PostgresJournal, refresh: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await self._look(journal, refresh)
            except OSError as error:
                log.debug("worker.blind: %s", error)
            with anyio.move_on_after(LOOK_S):
                await self._rung.wait()
            self._rung = anyio.Event()

    async def _look(self, journal: PostgresJournal, refresh: Callable[[], Awaitable[None]]) -> None:
        for (name,) in await self._hands.rows(REAP, (self.number, self._lease_s)):
            log.warning(
                "worker.gone: %s died or was cut off; the others serve its threads",
                name,
                extra={"worker": name},
            )
        await refresh()
        leaves = anyio.current_time() < journal.left_at + PATIENCE_S and journal.share < math.inf
        if journal.accepting and not leaves:
            claimed = await self._hands.rows(CLAIM, (self.number, self._transports, CLAIMED_AT_ONCE))
            journal.take(claimed, claimed=True)
            if len(claimed) == CLAIMED_AT_ONCE:
                self._rung.set()  # there may be more
        await journal.open_mail()
        await self._release(journal)
        journal.take(await self._hands.rows(OWN, (self.number,)), claimed=False)
        journal.look(list(journal.owned))

    async def _release(self, journal: PostgresJournal) -> None:
        """Release threads that have no actor and nothing pending, so that any worker may receive for them."""
        released: set[str] = set()
        idle = {thread: journal.owned.pop(thread) for thread in journal.idle()}
        try:
            if idle:
                released = {
                    thread for (thread,) in await self._hands.rows(RELEASE, (self.number, list(idle)))
                }
        finally:
            for thread in idle.keys() - released:
                journal.owned.setdefault(thread, idle[thread])
