"""The store of many workers: one PostgreSQL, from which any number of processes serve threads."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from zlib import crc32

import anyio.to_thread
from anyio.abc import TaskGroup

from bot.agent.prompt.memory import memory_paths
from bot.ports.config_error import ConfigInvalid
from bot.store.restored_answers import Restored
from threads.delivery import retry_until_stored
from threads.errors import StoreUnavailable
from threads.journal.ports import Taker
from threads.log import LogEntry
from threads.model import ThreadId, WallClock
from threads.store.data_folder import thread_folder

from .checks import ELSEWHERE, POOLED, examine
from .context import PostgresContext
from .journal import PostgresJournal
from .marks import PostgresMarks
from .memory import PostgresMemory
from .migrations import migrate
from .session import DatabaseSession, Pool, Together, as_unavailable
from .states import PostgresStates
from .worker import Worker
from .workspaces import Workspaces

log = logging.getLogger(__name__)

COLLECT_EVERY_S = 600.0
"""Seconds between deletions of what nobody names or uses, with the looks for months and words to be made."""

BEGUN = (
    "WITH asked (thread, before) AS (VALUES (%s, %s)) SELECT "
    "EXISTS (SELECT FROM message m WHERE m.thread = asked.thread AND (m.outcome IS NULL OR m.started IS NOT NULL) "
    """AND (before = '' OR split_part(split_part(m.received::text, '"sent_at":"', 2), '"', 1) <= before)) """
    "OR before = '' AND EXISTS (SELECT FROM context c WHERE c.thread = asked.thread) FROM asked"
)
"""A message that was only refused, or only a command, opens no thread. What came from files may have no messages."""

TAKE_SHARED = (
    "SELECT take_token(name, rate, burst) "
    "FROM unnest(%s::text[], %s::float8[], %s::float8[]) g (name, rate, burst)"
)
TRY_SHARED = (
    "INSERT INTO bucket AS b (name, level, at) VALUES (%s, %s::float8 - 1, clock_timestamp()) "
    "ON CONFLICT (name) DO UPDATE SET at = excluded.at, level = "
    "LEAST(excluded.level, b.level - 1 + GREATEST(0, extract(epoch FROM excluded.at - b.at)) * %s::float8) WHERE "
    "LEAST(excluded.level, b.level - 1 + GREATEST(0, extract(epoch FROM excluded.at - b.at)) * %s::float8) >= %s "
    "RETURNING true"
)
FIRST_TODAY = (
    "INSERT INTO bucket AS b (name, level, at) VALUES (%s, %s, clock_timestamp()) "
    "ON CONFLICT (name) DO UPDATE SET level = excluded.level, at = excluded.at "
    "WHERE b.level = excluded.level OR b.level < %s RETURNING true"
)
"""The level is the number of the day, before the checksum of the key that came first."""

CLAIM_REPORT = "SELECT claim_report(%s, %s, %s)"
AUDIT = (
    "INSERT INTO audit (at, line, digest) "
    "SELECT GREATEST(d.begins, LEAST(clock_timestamp(), d.begins + interval '1 day' - interval '1 microsecond')), "
    "g.line::json, sha256(convert_to(g.line, 'UTF8')) FROM unnest(%s::text[], %s::text[]) g (day, line), "
    "LATERAL (SELECT (g.day || ' 00:00+00')::timestamptz AS begins) d ON CONFLICT DO NOTHING"
)
"""The time is within the line's day: sent again, it comes to the same partition, which knows it."""

CHORES = "SELECT collect()", "SELECT make_months()", "SELECT note_words()"
IDENTIFY = (
    "UPDATE meta m SET identity = i.found, "
    "restored_at = CASE WHEN m.identity <> i.found THEN clock_timestamp() ELSE m.restored_at END "
    "FROM (SELECT concat_ws(' ', (SELECT system_identifier FROM pg_control_system()), 'meta'::regclass::oid, "
    "left(pg_walfile_name(pg_current_wal_lsn()), 8)) AS found) i RETURNING restored_at"
)
RECENT = (
    "SELECT id FROM thread WHERE starts_with(id, %s) AND changed_at > clock_timestamp() - %s * interval '1s' "
    "ORDER BY changed_at DESC LIMIT %s"
)

FORGET = "SELECT forget_parts(%s, %s, %s, '{conversation,log,attachments,workspace}', NULL)"


class MessageRows:
    """A `threads.ports.ThreadLog` that writes nothing. The rows of the messages are the history."""

    def put(self, _: ThreadId, __: list[LogEntry], then: Callable[[], None]) -> None:
        then()

    def repair(self, _: ThreadId, __: dict[str, list[LogEntry]], then: Callable[[], None]) -> None:
        then()


class PostgresStore:
    """A `threads.ports.Store`. The files of threads that are served here are under *data*.

    *pool_dsn* is the address of a pooler before the same database, for all but the session with the lock.
    """

    def __init__(
        self, dsn: str, data: Path, *, name: str, version: str, now: WallClock, pool_dsn: str = ""
    ) -> None:
        self._dsn, self._pool_dsn, self._data, self._now = dsn, pool_dsn, data, now
        self.pool = Pool(pool_dsn or dsn, pooled=bool(pool_dsn))
        self.worker = Worker(dsn, self.pool, name, version)
        self.states = PostgresStates(self.pool, self.worker.ring_all)
        self.memory = PostgresMemory(self.pool)
        self.journal = PostgresJournal(self.pool, lambda: self.worker.number, self.now)
        self.history = MessageRows()
        self._reader, self._rates = DatabaseSession(self.pool), DatabaseSession(self.pool)
        self._restored_at: datetime | None = None
        self._tokens = Together(self._take_tokens)
        self._workspaces = Workspaces(self.pool, lambda: self.worker.number, self.journal.epoch_of)

    def now(self) -> datetime:
        """Return the server's time, because the clocks of workers may differ."""
        return self._now() + self.worker.clock_ahead

    async def prepare(self) -> None:
        """Bring the tables up to date. Raises OSError, `NewerSchema`, and `ConfigInvalid` for an unfit server."""
        database = await anyio.to_thread.run_sync(examine, self._dsn, self._pool_dsn)
        for fault in {POOLED, ELSEWHERE}.intersection(database.faults):
            raise ConfigInvalid(f"store: {fault}")
        for risk in (*database.faults, *database.risks):
            log.warning("store.at_risk: %s", risk)
        await anyio.to_thread.run_sync(migrate, self._dsn)
        [[restored_at]] = await self._reader.rows(IDENTIFY)
        self._restored_at = restored_at

    async def restored(self) -> Restored | None:
        """Return when the store was restored, if that happened since its first use: it may lack later messages."""
        at = self._restored_at
        return Restored(backup="", backup_at=at, restored_at=at) if at else None

    async def append_audit(self, lines: Sequence[tuple[str, bytes]]) -> None:
        """Append lines to the audit, each once. The table has their time. Raises OSError."""
        days = [day for day, _ in lines]
        await self._reader.rows(AUDIT, (days, [line.decode().rstrip("\n") for _, line in lines]))

    async def hold(self, role: str, work: Callable[[], Awaitable[None]], waits: Callable[[], None]) -> None:
        await self.worker.hold(role, work, waits)

    async def open(self, transports: Iterable[str]) -> None:
        """Join the workers. Raises OSError."""
        await self.worker.enter(transports)

    async def leave(self) -> None:
        try:
            await self.worker.leave()
        except OSError as error:
            log.warning("worker.not_left: the others find out within the lease: %s", error)
        await self.abort()

    def start(self, tasks: TaskGroup, taker: Taker) -> None:
        self.journal.start(tasks, taker)
        self.worker.start(tasks, self.journal, self.states.refresh)
        tasks.start_soon(self._collect)

    async def _collect(self) -> None:
        """Delete what nobody uses, also copies of files here, make months ahead, and note words; at intervals."""
        while True:
            try:
                await self._workspaces.drop_forgotten(self._data)
                for statement in CHORES:
                    await self._rates.rows(statement)
            except OSError as error:
                log.warning("worker.not_collected: %s", error)
            await anyio.sleep(COLLECT_EVERY_S)

    async def abort(self) -> None:
        """Close all connections, as the end of the process would."""
        for part in (self.worker, self.pool):
            await part.close()

    def context(self, thread: ThreadId) -> PostgresContext:
        return PostgresContext(thread, self.journal, self._reader, lambda: self.worker.number)

    def marks(self, transport: str) -> PostgresMarks:
        return PostgresMarks(self.pool, lambda: self.worker.number, transport)

    async def begun(self, thread: ThreadId, before: str = "") -> bool:
        with as_unavailable():
            [[begun]] = await self._reader.rows(BEGUN, (str(thread), before))
        return bool(begun)

    async def first_today(self, what: str, key: str) -> bool:
        day = self.now().toordinal() << 32
        with as_unavailable():
            number = day + crc32(key.encode("utf-8", "replace"))
            return bool(await self._rates.rows(FIRST_TODAY, (f"first:{what}", number, day)))

    async def recent(self, transport: str, within_s: float, most: int) -> Sequence[ThreadId]:
        with as_unavailable():
            rows = await self._reader.rows(RECENT, (f"{transport}:", within_s, most))
        return [ThreadId.parse(thread) for (thread,) in rows]

    async def workspace(self, thread: ThreadId) -> Path:
        root = thread_folder(self._data, thread) / "workspace"
        await retry_until_stored(partial(self._workspaces.fetch, str(thread), root))
        return root

    async def keep_workspace(self, thread: ThreadId) -> None:
        root = thread_folder(self._data, thread) / "workspace"
        await retry_until_stored(partial(self._workspaces.save, str(thread), root))

    async def forget(self, thread: ThreadId) -> None:
        """Erase all that is settled in a thread that this worker serves. Raises `StoreUnavailable`."""
        with as_unavailable():
            own = [str(thread)], [str(memory_paths(thread)["thread"])]
            left = await self._reader.rows(FORGET, (self.worker.number, *own))
        if left:
            raise StoreUnavailable(f"{thread} is another worker's by now")
        self.journal.ledger.forget_texts(thread)
        self._workspaces.forget(str(thread))

    @property
    def workers(self) -> int:
        return self.worker.alive

    @property
    def others_seen(self) -> int:
        return self.worker.others_seen

    @property
    def trouble(self) -> str:
        """Return what is wrong with the store, for people; blank if nothing is."""
        away = "the database does not answer; nothing is acknowledged or posted until it does"
        return away if self.worker.is_cut_off else ""

    async def take_token(self, name: str, per_second: float, burst: float) -> float:
        """Take a token of the shared rate. Without the server each worker keeps to its part of the rate."""
        try:
            return await self._tokens.ask((name, per_second, burst))
        except OSError:
            return self.workers / per_second

    async def _take_tokens(self, asked: list[tuple[str, float, float]]) -> list[float]:
        """Take tokens in the order of their names: two workers would wait for each other in another one."""
        order = sorted(range(len(asked)), key=lambda place: asked[place][0])
        columns = [list(column) for column in zip(*(asked[place] for place in order), strict=True)]
        waits = [float(wait) for (wait,) in await self._rates.rows(TAKE_SHARED, columns)]
        return [wait for _, wait in sorted(zip(order, waits, strict=True))]

    async def try_token(self, name: str, per_second: float, burst: float, reserve: float) -> bool:
        """Take a token of the shared rate if that leaves a reserve. Without the server there is none."""
        try:
            return bool(await self._rates.rows(TRY_SHARED, (name, burst, per_second, per_second, reserve)))
        except OSError:
            return False

    async def claim_report(self, what: str, within_s: float) -> bool:
        """Return whether this worker is to report something to the operators: no other one did so lately."""
        try:
            return bool(await self._rates.rows(CLAIM_REPORT, (what, self.worker.number, within_s)))
        except OSError:
            return True  # twice is better than never

    async def ensure_ownership(self) -> None:
        await self.worker.ensure_ownership()
