"""log.jsonl: a thread's history for people and for search; append-only.

Lines are written once the message is settled in the journal, which knows up to where that was done: a start adds what
a killed process did not bring into them. They are not fsynced (the journal is), so a power cut may take the last
seconds. One task writes for all threads.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from .errors import NewerSchema
from .journal.records import PendingMessage, Settled
from .model import ThreadId
from .store.checksummed_lines import SCHEMA_VERSION, encode, read_line, repair_tail, scan
from .store.disk import Disk, Offload, read_or_empty, write_all
from .store.group_commit import Batch, GroupWriter

log = logging.getLogger(__name__)

KEPT = 10_000
"""How many messages' entries wait in memory while the disk refuses; beyond, the oldest are dropped and counted."""

WHOLE = 10_000
"""How many logs are known to end with a whole line; the others are looked at before the next line."""

REPAIRED_BYTES = 1_000_000
"""How much of a log's end is looked at for what a killed process did not bring into it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line. ``author`` is the person's id, or empty for the bot; ``outcome`` and ``by`` are for settled."""

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
    v: int = SCHEMA_VERSION


@cache
def entry_adapter() -> TypeAdapter[Entry]:
    """Return the validator of log lines, built on first use."""
    return TypeAdapter(Entry)


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """Lines for a log by message; those under ``""`` are written whatever is there. Then ``then`` is called."""

    path: Path
    lines: dict[str, bytes]
    then: Callable[[], None]


class Log:
    """Writes every thread's log, into its ``folder``; keep `run` going in a task."""

    def __init__(self, disk: Disk, *, folder: Callable[[ThreadId], Path], offload: Offload) -> None:
        self._disk, self._folder, self._offload = disk, folder, offload
        self._group = GroupWriter(self._commit)
        self._kept: list[Work] = []
        self._whole: set[Path] = set()  # logs that end with a whole line, as the last write here did

    def put(self, thread: ThreadId, entries: list[Entry], then: Callable[[], None]) -> Batch[Work]:
        """Begin to append the entries; *then* is called when they were handed to the kernel.

        A disk that refuses does not fail the message: the lines are kept for the next write.
        """
        return self._group.put(Work(self._path(thread), {"": _encode(entries)}, then))

    def repair(
        self, thread: ThreadId, settled: dict[str, list[Entry]], then: Callable[[], None]
    ) -> Batch[Work]:
        """Append the entries of each message, by its id, that the log does not show as settled yet; as `put`."""
        lines = {message_id: _encode(entries) for message_id, entries in settled.items()}
        return self._group.put(Work(self._path(thread), lines, then))

    def _path(self, thread: ThreadId) -> Path:
        return self._folder(thread) / "log.jsonl"

    async def run(self) -> None:
        """Write until cancelled; the next start completes what was not written."""
        await self._group.run()

    async def _commit(self, work: list[Work]) -> None:
        work = [*self._kept, *work]
        refused = await self._offload(self._write, work)
        self._kept = refused[-KEPT:]
        for one in work:
            if one not in refused:
                one.then()
        if refused:
            log.warning(
                "log.behind: entries kept: %d, dropped: %d", len(self._kept), len(refused) - len(self._kept)
            )

    def _write(self, work: list[Work]) -> list[Work]:
        refused = []
        for one in work:
            try:
                self._append(one.path, one.lines)
            except OSError as error:
                log.warning("log.write_failed: %s", error, extra={"code": "store_unavailable"})
                refused.append(one)
        return refused

    def _append(self, path: Path, lines: dict[str, bytes]) -> None:
        known: set[str] = set()
        if path not in self._whole:
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
        self._whole.discard(path)
        try:
            write_all(file, data)
        finally:
            file.close()
        if len(self._whole) >= WHOLE:
            self._whole.clear()
        self._whole.add(path)

    def _settled(self, path: Path) -> set[str]:
        """Return the messages that the end of a log shows as settled: what may be missing is recent."""
        found = readable(self._disk.tail(path, REPAIRED_BYTES))
        return {entry.message_id for entry in found if entry.kind == "settled"}


def log_entries(pending: PendingMessage, end: Settled) -> list[Entry]:
    """Return a settled message as its thread's log tells it: what was asked, what was said, how it ended."""
    received, intent, message_id = pending.received, pending.intent, pending.received.message_id
    author, text = received.author.id, received.text
    asked = Entry(at=received.at, kind="message", message_id=message_id, author=author, text=text)
    ended = Entry(
        at=end.at,
        kind="settled",
        message_id=message_id,
        outcome=end.outcome,
        by=end.by,
        code=intent.code if intent else "",
        correlation_id=pending.reference,
    )
    if intent is None:
        return [asked, ended]
    posted = pending.platform_id
    kind = "notice" if intent.post == "refusal" else intent.post
    said = Entry(at=end.at, kind=kind, message_id=message_id, text=intent.text, platform_id=posted)
    return [asked, said, ended]


def _encode(entries: list[Entry]) -> bytes:
    return b"".join(encode(entry_adapter(), entry) for entry in entries)


def entries(disk: Disk, path: Path) -> Iterator[Entry]:
    """Return the readable lines of a log; damaged ones are skipped. A missing file is an empty log."""
    yield from readable(read_or_empty(disk, path))


def readable(data: bytes) -> Iterator[Entry]:
    """Return the entries among a log's bytes."""
    for line in scan(data).good:
        try:
            yield read_line(entry_adapter(), line)
        except (ValueError, NewerSchema):
            log.warning("log.odd_line: a line is of another shape and was skipped")
