"""audit/<yyyy-mm-dd>.jsonl: decisions of people, and failures that did not end the bot.

| kind        | records                                                    | durable                          |
|-------------|------------------------------------------------------------|----------------------------------|
| feedback    | a person's feedback on an answer                           | before it is confirmed           |
| approval    | a tool call allowed or denied, or an *always* revoked      | before it takes effect           |
| decision    | yes or no to another model, no to more money               | before it takes effect           |
| skill       | a skill of the admin was loaded                            | before it takes effect           |
| grant       | a person raised a limit (also in the ledger)               | within `WRITE_EVERY_S`           |
| cancel      | a person stopped a thread                                  | the same                         |
| retry       | which attempt follows, when, and why                       | the same                         |
| failover    | a model was skipped or replaced, and why                   | the same                         |
| rotation    | another key of the same provider took a call over, and why | the same                         |
| tool        | a tool call failed, and why                                | the same                         |
| network     | a connection of a command, or its refusal                  | when the connection ends         |
| budget      | a limit was nearly reached, or stopped a turn to ask       | the same                         |
| circuit     | the calls to a model were stopped, or go out again         | the same                         |
| error       | a failure that a boundary caught, with its reason          | the same; limited per event      |
| start, stop | the process; a dead worker's stop is written by another    | the same, also at the end        |

Lines have checksums, and ``correlation_id`` is the ``(ref …)`` of their turn. A damaged end of a file is set aside
before the first append. If the disk refuses, lines wait in memory, and the log counts those that do not fit. A line
has about 300 bytes, so a thousand a day are 100 MB a year. `retention.audit_days` deletes old files.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Literal

import anyio
from cachetools import LRUCache
from pydantic import JsonValue, TypeAdapter

from bot.observe.turn_events import turn_ids
from threads.errors import StoreUnavailable
from threads.model import Feedback, ThreadId, Verdict, WallClock
from threads.store.checksummed_lines import SCHEMA_VERSION, encode, repair_tail
from threads.store.disk import Disk, Offload, write_all
from threads.wording import first_cause

log = logging.getLogger(__name__)

AuditKind = Literal[
    "feedback", "approval", "question", "decision", "skill", "grant", "cancel", "retry", "failover", "rotation",
    "tool", "network", "budget", "circuit", "error", "start", "stop",
]  # fmt: skip

Details = Mapping[str, JsonValue]
"""What a line says beside its kind and whom it is about."""

Note = Callable[[AuditKind, ThreadId, str, str, Mapping[str, str]], Awaitable[None]]
"""Writes an audit line, as `Audit.note` does."""

WRITE_EVERY_S = 1.0
"""Seconds between writes: a kill loses at most these lines."""

MOST_WAITING = 2_000
"""Lines that wait in memory while the disk refuses to write."""

MOST_VERDICTS = 1_000
"""Verdicts in memory: a person who presses one again and again adds no lines."""

LAST_WRITE_S = 3.0
"""How long a stopping process waits for the last lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """One line. ``author`` is the id of the person; ``details`` depend on the kind.

    ``worker`` is the name of the process that wrote it, blank for the only one of a data folder. Lines of earlier
    versions have none.
    """

    at: str
    kind: str
    """An `AuditKind`, or one that only a newer version knows."""
    thread_id: str = ""
    message_id: str = ""
    author: str = ""
    details: dict[str, JsonValue] = field(default_factory=dict)
    correlation_id: str = ""
    worker: str = ""
    v: int = SCHEMA_VERSION


@cache
def record_adapter() -> TypeAdapter[AuditRecord]:
    """Return the validator of audit lines, built on first use."""
    return TypeAdapter(AuditRecord)


Append = Callable[[Sequence[tuple[str, bytes]]], Awaitable[None]]
"""Appends lines, each with its day, durably. Raises OSError."""


def ignore(record: AuditRecord) -> None:
    """Listen to nothing."""


class Audit:
    """The audit, with one writer. Lines of `tell` are written while `writing` is entered.

    *listener* gets each record as it arises, from any thread, and must not wait.
    """

    def __init__(
        self,
        append: Append,
        now: WallClock,
        listener: Callable[[AuditRecord], None] = ignore,
        worker: str = "",
    ) -> None:
        self._append, self._now, self._listener, self._worker = append, now, listener, worker
        self._writing, self._order = anyio.Lock(), threading.Lock()
        self._waiting = deque[AuditRecord]()
        self._lost, self._refused = 0, False
        self._verdicts: LRUCache[tuple[str, str, str], Verdict] = LRUCache(MOST_VERDICTS)

    async def record_feedback(self, feedback: Feedback) -> None:
        """Record a person's feedback on a post, unless it is their last one again. Raises `StoreUnavailable`."""
        who = str(feedback.thread), feedback.post_id, feedback.author.id
        if self._verdicts.get(who) == feedback.verdict:
            return
        details = {"verdict": feedback.verdict, "id": feedback.id}
        await self.note("feedback", feedback.thread, feedback.post_id, feedback.author.id, details)
        self._verdicts[who] = feedback.verdict

    async def note(
        self, kind: AuditKind, thread: ThreadId, message_id: str, author: str, details: Details
    ) -> None:
        """Return when the line is on disk, and all before it. Raises `StoreUnavailable`, without the line."""
        record = self._add(kind, str(thread), message_id, author, details)
        try:
            async with self._writing:
                if any(waiting is record for waiting in self._waiting):
                    await self._write()
        except BaseException as error:
            self._drop([record])
            if isinstance(error, OSError):
                raise StoreUnavailable(f"audit: {error}") from error
            raise

    def tell(
        self,
        kind: AuditKind,
        details: Details,
        *,
        thread_id: str = "",
        message_id: str = "",
        author: str = "",
        correlation_id: str = "",
    ) -> None:
        """Write a line soon. Never waits, never fails, and is safe in any thread."""
        if len(self._waiting) >= MOST_WAITING:
            self._lost += 1
        else:
            self._add(kind, thread_id, message_id, author, details, correlation_id)

    @asynccontextmanager
    async def writing(self, facts: Mapping[str, str]) -> AsyncIterator[None]:
        """Write lines during this block: first one with the *facts*, last one that says how it ended."""
        self.tell("start", facts)
        end, how = anyio.CancelScope(shield=True), "ended"
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._run, end)
            try:
                yield
            except anyio.get_cancelled_exc_class():
                how = "stopped"
                raise
            except Exception as error:
                how = f"failed: {type(first_cause(error)).__name__}"
                raise
            finally:
                end.cancel()
                self.tell("stop", {"how": how})
                with anyio.move_on_after(LAST_WRITE_S, shield=True):
                    await self.flush()

    async def _run(self, end: anyio.CancelScope) -> None:
        with end:
            while True:
                await self.flush()
                await anyio.sleep(WRITE_EVERY_S)

    async def flush(self) -> None:
        """Write the waiting lines; if the disk refuses, they keep waiting."""
        async with self._writing:
            try:
                await self._write()
            except OSError as error:
                if not self._refused:
                    log.error("audit.not_written: trying again: %s", error)  # noqa: TRY400 - the disk says why
                self._refused = True

    async def _write(self) -> None:
        """Write the waiting lines, in the order in which they arose. Raises OSError."""
        if not (waiting := list(self._waiting)):
            return
        await self._append(_lines(waiting))
        self._drop(waiting)
        self._refused = False
        if self._lost:
            log.error("audit.lost: %d lines did not fit into memory while the disk refused", self._lost)
            self._lost = 0

    def _add(
        self,
        kind: AuditKind,
        thread_id: str,
        message_id: str,
        author: str,
        details: Details,
        correlation_id: str = "",
    ) -> AuditRecord:
        """Let a line wait behind those of earlier times, whichever thread it comes from."""
        with self._order:
            record = AuditRecord(
                at=self._now().isoformat(timespec="milliseconds"),
                kind=kind,
                thread_id=thread_id,
                message_id=message_id,
                author=author,
                details=dict(details),
                correlation_id=correlation_id or turn_ids().get("correlation_id", ""),
                worker=self._worker,
            )
            self._waiting.append(record)
        self._listener(record)
        return record

    def _drop(self, records: Iterable[AuditRecord]) -> None:
        gone = set(map(id, records))
        with self._order:
            self._waiting = deque(record for record in self._waiting if id(record) not in gone)


def _lines(records: Iterable[AuditRecord]) -> list[tuple[str, bytes]]:
    return [(record.at[:10], encode(record_adapter(), record)) for record in records]


class AuditFiles:
    """The files of one machine."""

    def __init__(self, disk: Disk, folder: Path, offload: Offload) -> None:
        self._disk, self._folder, self._offload = disk, folder, offload

    async def append(self, lines: Sequence[tuple[str, bytes]]) -> None:
        """Append lines, each to the file of its day; see `Append`."""
        await self._offload(self._write, lines)

    def _write(self, lines: Sequence[tuple[str, bytes]]) -> None:
        self._disk.mkdir(self._folder)
        for day, of_day in groupby(lines, itemgetter(0)):
            self._append(self._folder / f"{day}.jsonl", b"".join(line for _, line in of_day))
        self._disk.fsync_folder(self._folder)

    def _append(self, path: Path, lines: bytes) -> None:
        with suppress(FileNotFoundError):
            repair_tail(self._disk, path)
        file = self._disk.append(path)
        try:
            write_all(file, lines)
            file.fsync()
        finally:
            file.close()
