"""audit/<yyyy-mm-dd>.jsonl: who decided or judged what, one line each, durable before it is answered.

Lines are checksummed as all others. A damaged end is put aside before the first append to a file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Literal

import anyio
from pydantic import TypeAdapter

from threads.disk import Disk, Offload, write_all
from threads.errors import StoreUnavailable
from threads.lines import SCHEMA_VERSION, encode, mend_tail
from threads.model import Feedback, ThreadId

AuditKind = Literal["feedback", "approval", "skill"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """One line. ``author`` is the person's id; ``details`` depend on the kind."""

    at: str
    kind: AuditKind
    thread_id: str
    message_id: str
    author: str
    details: dict[str, str] = field(default_factory=dict)
    v: int = SCHEMA_VERSION


@cache
def _adapter() -> TypeAdapter[AuditRecord]:
    return TypeAdapter(AuditRecord)


class Audit:
    """The audit of one data folder; one writer."""

    def __init__(self, disk: Disk, folder: Path, *, offload: Offload, now: Callable[[], datetime]) -> None:
        self._disk, self._folder, self._offload, self._now = disk, folder, offload, now
        self._writing = anyio.Lock()

    async def judged(self, feedback: Feedback) -> None:
        """Note what a person thinks of a post. Raises `StoreUnavailable`."""
        details = {"verdict": feedback.verdict, "id": feedback.id}
        await self.note("feedback", feedback.thread, feedback.post_id, feedback.author.id, details)

    async def note(
        self, kind: AuditKind, thread: ThreadId, message_id: str, author: str, details: Mapping[str, str]
    ) -> None:
        """Write one line. Raises `StoreUnavailable`."""
        now = self._now()
        record = AuditRecord(
            at=now.isoformat(timespec="milliseconds"),
            kind=kind,
            thread_id=str(thread),
            message_id=message_id,
            author=author,
            details=dict(details),
        )
        async with self._writing:
            try:
                await self._offload(
                    self._write, f"{now.date().isoformat()}.jsonl", encode(_adapter(), record)
                )
            except OSError as error:
                raise StoreUnavailable(f"audit: {error}") from error

    def _write(self, name: str, line: bytes) -> None:
        self._disk.mkdir(self._folder)
        path = self._folder / name
        with suppress(FileNotFoundError):
            mend_tail(self._disk, path)
        file = self._disk.append(path)
        try:
            write_all(file, line)
            file.fsync()
        finally:
            file.close()
        self._disk.fsync_folder(self._folder)
