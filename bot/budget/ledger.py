"""usage/<yyyy-mm>.jsonl: the reservation of each model call before it goes out, and its cost afterwards.

A reservation is on disk before its call goes out; in memory it counts at once, so that of two calls at the edge of a
limit only one goes. Files are append-only. A month begins a new one, and so does a file that has grown large
(``<yyyy-mm>.2.jsonl``) or that the disk has failed in: nothing more goes to a descriptor after a failed write. Each
begins with a head, the sums of the older ones, so a start reads one file, however many there are. None is deleted:
`bot.reports.usage` reads all of them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import anyio

from bot.budget.budgets import (
    Budgets,
    Call,
    Carried,
    Commit,
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
from bot.ports.model import Usage
from threads.errors import StoreUnavailable, error_fields
from threads.model import WallClock
from threads.store.checksummed_lines import encode, read_records
from threads.store.disk import Disk, File, Offload, read_or_empty, replace_file, set_aside, write_all
from threads.store.group_commit import Batch, GroupWriter

log = logging.getLogger(__name__)

BEGIN_ANEW_ABOVE = 500_000
"""Bytes appended to a file before the next one: about 700 calls, which a start reads back in 30 ms."""

HEADS = 2
"""How many times its head's bytes are appended to a file first, so that heads are at most a third of the whole."""

MAX_UNWRITTEN = 10_000
"""Lines that wait in memory while the disk fails; of more, the oldest are dropped. Their sums are never lost."""

_NAME = re.compile(r"(\d{4}-\d{2})(?:\.([1-9]\d{0,8}))?\.jsonl", re.ASCII)

Good = list[tuple[Record, bytes]]
Item = tuple[bytes, bool]
"""A line, and whether somebody waits for it to be durable."""


@dataclass(frozen=True, slots=True, order=True)
class Part:
    """One file of the ledger: its month, and which of that month's files it is, from 1."""

    month: str
    number: int = 1

    @property
    def name(self) -> str:
        return f"{self.month}.jsonl" if self.number == 1 else f"{self.month}.{self.number}.jsonl"

    def next(self, month: str) -> Part:
        """Return the part after this one; a clock that went back does not go back to an older file."""
        return Part(month) if month > self.month else Part(self.month, self.number + 1)


def parts(names: Iterable[str]) -> list[Part]:
    """Return the ledger's files among *names*, oldest first."""
    found = [match for name in names if (match := _NAME.fullmatch(name))]
    return sorted(Part(match[1], int(match[2] or 1)) for match in found)


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.is_file()] if folder.is_dir() else []


def since_carried(found: Sequence[Part], read: Callable[[Part], list[Record]]) -> list[Record]:
    """Return the newest file's records, and before them those of older files if its head is damaged."""
    records: list[Record] = []
    for part in reversed(found):
        here = read(part)
        head = [record for record in here if isinstance(record, Carried)]
        if head and [line.place for line in head] == list(range(head[0].lines)):
            return [*here, *records]
        records = [*(record for record in here if not isinstance(record, Carried)), *records]
    return records


class Ledger:
    """The ledger of one data folder. Construct, `open`, then keep `run` going in a task."""

    def __init__(
        self,
        disk: Disk,
        folder: Path,
        *,
        offload: Offload,
        now: WallClock,
        names: Callable[[Path], Iterable[str]] = names_in,
    ) -> None:
        self.budgets = Budgets()
        self._disk, self._folder, self._offload, self._now, self._names = disk, folder, offload, now, names
        self._part: Part | None = None
        self._file: File | None = None
        self._room = 0
        self._unwritten: list[bytes] = []
        self._group = GroupWriter(self._commit)

    @property
    def today(self) -> str:
        """The UTC day that a call which begins now belongs to."""
        return self._now().date().isoformat()

    def open(self) -> int:
        """Read the ledger, set damaged lines aside, and return how many there were. Blocking.

        Raises OSError, and `threads.errors.NewerSchema` when a newer version wrote the newest file.
        """
        found, read = parts(self._names(self._folder)), cache(self._read)
        for record in since_carried(found, lambda part: [line for line, _ in read(part)[0]]):
            self.budgets.apply(record)
        lapsed = [encode(record_adapter(), record) for record in self.budgets.lapse(self._now())]
        damaged = self._repair(found[-1], *read(found[-1]), lapsed) if found else 0
        if damaged:
            log.warning(
                "usage.damaged: %d damaged lines put aside; what they counted is not known any more", damaged
            )
        return damaged

    async def read(self, _: Iterable[Key]) -> None:
        """Do nothing: the totals are always up to date."""

    async def reserve(self, call: Call, most: int, policy: Policy, pace: Pace | None = None) -> int:
        """Set aside what a call can cost; see `bot.budget.accounts.SpendingLedger`."""
        if shortages := self.budgets.shortages(call, most, policy):
            raise OverLimit(shortages, most)
        record = Reserve(call=call, micros=most, pace=pace)
        written = self.put(record, durable=True)
        try:
            await written.done.wait()
        except BaseException:  # cancelled: the call never went out
            self._release(record, "turn_stopped")
            raise
        if written.error is not None and policy.binding:
            self._release(record, "store_unavailable")
            raise StoreUnavailable(f"ledger: {written.error}") from written.error
        return record.seq

    async def warn(self, call: Call, policy: Policy) -> list[tuple[Key, Level]]:
        """Return the limits for which a warning is due; see `bot.budget.accounts.SpendingLedger`."""
        due = self.budgets.due(call, policy)
        for (scope, name), level in due:
            self.put(Warned(scope=scope, key=name, level=level))
        return due

    def _release(self, reserve: Reserve, outcome: str) -> None:
        self.put(Commit(call=reserve.call, usage=Usage(), micros=0, outcome=outcome, reserve=reserve.seq))

    def put(self, record: Record, *, durable: bool = False) -> Batch[Item]:
        """Count a record at once and write it soon; ``done`` of the returned batch is set when it is written."""
        record.seq = self.budgets.seq + 1
        record.at = self._now().isoformat(timespec="milliseconds")
        self.budgets.apply(record)
        return self._group.put((encode(record_adapter(), record), durable))

    async def append(self, record: Record) -> None:
        """Return when the record is on disk; raises `StoreUnavailable`, although the record counts even then."""
        batch = self.put(record, durable=True)
        await batch.done.wait()
        if batch.error is not None:
            raise StoreUnavailable(f"ledger: {batch.error}") from batch.error

    async def run(self) -> None:
        """Write until cancelled, then write the rest: a call without its commit costs its whole reservation."""
        await self._group.run()

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Write while the block lasts, also while it is being cancelled, and then write the rest."""
        end = anyio.CancelScope(shield=True)

        async def run() -> None:
            with end:
                await self.run()

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run)
                try:
                    yield
                finally:
                    end.cancel()
        finally:
            self._close()

    async def _commit(self, batch: list[Item]) -> None:
        self._unwritten += [line for line, _ in batch]
        if not self._unwritten:
            return
        month = self._now().strftime("%Y-%m")
        try:
            if self._file is None or self._room < 0 or (self._part and month > self._part.month):
                at, data = self._now().isoformat(timespec="milliseconds"), b"".join(self._unwritten)
                self.budgets.drop(await self._offload(self._begin, month, at, self.budgets.snapshot(), data))
            else:
                durable = any(durable for _, durable in batch)
                await self._offload(self._append, b"".join(self._unwritten), durable)
        except OSError as error:
            log.warning("usage.write_failed: %s", error, extra=error_fields(StoreUnavailable(str(error))))
            del self._unwritten[:-MAX_UNWRITTEN]
            raise
        self._unwritten.clear()

    def _begin(self, month: str, at: str, budgets: Budgets, data: bytes) -> dict[Key, Total]:
        """Begin a new file, whole and durable; return the totals that it does not carry over."""
        self._close()
        past = budgets.forget()
        head = []
        for carried in budgets.carry():
            carried.at = at
            head.append(encode(record_adapter(), carried))
        part = self._part.next(month) if self._part else Part(month)
        path = self._folder / part.name
        replace_file(self._disk, path, b"".join([*head, data]), new=self._part is None)
        self._part, self._room = part, _room(head) - len(data)
        self._file = self._disk.append(path)
        return past

    def _append(self, data: bytes, durable: bool) -> None:
        assert self._file is not None
        try:
            write_all(self._file, data)
            if durable:
                self._file.fsync()
        except OSError:
            self._close()
            raise
        self._room -= len(data)

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _repair(self, part: Part, good: Good, damaged: list[bytes], more: list[bytes]) -> int:
        """Set the newest file's damaged lines aside, add *more* lines, and open it for appending."""
        path = self._folder / part.name
        for piece in damaged:
            set_aside(self._disk, path, piece)
        # Into a fresh file: after a failed fsync the lines of a killed process may be in the page cache only.
        replace_file(self._disk, path, b"".join([*(line + b"\n" for _, line in good), *more]))
        self._file = self._disk.append(path)
        head = [line for record, line in good if isinstance(record, Carried)]
        self._part, self._room = part, _room(head) - sum(len(line) for _, line in good[len(head) :])
        return len(damaged)

    def _read(self, part: Part) -> tuple[Good, list[bytes]]:
        """Return a file's records with their lines, and its damaged pieces."""
        return read_records(record_adapter(), read_or_empty(self._disk, self._folder / part.name))


def _room(head: list[bytes]) -> int:
    """Return how many bytes are appended after such a head before a new file begins."""
    return max(BEGIN_ANEW_ABOVE, HEADS * sum(map(len, head)))
