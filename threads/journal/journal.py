"""journal.jsonl: the file in which promises become durable.

Records that arrive while a batch is being fsynced share the next one. Once they are on disk they are applied to the
ledger and routed, in the order of the file. `FileJournal.put` begins a write, and its caller may do something else
meanwhile. Nobody waits for records that are carried. After a failed write that descriptor is never used again: the
ledger is written to a new file first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

from threads.errors import StoreUnavailable, error_fields
from threads.model import Deleted, Edited, Incoming, Outcome, StopRequest, ThreadId, message_key
from threads.store.checksummed_lines import encode, intact, read_line, scan
from threads.store.disk import Disk, File, Offload, read_or_empty, replace_file, set_aside, write_all
from threads.store.group_commit import Batch, GroupWriter

from .ports import Taker, Write
from .records import Ledger, Received, Record, Settled, record_adapter

log = logging.getLogger(__name__)

Written = Batch[tuple[bytes, Record]]
"""Records that are being written."""

COMPACT_ABOVE = 16_000_000
"""Bytes appended before the next compaction. So much is read in well under a second."""


class FileJournal:
    """The journal of one data folder. Construct, `open`, then keep `run` going in a task."""

    def __init__(self, disk: Disk, path: Path, *, offload: Offload, now: Callable[[], datetime]) -> None:
        self.ledger = Ledger()
        self._disk, self._path, self._offload, self._now = disk, path, offload, now
        self._file: File | None = None
        self._grown = 0
        self._group = GroupWriter(self._commit, self._take_in)
        self._receiving: dict[str, Written] = {}
        self._taker: Taker

    def open(self) -> int:
        """Read the file, move damaged lines to the sidecar, and return how many there were. Blocking."""
        data = read_or_empty(self._disk, self._path)
        found = scan(data)
        damaged = list(found.broken)
        good: list[bytes] = []
        for line in found.good:
            try:
                self.ledger.apply(read_line(record_adapter(), line))
                good.append(line + b"\n")
            except ValueError:
                damaged.append(line)
        if found.tail:
            damaged.append(found.tail)
        for part in damaged:
            set_aside(self._disk, self._path, part)
        # A torn tail was never durable, so nobody acted on it. An intact line there lost its newline later.
        lost = len(damaged) > bool(found.tail) or intact(found.tail[:-1])
        self.ledger.sort()
        for pending in self.ledger.pending.values():
            pending.recovered, pending.interrupted = True, pending.started is not None
            pending.received.unsure = pending.received.unsure or lost
        # Always into a new file: what a killed process wrote may be only in the page cache, after a failed fsync.
        if lost or len(data) > COMPACT_ABOVE:
            self._compact()
        else:
            self._replace(b"".join(good))
            self._grown = len(data)
        return len(damaged)

    async def knows(self, key: str) -> bool:
        """Return whether a message is on disk. Waits for one that is being written."""
        if (first := self._receiving.get(key)) is not None:
            await self.durable(first)
        return self.ledger.knows(key)

    async def receive(self, incoming: Incoming, _: int | None = None) -> bool:
        """Make a message durable. Returns False if it already is. Raises `StoreUnavailable`.

        A duplicate of a message that is being written waits for that write. To acknowledge it earlier would promise
        something that a crash can still take back.
        """
        if any([await self.knows(key) for key in incoming.keys]):
            return False
        self._receiving.update(dict.fromkeys(incoming.keys, self._group.filling))
        await self.append(Received.of(incoming))
        return True

    async def outcome(self, key: str) -> Outcome | None:
        return self.ledger.outcome(key)

    async def stop_elsewhere(self, _: StopRequest) -> tuple[int, int]:
        return 0, 0

    async def pending_elsewhere(self, _: ThreadId) -> tuple[int, int]:
        return 0, 0

    async def forward(self, _: Edited | Deleted) -> bool:
        return False

    async def amend(self, edited: Edited) -> bool:
        """Replace the text of a message. Returns False if its turn has started."""
        await self.knows(message_key(edited.thread, edited.id))
        return await self.ledger.amend(edited, self.append)

    async def forget(self, thread: ThreadId) -> None:
        """Drop what settled messages of a thread say, and keep their ids. Raises `StoreUnavailable`."""
        self.ledger.forget_texts(thread)
        self._grown = COMPACT_ABOVE + 1
        await self.append()

    async def append(self, *records: Record) -> None:
        """Write the records, and return when all of them are on disk. Raises `StoreUnavailable`."""
        await self.durable(self.put(*records))

    def put(self, *records: Record) -> Written:
        """Begin to write the records. `durable` waits for the end."""
        return self._group.put(*self._lines(records))

    def carry(self, *records: Record) -> Written:
        """As `put`, for records that nobody has to wait for. Those that fail are written before any later ones."""
        return self._group.carry(*self._lines(records))

    async def durable(self, written: Write) -> None:
        """Return when all records of a `put` are on disk. Raises `StoreUnavailable`."""
        if not written.done.is_set():
            await written.done.wait()
        if written.error is not None:
            raise StoreUnavailable(f"journal: {written.error}") from written.error

    async def run(self, taker: Taker) -> None:
        """Write until cancelled. *taker* learns what is durable, in the order of the file."""
        self._taker = taker
        await self._group.run()

    def _lines(self, records: Sequence[Record]) -> Iterator[tuple[bytes, Record]]:
        at = self._now().isoformat(timespec="milliseconds")
        for record in records:
            self.ledger.stamp(record, at)
            yield encode(record_adapter(), record), record

    async def _commit(self, batch: list[tuple[bytes, Record]]) -> None:
        if not batch and self._grown <= COMPACT_ABOVE:
            return
        try:
            await self._offload(self._write, b"".join(line for line, _ in batch))
        finally:
            for _, record in batch:
                for key in record.keys if isinstance(record, Received) else ():
                    self._receiving.pop(key, None)

    def _take_in(self, batch: list[tuple[bytes, Record]]) -> None:
        for _, record in batch:
            waiting = len(self.ledger.pending)
            self.ledger.apply(record)
            if len(self.ledger.pending) > waiting:
                self._taker.route(next(reversed(self.ledger.pending.values())))
            elif isinstance(record, Settled) and (settled := self.ledger.unlogged.get(record.seq)):
                self._taker.settled(*settled)

    def _write(self, data: bytes) -> None:
        if self._file is None or self._grown > COMPACT_ABOVE:
            self._compact()
        assert self._file is not None
        try:
            write_all(self._file, data)
            self._file.fsync()
        except OSError as error:
            log.warning("journal.write_failed: %s", error, extra=error_fields(StoreUnavailable(str(error))))
            self.close()
            raise
        self._grown += len(data)

    def _compact(self) -> None:
        """Write the records that still count to a new file, and go on there."""
        self._grown = 0  # first: `forget` may ask for one more meanwhile
        self.ledger.forget(self._now())
        self._replace(b"".join([encode(record_adapter(), record) for record in self.ledger.records()]))

    def _replace(self, data: bytes) -> None:
        self.close()
        replace_file(self._disk, self._path, data)
        self._file = self._disk.append(self._path)

    def close(self) -> None:
        """Close the file."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
