"""log.jsonl: a thread's history for people and for search; append-only.

Lines are written to the kernel before the message is settled in the journal, so a killed process loses none; they are
not fsynced (the journal is), so a power cut may take the last seconds. One task writes for all threads.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

import anyio
from pydantic import TypeAdapter

from .disk import Disk, Offload, append
from .errors import NewerSchema
from .lines import SCHEMA_VERSION, encode, mend_tail, read_line, scan

log = logging.getLogger(__name__)

LINES_KEPT = 10_000
"""How many lines wait in memory while the disk refuses them; beyond that the oldest are dropped and counted."""


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


@dataclass(slots=True)
class _Batch:
    lines: list[tuple[Path, str, bytes]] = field(default_factory=list)
    done: anyio.Event = field(default_factory=anyio.Event)


class Log:
    """Writes every thread's log; keep `run` going in a task."""

    def __init__(self, disk: Disk, *, offload: Offload) -> None:
        self._disk, self._offload = disk, offload
        self._batch = _Batch()
        self._wake = anyio.Event()

    async def append(self, folder: Path, entries: list[Entry], *, unless_settled: str = "") -> None:
        """Return when the entries were handed to the kernel.

        A disk that refuses does not fail the message: the lines are kept for the next write. *unless_settled* is
        a message id; when the log already shows that message as settled (before a crash), nothing is written.
        """
        batch = self._batch
        lines = b"".join(encode(entry_adapter(), entry) for entry in entries)
        batch.lines.append((folder / "log.jsonl", unless_settled, lines))
        self._wake.set()
        await batch.done.wait()

    async def run(self) -> None:
        """Write batches until cancelled."""
        while True:
            await self._wake.wait()
            self._wake = anyio.Event()
            batch, self._batch = self._batch, _Batch()
            refused = await self._offload(self._write, batch.lines)
            if refused:
                dropped = max(0, len(refused) - LINES_KEPT)
                log.warning("log lines kept in memory: %d, dropped: %d", len(refused) - dropped, dropped)
                self._batch.lines[:0] = refused[dropped:]
            batch.done.set()

    def _write(self, lines: list[tuple[Path, str, bytes]]) -> list[tuple[Path, str, bytes]]:
        refused = []
        for path, settled, data in lines:
            try:
                self._append(path, settled, data)
            except OSError as error:
                log.warning("log write failed: %s", error)
                refused.append((path, settled, data))
        return refused

    def _append(self, path: Path, settled: str, data: bytes) -> None:
        try:
            mend_tail(self._disk, path)
            if settled and any(
                e.kind == "settled" and e.message_id == settled for e in entries(self._disk, path)
            ):
                return
        except FileNotFoundError:
            self._disk.mkdir(path.parent)
        append(self._disk, path, data, durable=False)


def entries(disk: Disk, path: Path) -> Iterator[Entry]:
    """Return the readable lines of a log; damaged ones are skipped. A missing file is an empty log."""
    try:
        data = disk.read(path)
    except FileNotFoundError:
        return
    for line in scan(data).good:
        try:
            yield read_line(entry_adapter(), line)
        except (ValueError, NewerSchema):
            log.warning("a line of %s is of another shape and was skipped", path.name)
