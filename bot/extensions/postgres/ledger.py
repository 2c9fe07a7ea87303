"""The ledger of many workers: accounts in PostgreSQL, exact whoever spends, whoever dies.

A reservation is one call of a function that locks the accounts, judges and reserves. ``budgets`` has the totals as
they were last seen here: for words, never for a judgement.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Self

import anyio

from bot.budget.budgets import (
    ENDED,
    Budgets,
    Call,
    Commit,
    Grant,
    Key,
    Level,
    OverLimit,
    Pace,
    Policy,
    Record,
    Reserve,
    Total,
    Warned,
    record_adapter,
)
from bot.extensions.postgres.session import DatabaseSession, Pool, Row, Together, as_unavailable
from bot.ports.model import Usage
from threads.errors import StoreUnavailable, error_fields
from threads.model import WallClock
from threads.store.checksummed_lines import encode
from threads.store.group_commit import GroupWriter

log = logging.getLogger(__name__)

BLOCK = 100
"""Numbers of records that a worker draws at once: the sequence's step."""

RETRY_S = 1.0
"""Pause before a reservation is sent again that found no server."""

REFRESH_S = 2.0
"""How often the totals of today and of this month are read, for status and for scheduled messages."""

GATHER_S = 0.2
"""Seconds between two writes of calls that nothing was reserved for: nobody waits for them."""

MOST_TOTALS = 50_000
"""Totals that are remembered here."""

NUMBERS = "SELECT nextval('spending_seq')"
COLUMNS = "scope, key, spent, granted, prompt, cached, output, said, day, reserved"
READ = (
    f"SELECT {COLUMNS} FROM unnest(%s::text[], %s::text[]) g (of_scope, of_key) CROSS JOIN "  # noqa: S608 - constants
    "LATERAL (SELECT * FROM account a WHERE a.scope = g.of_scope AND a.key = g.of_key LIMIT 1) a"
)
RESERVE = "SELECT fits, (of).* FROM reserve(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
COMMIT = f"SELECT {COLUMNS} FROM commit_calls(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"  # noqa: S608 - constants
LAPSE = "SELECT entry, cost FROM lapse()"
GRANT = f"SELECT {COLUMNS} FROM grant_more(%s, %s, %s, %s, %s)"  # noqa: S608 - constants
WARN = "SELECT new, (of).* FROM warn(%s, %s, %s, %s, %s)"


class PostgresLedger:
    """A `bot.budget.accounts.SpendingLedger`.

    *me* is the worker's number. What *lost* returns is raised in a worker that was taken for dead.
    """

    def __init__(
        self, pool: Pool, me: Callable[[], int], now: WallClock, lost: Callable[[], Exception]
    ) -> None:
        self.budgets = Budgets()
        self._calls, self._writer = DatabaseSession(pool), DatabaseSession(pool)
        self._me, self._now, self._lost = me, now, lost
        self._numbers: Iterator[int] = iter(())
        self._reads = Together(self._read_all)
        self._commits, self._next_commit = GroupWriter(self._commit), 0.0
        self._reserved = anyio.Event()

    @property
    def today(self) -> str:
        return self._now().date().isoformat()

    async def read(self, keys: Iterable[Key]) -> None:
        with as_unavailable():
            await self._reads.ask(keys)

    async def _read_all(self, asked: list[Iterable[Key]]) -> list[None]:
        self._take(await self._calls.rows(READ, _columns({key: None for keys in asked for key in keys})))
        return [None] * len(asked)

    async def reserve(self, call: Call, most: int, policy: Policy, pace: Pace | None = None) -> int:
        """Reserve; while the server is away it waits, as everything does, until its turn's time is over."""
        scopes, keys = _columns(call.keys)
        caps = [policy.limit(key) if policy.hard else None for key in call.keys]
        record = Reserve(call=call, micros=most, pace=pace)
        rows: list[Row] = []
        try:
            while not rows:
                try:
                    line = await self._line(record)
                    grows = (pace.at_once, pace.per_s) if pace else (None, 0)
                    values = (self._me(), record.seq, scopes, keys, caps, call.day, most, line, *grows)
                    if not (rows := await self._calls.rows(RESERVE, values)):
                        raise self._lost()
                except OSError as error:
                    log.warning(
                        "usage.write_failed: %s", error, extra=error_fields(StoreUnavailable(str(error)))
                    )
                    await anyio.sleep(RETRY_S)
        except BaseException:  # cancelled: the call never goes out
            if record.seq:
                self.put(
                    Commit(call=call, usage=Usage(), micros=0, outcome="turn_stopped", reserve=record.seq)
                )
            raise
        self._take(row[1:] for row in rows)
        if not rows[0][0]:
            raise OverLimit(self.budgets.shortages(call, most, policy), most)
        return record.seq

    def put(self, record: Commit) -> object:
        if record.reserve:
            self._reserved.set()
        return self._commits.carry(record)

    async def warn(self, call: Call, policy: Policy) -> list[tuple[Key, Level]]:
        new: list[tuple[Key, Level]] = []
        with suppress(OSError):  # what is not said now is said with the next call
            for (scope, name), level in self.budgets.due(call, policy):
                record = Warned(scope=scope, key=name, level=level)
                line = await self._line(record)
                [[is_new, *account]] = await self._calls.rows(WARN, (record.seq, scope, name, level, line))
                self._take([account])
                new += [((scope, name), level)] if is_new else []
        return new

    async def append(self, record: Grant) -> None:
        with as_unavailable():
            line = await self._line(record)
            self._take(
                await self._calls.rows(GRANT, (record.seq, record.scope, record.key, record.micros, line))
            )

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[Self]:
        """Write, and see to what others spent, for as long as the block lasts; then write what it left."""
        end = anyio.CancelScope(shield=True)

        async def write() -> None:
            with end:
                await self._commits.run()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            tasks.start_soon(self._refresh)
            try:
                yield self
            finally:
                tasks.cancel_scope.cancel()
                end.cancel()

    async def _refresh(self) -> None:
        is_away = False
        while True:
            today = self.today
            keys: list[Key] = [("day", today), ("month", today[:7]), ("schedule_day", today)]
            keys += [key for key in self.budgets.totals if key[0] == "scope_day" and key[1].startswith(today)]
            try:
                for entry, cost in await self._calls.rows(LAPSE):
                    self._note_lapsed(entry, cost)
                self._take(await self._calls.rows(READ, _columns(keys)))
                is_away = False
            except OSError as error:
                log.log(logging.DEBUG if is_away else logging.WARNING, "usage.not_read: %s", error)
                is_away = True
            if len(self.budgets.totals) > MOST_TOTALS:
                self.budgets.totals.clear()  # each is read again when it is needed
            await anyio.sleep(REFRESH_S)

    def _note_lapsed(self, entry: str, cost: int) -> None:
        """Write for the reports what a call of a dead worker was charged; the accounts have it already."""
        reserve = record_adapter().validate_json(entry)
        if isinstance(reserve, Reserve):
            self.put(
                Commit(call=reserve.call, usage=Usage(), micros=cost, outcome=ENDED, reserve=reserve.seq)
            )

    async def _commit(self, records: list[Commit]) -> None:
        if not records:
            return
        if not any(record.reserve for record in records):
            with anyio.move_on_after(self._next_commit - anyio.current_time()):
                await self._reserved.wait()  # in the next batch: what is reserved is missing for other calls
        self._reserved, self._next_commit = anyio.Event(), anyio.current_time() + GATHER_S
        lines = [await self._line(record) for record in records]
        keys = [(number, key) for number, record in enumerate(records, 1) for key in record.call.keys]
        usages = [record.usage for record in records]
        values = (
            [record.seq for record in records],
            lines,
            [record.reserve for record in records],
            [record.micros or 0 for record in records],
            [usage.prompt for usage in usages],
            [usage.cache_read for usage in usages],
            [usage.output for usage in usages],
            [record.call.day for record in records],
            [number for number, _ in keys],
            *_columns(key for _, key in keys),
        )
        try:
            self._take(await self._writer.rows(COMMIT, values))
        except OSError as error:
            log.warning("usage.write_failed: %s", error, extra=error_fields(StoreUnavailable(str(error))))
            raise

    async def _line(self, record: Record) -> str:
        """Return a record's line; its number is drawn once."""
        if not record.seq:
            record.seq, record.at = await self._number(), self._now().isoformat(timespec="milliseconds")
        return encode(record_adapter(), record).decode().rstrip("\n")

    async def _number(self) -> int:
        while (number := next(self._numbers, 0)) == 0:
            [[first]] = await self._calls.rows(NUMBERS)
            self._numbers = iter(range(first, first + BLOCK))
        return number

    def _take(self, rows: Iterable[Sequence[Any]]) -> None:
        for scope, name, *amounts in rows:
            self.budgets.totals[scope, name] = Total(*amounts)


def _columns(keys: Iterable[Key]) -> tuple[list[str], list[str]]:
    pairs = list(keys)
    return [scope for scope, _ in pairs], [name for _, name in pairs]
