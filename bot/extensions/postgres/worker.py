"""The life of one worker: its lease, its notifications, and the threads that it claims and releases.

A worker lives as long as it renews its lease and has a connection. Whoever finds a dead worker frees its threads.

One of its connections holds the lock of its number. A worker that lost that one posts nothing, and takes the lock
again over a new one. It goes on if its row is still there, because then nobody has freed its threads, and starts over
otherwise. It judges no other for the length of a lease: a restart of the server takes all connections at once.
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
from .session import STATEMENT_S, Connection, DatabaseSession, Pool, Row

log = logging.getLogger(__name__)

LEASE_S = 3.0
MARGIN_S = 0.5
"""Seconds before its end at which a lease stops counting: clocks drift, and a post takes a moment to leave."""

LOOK_S = 0.5
"""Seconds between looks for dead workers and for threads without an owner. A notification causes a look at once."""

GRACE_S = 0.3
"""Seconds without any connection after which a worker counts as dead. They may only have been cut."""

CLAIMED_AT_ONCE = 50
"""Threads that one look claims before the next look, so that workers leave some to each other."""

SPARE = 16
"""A worker with so many more pending messages than the others leaves new threads to them."""

PATIENCE_S = 0.5
"""Seconds for which it leaves them. If the others have as much to do, it serves them itself."""

LOCKS = 7777
"""The class of the advisory locks that show which workers are alive."""

NUMBER = "SELECT nextval('worker_id')"
LOCK = "SELECT pg_try_advisory_lock(%s, %s), left(pg_walfile_name(pg_current_wal_lsn()), 8)"
ENTER = (
    "INSERT INTO worker (id, alive_until, name, version, tag) "
    "VALUES (%s, clock_timestamp() + %s * interval '1s', %s, %s, %s) "
    "RETURNING clock_timestamp(), (SELECT count(*) FROM worker)"
)
BEAT = (
    "UPDATE worker w SET alive_until = clock_timestamp() + %s * interval '1s', pending = %s, missing_at = NULL "
    "WHERE w.id = %s RETURNING clock_timestamp(), (SELECT count(*) FROM worker), "
    "(SELECT avg(o.pending)::float8 FROM worker o WHERE o.id <> w.id)"
)
LEAVE = "DELETE FROM worker WHERE id = %s"
FREE = "UPDATE thread SET owner = NULL WHERE owner = %s"
NOTIFY_ALL = "SELECT pg_notify(%s, '')"
LOOK = "SELECT * FROM look(%s, %s, %s, %s)"
CLAIM = "SELECT * FROM claim(%s, %s, %s)"
TAKE_ROLE = "SELECT take_role(%s, %s)"
RELEASE = "SELECT release(%s, %s)"


class WorkerLost(Fenced):
    """The other workers took this one for dead. It starts over."""

    def __init__(self, reason: str = "the other workers took this one for dead") -> None:
        super().__init__(reason)


class Worker:
    """Keeps the lease of worker ``number``, which `enter` draws."""

    def __init__(self, dsn: str, pool: Pool, name: str, version: str, *, lease_s: float = LEASE_S) -> None:
        self.number, self._transports = 0, list[str]()
        self.alive = 1
        """The number of workers."""
        self.others_seen = 0
        """How many beats found other workers, or no database. The next beat of each other one finds who enters."""
        self._name, self._version, self._lease_s = name, version, lease_s
        # Sessions of a pooler outlive a worker: their names say nothing about its life.
        self._own, self._pool = Pool(dsn, 1, self._prepare, "" if pool.pooled else pool.tag), pool
        self._work_session = DatabaseSession(pool)
        self.notices = Notices(pool)
        self._timeline, self._work = "", set[anyio.CancelScope]()
        self.clock_ahead = timedelta()
        """How far the server's clock is ahead of this machine's."""
        self._sure_until = self._held_until = 0.0
        self._changed, self._rung, self._lost = anyio.Event(), anyio.Event(), False
        self._look_again_s = LOOK_S
        self.is_cut_off = False
        """Whether the database did not answer the last beat."""

    async def enter(self, transports: Iterable[str]) -> None:
        """Draw a number, take its lock, and join the workers for threads of *transports*. Raises OSError."""
        self._transports = list(transports)
        [[self.number]] = await self._work_session.rows(NUMBER)
        sent = anyio.current_time()
        # The connection takes the lock before the row is there: without it the worker would be taken for dead.
        async with self._own.connection() as connection:
            with anyio.fail_after(STATEMENT_S):
                values = (self.number, self._lease_s, self._name, self._version, self._own.tag)
                [(now, others)] = await (await connection.execute(ENTER, values)).fetchall()
        self.alive = others + 1
        self._renew(sent, now)

    async def leave(self) -> None:
        """Leave the workers. The threads are free at once. Raises OSError."""
        for statement in (LEAVE, FREE):
            await self._work_session.rows(statement, (self.number,))
        await self.ring_all()

    async def close(self) -> None:
        """Give the lock up, as the end of the process would."""
        await self._own.close()

    async def ring_all(self) -> None:
        """Notify all workers. Raises OSError."""
        await self._work_session.rows(NOTIFY_ALL, (ANYBODY,))

    async def hold(
        self, role: str, work: Callable[[], Awaitable[None]], waits: Callable[[], None] = lambda: None
    ) -> None:
        """Run *work* while this worker holds the role, again whenever it does. Returns when *work* returns.

        *work* is cancelled before another worker may hold the role.
        """
        while True:
            await self.ensure_ownership()
            if await self._take_role(role) and anyio.current_time() < self._held_until:
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
            [[is_mine]] = await self._work_session.rows(TAKE_ROLE, (self.number, role))
        except OSError:
            return False
        return bool(is_mine)

    async def _watch_lease(self) -> None:
        """Cancel what only one worker may do before another one may do it."""
        while True:
            changed = self._changed
            if (left := self._held_until - anyio.current_time()) > 0:
                with anyio.move_on_after(left):
                    await changed.wait()
            else:
                for scope in self._work:
                    scope.cancel()
                await changed.wait()

    async def ensure_ownership(self) -> None:
        while anyio.current_time() >= self._sure_until:
            if self._lost:
                raise WorkerLost
            await self._changed.wait()

    def start(
        self, tasks: TaskGroup, journal: PostgresJournal, refresh: Callable[[], Awaitable[None]]
    ) -> None:
        """Run until *tasks* are cancelled. Raises `WorkerLost` in them when the others take this worker for dead.

        *refresh* reads what others have changed, before threads are claimed.
        """
        tasks.start_soon(self._live, journal)
        tasks.start_soon(self._watch_lease)
        tasks.start_soon(self._look_around, journal, refresh)

    async def _live(self, journal: PostgresJournal) -> None:
        """Renew the lease at each beat, and hear notifications in between, over the connection that has the lock.

        After its loss, a new one takes the lock at once. If others reaped the worker meanwhile, it is lost.
        """
        while True:
            try:
                async with self._own.connection() as connection:
                    while True:
                        await self._beat(connection, journal)
                        await self._hear(connection, journal)
            except OSError as error:
                if self.is_cut_off:
                    await anyio.sleep(BEAT_S)
                self._cut_off(error)

    async def _beat(self, connection: Connection, journal: PostgresJournal) -> None:
        sent = anyio.current_time()
        pending = len(journal.ledger.pending) if journal.accepting else None
        with anyio.fail_after(STATEMENT_S, shield=True):
            cursor = await connection.execute(BEAT, (self._lease_s, pending, self.number), prepare=True)
            alive = await cursor.fetchone()
        if alive is None:
            self._lost = True
            self._hold_until(0.0, 0.0)
            journal.release_threads(list(journal.owned))
            raise WorkerLost
        now, self.alive, others = alive
        self.others_seen += self.alive > 1
        journal.share = math.inf if others is None else others + SPARE
        if self.is_cut_off:
            log.info("worker.back: the database answers again")
            self.is_cut_off = False
        self._renew(sent, now)

    async def _hear(self, connection: Connection, journal: PostgresJournal) -> None:
        """Hear until the next beat. A notification causes a look at once; a lost one only delays it."""
        async for notification in connection.notifies(timeout=BEAT_S):
            if notification.channel == CHANNEL:
                self.notices.heard(notification.payload)
            else:
                journal.look([notification.payload])
                self._rung.set()

    def _renew(self, sent: float, now: datetime) -> None:
        """Renew the lease. It counts from before the request: the server's clock started later."""
        self.clock_ahead = now - datetime.now(UTC)
        self._pool.saw(now)
        until = sent + self._lease_s - MARGIN_S
        self._hold_until(until, until)

    def _hold_until(self, sure: float, held: float) -> None:
        """Note until when this worker may post, and until when it does what only one worker may do."""
        self._sure_until, self._held_until = sure, held
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    def _cut_off(self, error: OSError) -> None:
        """Post nothing: the lock is gone with the connection. Log the beginning of an outage."""
        if not self.is_cut_off:
            log.warning(
                "worker.cut_off: nothing is acknowledged or posted until the database is back: %s", error
            )
            soon = anyio.current_time() + GRACE_S / 2  # less than the grace: a loss may be noticed late
            self._hold_until(0.0, min(self._held_until, soon))
        self.is_cut_off = True
        self.others_seen += 1

    async def _prepare(self, connection: Connection) -> None:
        """Take the lock, and listen."""
        cursor = await connection.execute(LOCK, (LOCKS, self.number))
        [(is_locked, timeline)] = await cursor.fetchall()
        if not is_locked:
            raise psycopg.OperationalError(f"the lock of worker {self.number} is held by another session")
        if self._timeline not in ("", timeline):
            # A promoted replica may lack the last commits.
            raise WorkerLost("another server answers than before")
        self._timeline = timeline
        await connection.execute(f"LISTEN w{self.number}; LISTEN {ANYBODY}; LISTEN {CHANNEL}")
        self.notices.missed()

    async def _look_around(self, journal: PostgresJournal, refresh: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await self._look(journal, refresh)
            except OSError as error:
                log.debug("worker.blind: %s", error)
            with anyio.move_on_after(self._look_again_s):
                await self._rung.wait()
            self._rung = anyio.Event()

    async def _look(self, journal: PostgresJournal, refresh: Callable[[], Awaitable[None]]) -> None:
        """Take up what no notification told of. This worker may not know of an own thread: nobody else serves it."""
        self._look_again_s = LOOK_S
        seen: dict[str, list[Row]] = {"gone": [], "missing": [], "owed": [], "mail": [], "free": []}
        for what, *row in await self._work_session.rows(
            LOOK, (self.number, self._lease_s, GRACE_S, self._transports)
        ):
            seen[what].append(tuple(row))
        journal.take(((thread, epoch) for thread, epoch, _ in seen["owed"] + seen["mail"]), claimed=False)
        for name, *_ in seen["gone"]:
            log.warning(
                "worker.gone: %s died or was cut off; the others serve its threads",
                name,
                extra={"worker": name},
            )
        if seen["missing"]:
            self._look_again_s = GRACE_S
        await refresh()
        leaves = anyio.current_time() < journal.left_at + PATIENCE_S and journal.share < math.inf
        if seen["free"] and journal.accepting and not leaves:
            claimed = await self._work_session.rows(CLAIM, (self.number, self._transports, CLAIMED_AT_ONCE))
            journal.take(claimed, claimed=True)
            if len(claimed) == CLAIMED_AT_ONCE:
                self._rung.set()  # there may be more
        journal.look(
            thread
            for thread, _, last in seen["owed"]
            if thread in journal.owned and journal.owned[thread].seen < last
        )
        await journal.open_mail(thread for thread, *_ in seen["mail"])
        await self._release(journal)

    async def _release(self, journal: PostgresJournal) -> None:
        """Release threads that have no actor and nothing pending, so that any worker may receive for them."""
        released: set[str] = set()
        idle = {thread: journal.owned.pop(thread) for thread in journal.idle()}
        try:
            if idle:
                released = {
                    thread for (thread,) in await self._work_session.rows(RELEASE, (self.number, list(idle)))
                }
        finally:
            for thread in idle.keys() - released:
                journal.owned.setdefault(thread, idle[thread])
