"""log.jsonl: a thread's history for people and for search. Append-only.

A message's lines are written once it is settled in the journal. The journal knows how far that was done, so a start
adds what a killed process did not write. The log is not fsynced, as the journal is: a power cut may lose its last
seconds. One task writes for all threads.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from .errors import NewerSchema, StoreUnavailable, error_fields
from .journal.records import PendingMessage, Settled
from .model import QuestionClosed, ThreadId, UsageCounted
from .store.checksummed_lines import SCHEMA_VERSION, encode, read_line, repair_tail, scan
from .store.disk import Disk, Offload, read_or_empty, write_all
from .store.group_commit import Batch, GroupWriter

log = logging.getLogger(__name__)

MAX_WAITING = 10_000
"""Messages whose entries wait in memory while the disk refuses. Beyond, the oldest are dropped and counted."""

MAX_CHECKED = 10_000
"""Logs that are known to end with a complete line. Others are checked before the next line."""

REPAIRED_BYTES = 1_000_000
"""Bytes at the end of a log that are searched for messages that a killed process did not log."""


STAYED = ("refused", "withdrawn")
"""The outcomes after which the conversation is as it was, whatever the message was to replace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """One line. ``author`` is the person's id, blank for the bot. A notice that is ``closed`` was a question.

    ``outcome``, ``by`` and ``spent`` are for ``settled``. ``files``, their names and sizes in bytes, and ``quoted``,
    what others say in it, are for a message. So is ``replaces``, the message to which the conversation went back.
    """

    at: str
    kind: Literal["message", "reply", "notice", "error", "settled"]
    message_id: str
    author: str = ""
    text: str = ""
    outcome: str = ""
    by: str = ""
    code: str = ""
    correlation_id: str = ""
    platform_id: str = ""
    files: tuple[tuple[str, int], ...] = ()
    closed: QuestionClosed | None = None
    spent: UsageCounted | None = None
    quoted: str = ""
    replaces: str = ""
    v: int = SCHEMA_VERSION


@cache
def entry_adapter() -> TypeAdapter[LogEntry]:
    """Return the validator of log lines, built on first use."""
    return TypeAdapter(LogEntry)


@dataclass(frozen=True, slots=True, eq=False)
class TurnWork:
    """Lines for a log by message id. Those under ``""`` are always written. ``then`` is called afterwards."""

    path: Path
    lines: dict[str, bytes]
    then: Callable[[], None]


class Log:
    """Writes the logs of all threads, each into its ``folder``. Keep `run` going in a task."""

    def __init__(self, disk: Disk, *, folder: Callable[[ThreadId], Path], offload: Offload) -> None:
        self._disk, self._offload = disk, offload
        self._path = lru_cache(MAX_CHECKED)(lambda thread: folder(thread) / "log.jsonl")
        self._group = GroupWriter(self._commit)
        self._refused: list[TurnWork] = []
        self._checked: set[Path] = set()  # logs that end with a complete line

    def put(self, thread: ThreadId, entries: list[LogEntry], then: Callable[[], None]) -> Batch[TurnWork]:
        """Begin to append the entries. *then* is called when the kernel has them.

        If the disk refuses, the lines wait for the next write. The message does not fail.
        """
        return self._group.put(TurnWork(self._path(thread), {"": _encode(entries)}, then))

    def repair(
        self, thread: ThreadId, settled: dict[str, list[LogEntry]], then: Callable[[], None]
    ) -> Batch[TurnWork]:
        """As `put`, for the entries of each message, by its id, that the log does not show as settled."""
        lines = {message_id: _encode(entries) for message_id, entries in settled.items()}
        return self._group.put(TurnWork(self._path(thread), lines, then))

    async def run(self) -> None:
        """Write until cancelled. The next start adds what was not written."""
        await self._group.run()

    async def _commit(self, work: list[TurnWork]) -> None:
        work = [*self._refused, *work]
        refused = await self._offload(self._write, work)
        self._refused = list(refused)[-MAX_WAITING:]
        for one in work:
            if one not in refused:
                one.then()
        if refused:
            log.warning(
                "log.behind: entries kept: %d, dropped: %d",
                len(self._refused),
                len(refused) - len(self._refused),
            )

    def _write(self, work: list[TurnWork]) -> dict[TurnWork, None]:
        """Append the lines, and return in their order the works that a log refused."""
        refused: dict[TurnWork, None] = {}
        behind = set[Path]()  # later lines must not overtake those that a log refused
        for one in work:
            try:
                if one.path not in behind:
                    self._append(one.path, one.lines)
                    continue
            except OSError as error:
                log.warning("log.write_failed: %s", error, extra=error_fields(StoreUnavailable(str(error))))
                behind.add(one.path)
            refused[one] = None
        return refused

    def _append(self, path: Path, lines: dict[str, bytes]) -> None:
        known: set[str] = set()
        if path not in self._checked:
            with suppress(FileNotFoundError):
                repair_tail(self._disk, path)
        if "" not in lines:
            with suppress(FileNotFoundError):
                known = self._settled(path)
        data = b"".join(line for message_id, line in lines.items() if message_id not in known)
        if not data:
            return
        try:
            file = self._disk.append(path)
        except FileNotFoundError:
            self._disk.mkdir(path.parent)
            file = self._disk.append(path)
        self._checked.discard(path)
        try:
            write_all(file, data)
        finally:
            file.close()
        if len(self._checked) >= MAX_CHECKED:
            self._checked.clear()
        self._checked.add(path)

    def _settled(self, path: Path) -> set[str]:
        """Return the messages that the end of a log shows as settled. Only recent ones can be missing."""
        found = readable(self._disk.tail(path, REPAIRED_BYTES))
        return {entry.message_id for entry in found if entry.kind == "settled"}


def log_entries(pending: PendingMessage, end: Settled) -> list[LogEntry]:
    """Return the log entries of a settled message: what was said, asked and answered, and the outcome."""
    received, intent, message_id = pending.received, pending.intent, pending.received.message_id
    question = LogEntry(
        at=received.at,
        kind="message",
        message_id=message_id,
        author=received.author.id,
        text=received.text,
        quoted=received.quoted,
        files=tuple((file.name, file.size) for file in received.files),
        replaces=received.replaces if pending.started and end.outcome not in STAYED else "",
    )
    outcome = LogEntry(
        at=end.at,
        kind="settled",
        message_id=message_id,
        outcome=end.outcome,
        by=end.by,
        code=intent.code if intent else "",
        correlation_id=pending.reference,
        spent=end.spent,
    )
    said = [
        LogEntry(at=end.at, kind="notice", message_id=message_id, text=asked.text, closed=asked.closed)
        for asked in pending.asked
    ]
    if end.shown:
        said.append(LogEntry(at=end.at, kind="reply", message_id=message_id, text=end.shown))
    if intent is None:
        return [question, *said, outcome]
    posted = pending.platform_id
    kind = "notice" if intent.post == "refusal" else intent.post
    answer = LogEntry(at=end.at, kind=kind, message_id=message_id, text=intent.text, platform_id=posted)
    return [question, *said, answer, outcome]


def _encode(entries: list[LogEntry]) -> bytes:
    return b"".join(encode(entry_adapter(), entry) for entry in entries)


def entries(disk: Disk, path: Path) -> Iterator[LogEntry]:
    """Return the readable lines of a log. Damaged lines are skipped. A missing file is an empty log."""
    yield from readable(read_or_empty(disk, path))


def readable(data: bytes) -> Iterator[LogEntry]:
    """Return the entries in a log's bytes."""
    for line in scan(data).good:
        try:
            yield read_line(entry_adapter(), line)
        except (ValueError, NewerSchema):
            log.warning("log.odd_line: a line is of another shape and was skipped")
