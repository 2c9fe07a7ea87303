"""The journal of one worker: one row per message, with its five records, for the threads that this worker owns.

Any worker receives a message, and the insert decides who owns its thread. After each commit, the new rows of own
threads are read again, whoever wrote them: the order of the rows is the order of the commits. Records are written in
batches, one function call per batch. The function checks each record against the owner and the epoch of its thread in
the same transaction.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import groupby
from operator import itemgetter

import anyio
from anyio.abc import TaskGroup
from pydantic import TypeAdapter

from threads.errors import Fenced, StoreUnavailable
from threads.journal.ports import Taker, Write
from threads.journal.records import (
    Intent,
    Ledger,
    PendingMessage,
    Posted,
    Received,
    Record,
    Settled,
    Started,
    record_adapter,
)
from threads.model import (
    Deleted,
    Edited,
    FollowUp,
    Incoming,
    Outcome,
    StopRequest,
    ThreadId,
    WallClock,
    message_key,
)
from threads.store.checksummed_lines import encode, read_line
from threads.store.group_commit import Batch, GroupWriter

from .session import DatabaseSession, Pool, Row, as_unavailable

log = logging.getLogger(__name__)

RECEIVE = "SELECT * FROM take_in(%s, %s, %s, %s, %s, %s, %s)"
APPLY = "SELECT apply(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
KNOWN = "SELECT EXISTS (SELECT FROM message WHERE key = %s) OR EXISTS (SELECT FROM alias WHERE key = %s)"
OUTCOME = "SELECT outcome FROM message WHERE key = coalesce((SELECT message FROM alias WHERE key = %s), %s)"
COLUMNS = (
    "m.seq, m.thread, m.received::text, m.started::text, m.intent::text, m.posted::text, m.settled::text, "
    "m.over_rate, m.unowned"
)
UNSEEN = (
    f"SELECT {COLUMNS} FROM unnest(%s::text[], %s::bigint[]) o (thread, seq) "  # noqa: S608 - constants
    "JOIN message m ON m.thread = o.thread AND m.seq > o.seq WHERE m.settled IS NULL ORDER BY m.seq"
)
ENDED = (
    f"SELECT {COLUMNS} FROM unnest(%s::text[]) o (thread) CROSS JOIN LATERAL ("  # noqa: S608 - constants
    "SELECT * FROM message l WHERE l.thread = o.thread AND l.settled IS NOT NULL ORDER BY l.seq DESC LIMIT 50"
    ") m ORDER BY m.seq"
)
"""The last settled messages of threads that were taken over, with their errors and undelivered answers."""

MAIL = (
    "INSERT INTO mail (thread, event) SELECT m.thread, %s::text::json FROM message m "
    "WHERE m.key = %s AND m.settled IS NULL RETURNING (SELECT owner FROM thread t WHERE t.id = mail.thread)"
)
DELIVERED = "SELECT id, thread, event::text FROM mail WHERE thread = ANY (%s) ORDER BY thread, id"
DELETE_MAIL = "DELETE FROM mail WHERE id = %s"

STOP = (
    "WITH stopped AS ("
    "SELECT m.thread, t.owner, count(*) AS pending, count(m.started) AS started FROM message m "
    "JOIN thread t ON t.id = m.thread WHERE m.settled IS NULL AND m.seq < %s AND starts_with(m.thread, %s) "
    "AND t.owner IS DISTINCT FROM %s GROUP BY m.thread, t.owner"
    "), sent AS (INSERT INTO mail (thread, event) SELECT s.thread, %s::text::json FROM stopped s) "
    "SELECT thread, owner, least(started, 1), pending - started FROM stopped"
)

PENDING = (
    "SELECT count(DISTINCT m.thread) FILTER (WHERE m.started IS NOT NULL), "
    "count(*) FILTER (WHERE m.started IS NULL) FROM message m JOIN thread t ON t.id = m.thread "
    "WHERE m.settled IS NULL AND starts_with(m.thread, %s) AND t.owner IS DISTINCT FROM %s"
)

NOTIFY = (
    "SELECT pg_notify(channel, thread) FROM unnest(%s::text[], %s::text[]) notification (channel, thread)"
)
ANYBODY = "anybody"
"""The channel for threads that nobody owns. A worker's own channel is ``w`` and its number."""


CHECKED_AT_ONCE = 200
"""Own threads of which one look finds out whether they can be released."""

BEAT_S = 0.5
"""Seconds between renewals of a lease.

For so long a worker may not notice that it lost a thread, and may begin a post.
"""


@dataclass(slots=True, eq=False)
class Arrival:
    """A message that is being received. ``new`` is False if it was there already.

    A new one has the ``epoch`` of its thread if this worker owns it, its ``row``, and the number of the message
    ``before`` it there, 0 for none.
    """

    received: Received
    per_minute: int | None
    new: bool = False
    epoch: int | None = None
    row: Row = ()
    before: int = 0


@dataclass(slots=True)
class Lines:
    """The changed end of a conversation: its lines from the index ``start`` on."""

    start: int
    lines: list[bytes]


@dataclass(slots=True, eq=False)
class Change:
    """A write of records and conversation lines of one thread: a `threads.journal.ports.Write`."""

    thread: str
    epoch: int
    records: Sequence[Record] = ()
    lines: Lines | None = None
    batch: Batch[Change] = field(default_factory=Batch)
    fenced: bool = False

    @property
    def done(self) -> asyncio.Event:
        return self.batch.done

    @property
    def error(self) -> Exception | None:
        return Fenced(thread_id=self.thread) if self.fenced else self.batch.error


@dataclass(slots=True, eq=False)
class Ownership:
    """A thread that this worker owns. ``seen`` is the number of its last message that was read.

    ``claimed``: it has messages that another worker left. ``served``: those have been read.
    """

    epoch: int
    seen: int = 0
    claimed: bool = False
    served: bool = False


class PostgresJournal:
    """A `threads.ports.Journal`. *me* is the worker's number, and ``owned`` are its threads.

    While more than its ``share`` of messages is pending, it leaves new threads to other workers, last at ``left_at``.
    """

    def __init__(self, pool: Pool, me: Callable[[], int], now: WallClock) -> None:
        self.ledger = Ledger()
        self.owned: dict[str, Ownership] = {}
        self.accepting = True
        self.share, self.left_at = math.inf, -math.inf
        self._inbox, self._records, self._reader = (DatabaseSession(pool, first=True) for _ in range(3))
        self._me, self._now = me, now
        self._arrivals = GroupWriter(self._receive, self._arrived)
        self._changes = GroupWriter(self._apply, self._applied)
        self._receiving: dict[str, Batch[Arrival]] = {}
        self._unread: set[str] = set()
        self._being_read: set[str] = set()
        self._wake = anyio.Event()
        self._opening: set[str] = set()
        self._to_check: list[str] = []
        self._tasks: TaskGroup
        self._taker: Taker

    def start(self, tasks: TaskGroup, taker: Taker) -> None:
        """Write, and read new rows of own threads, until *tasks* are cancelled."""
        self._tasks, self._taker = tasks, taker
        for run in (self._arrivals.run, self._changes.run, self._read_arrivals):
            tasks.start_soon(run)

    async def knows(self, key: str) -> bool:
        if (batch := self._receiving.get(key)) is not None:
            await batch.done.wait()
        if self.ledger.knows(key):
            return True
        with as_unavailable():
            [[known]] = await self._reader.rows(KNOWN, (key, key))
        return bool(known)

    async def receive(self, incoming: Incoming, per_minute: int | None = None) -> bool:
        for key in incoming.keys:
            if (batch := self._receiving.get(key)) is not None:
                await batch.done.wait()
                if batch.error is None:
                    return False
            if self.ledger.knows(key):
                return False
        arrival = Arrival(Received.of(incoming), per_minute)
        self._stamp(arrival.received)
        batch = self._arrivals.put(arrival)
        self._receiving.update(dict.fromkeys(incoming.keys, batch))
        await batch.done.wait()
        if batch.error is not None:
            raise StoreUnavailable(str(batch.error)) from batch.error
        return arrival.new

    async def outcome(self, key: str) -> Outcome | None:
        outcome = self.ledger.outcome(key)
        if outcome is not None or self.ledger.aliases.get(key, key) in self.ledger.pending:
            return outcome
        with as_unavailable():
            rows = await self._reader.rows(OUTCOME, (key, key))
        return next((outcome for (outcome,) in rows), None)

    async def forward(self, event: Edited | Deleted) -> bool:
        key, thread = message_key(event.thread, event.id), str(event.thread)
        if (batch := self._receiving.get(key)) is not None:
            await batch.done.wait()
        if thread in self.owned and self.ledger.knows(key):
            return False
        body = event_adapter().dump_json(event).decode()
        with as_unavailable():
            for (owner,) in await self._inbox.rows(MAIL, (body, key)):
                await self._ring({thread: owner})
        return True

    async def stop_elsewhere(self, request: StopRequest) -> tuple[int, int]:
        if request.thread.root:
            return 0, 0  # this worker owns it, because the request is a message of that thread
        body = event_adapter().dump_json(request).decode()
        with as_unavailable():
            rows = await self._inbox.rows(STOP, (request.seq, str(request.thread), self._me(), body))
            await self._ring({thread: owner for thread, owner, *_ in rows})
        return sum(running for *_, running, _ in rows), sum(waiting for *_, waiting in rows)

    async def pending_elsewhere(self, place: ThreadId) -> tuple[int, int]:
        if place.root:
            return 0, 0
        with as_unavailable():
            [[running, waiting]] = await self._reader.rows(PENDING, (str(place), self._me()))
        return running, waiting

    async def amend(self, edited: Edited) -> bool:
        return await self.ledger.amend(edited, self.append)

    async def append(self, *records: Record) -> None:
        await self.durable(self.put(*records))

    def put(self, *records: Record) -> Change:
        return self._change(records[0].thread_id, records, self._changes.put)

    def carry(self, *records: Record) -> Change:
        return self._change(records[0].thread_id, records, self._changes.carry)

    def save(self, thread: ThreadId, start: int, lines: list[bytes]) -> Change:
        """Begin to replace a conversation from the index *start* on. `durable` waits for the end."""
        return self._change(str(thread), (), self._changes.put, Lines(start, lines))

    async def durable(self, written: Write) -> None:
        await written.done.wait()
        if isinstance(error := written.error, Fenced):
            raise error
        if error is not None:
            raise StoreUnavailable(str(error)) from error

    def look(self, threads: Iterable[str]) -> None:
        """Read the new rows of own threads soon."""
        self._unread.update(thread for thread in threads if thread in self.owned)
        self._wake.set()

    def take(self, threads: Iterable[tuple[str, int]], *, claimed: bool) -> None:
        """Serve the threads that this worker owns at these epochs.

        Those `claimed` have messages that another worker left.
        """
        for thread, epoch in threads:
            if (known := self.owned.get(thread)) is None or known.epoch < epoch:
                # Another worker had it meanwhile, so the memory is out of date.
                self.release_threads([thread])
                self.owned[thread] = Ownership(epoch, claimed=claimed)
                self.look([thread])

    async def open_mail(self, threads: Iterable[str]) -> None:
        """Begin to carry out what other workers received for these threads: edits, deletions, stops. Raises OSError.

        Those that cannot be carried out now wait for the next call. A thread whose mail takes long delays no other.
        """
        served = [
            thread
            for thread in threads
            if thread in self.owned and self.owned[thread].served and thread not in self._opening
        ]
        self._deliver(await self._reader.rows(DELIVERED, (served,)) if served else [])

    def _deliver(self, mail: Sequence[Row]) -> None:
        for thread, letters in groupby(mail, itemgetter(1)):
            self._opening.add(thread)
            self._tasks.start_soon(self._open, thread, list(letters))

    async def _open(self, thread: str, letters: Sequence[Row]) -> None:
        place = ThreadId.parse(thread)
        try:
            if thread in self.owned:
                await self._read([thread])  # or a letter could come before its message, and change nothing
            for number, _, event in letters:
                if thread not in self.owned:
                    return  # the new owner opens it
                await self._taker.changed(replace(event_adapter().validate_json(event), thread=place))
                await self._reader.rows(DELETE_MAIL, (number,))
        except (OSError, StoreUnavailable, Fenced) as error:
            log.warning("mail.waits: it is opened at the next look: %s", error, extra={"thread_id": thread})
        finally:
            self._opening.discard(thread)

    def epoch_of(self, thread: str) -> int | None:
        """Return the epoch at which this worker owns a thread, or None if it does not."""
        owned = self.owned.get(thread)
        return owned.epoch if owned else None

    def idle(self) -> list[str]:
        """Return own threads that have no actor, nothing pending and nothing to read: some at each call, in turn."""
        busy = {one.received.thread_id for one in self.ledger.pending.values()}
        busy |= self._unread | self._being_read
        self._to_check = self._to_check or list(self.owned)
        some, self._to_check = self._to_check[:CHECKED_AT_ONCE], self._to_check[CHECKED_AT_ONCE:]
        return [
            thread
            for thread in some
            if thread in self.owned and thread not in busy and not self._taker.serves(ThreadId.parse(thread))
        ]

    def release_threads(self, threads: Iterable[str]) -> None:
        """Forget threads that another worker owns now, and stop serving them."""
        for thread in threads:
            if self.owned.pop(thread, None) is not None:
                self.drop(thread)
                self._taker.release(ThreadId.parse(thread))

    def drop(self, thread: str) -> None:
        """Forget the pending messages of a thread."""
        pending = self.ledger.pending
        for key in [key for key, one in pending.items() if one.received.thread_id == thread]:
            del pending[key]

    def _change(
        self,
        thread: str,
        records: Sequence[Record],
        put: Callable[[Change], Batch[Change]],
        lines: Lines | None = None,
    ) -> Change:
        owned = self.owned.get(thread)
        change = Change(thread, owned.epoch if owned else -1, records, lines)
        for record in records:
            self._stamp(record)
        change.batch = put(change)
        return change

    def _stamp(self, record: Record) -> None:
        self.ledger.stamp(record, self._now().isoformat(timespec="milliseconds"))

    async def _receive(self, arrivals: list[Arrival]) -> None:
        if not arrivals:
            return
        given = [arrival.received for arrival in arrivals]
        keys = [received.keys for received in given]
        me = self._me() if self.accepting else None
        if len(self.ledger.pending) > self.share:
            me, self.left_at = None, anyio.current_time()
        bodies = [_line(received) for received in given]
        aliases = [more[0] if more else None for _, *more in keys]
        threads = [received.thread_id for received in given]
        senders = [received.author.id for received in given]
        limits = [arrival.per_minute for arrival in arrivals]
        try:
            rows = await self._inbox.rows(
                RECEIVE, (me, [key for key, *_ in keys], threads, aliases, bodies, senders, limits)
            )
            self.take([(row[2], row[4]) for row in rows if row[3] == self._me()], claimed=False)
            for arrival, row in zip(arrivals, rows, strict=True):
                _, arrival.new, thread, owner, epoch, seq, before, *marks = row
                arrival.row = (seq, thread, arrival.received, None, None, None, None, *marks)
                arrival.epoch, arrival.before = epoch if owner == self._me() else None, before or 0
            await self._ring({row[2]: row[3] for row in rows if row[1] and row[3] != self._me()})
        finally:
            for key in (key for some in keys for key in some):
                self._receiving.pop(key, None)

    async def _ring(self, owners: Mapping[str, int | None]) -> None:
        """Notify the owners of threads, after the commit: a NOTIFY inside would serialise all commits."""
        if owners:
            channels = [ANYBODY if owner is None else f"w{owner}" for owner in owners.values()]
            await self._inbox.rows(NOTIFY, (channels, list(owners)))

    def _arrived(self, arrivals: list[Arrival]) -> None:
        """Serve what is new in own threads. Whoever has not seen the message before it has to look."""
        for arrival in (arrival for arrival in arrivals if arrival.new):
            thread = arrival.received.thread_id
            own = self.owned.get(thread)
            if own and own.epoch == arrival.epoch and not own.claimed and own.seen >= arrival.before:
                own.served = own.served or not arrival.before
                self._hand_over(own, [arrival.row])
            else:
                self.look([thread])

    async def _read_arrivals(self) -> None:
        while True:
            await self._wake.wait()
            self._wake = anyio.Event()
            self._being_read, self._unread = self._unread & self.owned.keys(), set()
            try:
                if self._being_read:
                    await self._read(list(self._being_read))
            except OSError:
                self._unread.update(self._being_read)  # the next look reads them
            self._being_read = set()

    async def _read(self, threads: list[str]) -> None:
        """Read the new rows of own threads. Raises OSError."""
        owned = [self.owned[thread] for thread in threads]
        fresh = [thread for thread, one in zip(threads, owned, strict=True) if not one.seen]
        ended = await self._reader.rows(ENDED, (fresh,)) if fresh else []
        rows = await self._reader.rows(UNSEEN, (threads, [one.seen for one in owned]))
        left = {thread for thread, one in zip(threads, owned, strict=True) if one.claimed}
        left |= {row[1] for row in rows if row[3]}
        # With the messages that another worker left: a deleted one must not be answered first.
        mail = await self._reader.rows(DELIVERED, (list(left - self._opening),)) if left else []
        for row in ended:
            self._fold(row)
        for thread, some in groupby(sorted(rows, key=itemgetter(1, 0)), itemgetter(1)):
            if self.owned.get(thread) in owned:
                self._hand_over(self.owned[thread], list(some))
        for one in owned:
            one.served = True
        self._deliver(
            [letter for letter in mail if letter[1] in self.owned and letter[1] not in self._opening]
        )

    def _hand_over(self, owned: Ownership, rows: Sequence[Row]) -> None:
        """Serve the new messages of a thread, in the order of receipt."""
        found = list[PendingMessage]()
        for row in (row for row in rows if row[0] > owned.seen):
            if pending := self._fold(row):
                pending.over_rate, unowned = row[7:]
                pending.interrupted = pending.started is not None
                # A free thread becomes the receiver's, with the messages that another worker began.
                is_left = owned.claimed and not unowned
                pending.recovered = is_left or pending.interrupted or pending.intent is not None
                pending.taken_at = anyio.current_time() + BEAT_S
                found.append(pending)
        owned.seen, owned.claimed = max(owned.seen, *(row[0] for row in rows)), False
        if any(pending.recovered for pending in found):
            self._taker.take_up(found)
        else:
            for pending in found:
                self._taker.route(pending)

    def _fold(self, row: Row) -> PendingMessage | None:
        """Apply a row's records to the ledger. Return its message if it is pending now and was not before."""
        seq, before = row[0], len(self.ledger.pending)
        for column in filter(None, row[2:7]):
            received_here = isinstance(column, Received)
            record = column if received_here else read_line(record_adapter(), column.encode())
            if isinstance(record, Received):
                record.seq = seq
            self.ledger.apply(record)
            self.ledger.unlogged.pop(record.seq, None)
        is_new = len(self.ledger.pending) > before
        return next(reversed(self.ledger.pending.values())) if is_new else None

    async def _apply(self, changes: list[Change]) -> None:
        if not changes:
            return
        epochs = {change.thread: change.epoch for change in changes}
        current = [change for change in changes if change.epoch == epochs[change.thread]]
        arguments = (*_records(current), *_conversations(current))
        rows = await self._records.rows(APPLY, (self._me(), list(epochs), list(epochs.values()), *arguments))
        owned = {thread for (thread,) in rows}
        for change in changes:
            change.fenced = change.thread not in owned or change.epoch != epochs[change.thread]
        self.release_threads({change.thread for change in changes if change.fenced} - owned)

    def _applied(self, changes: list[Change]) -> None:
        for change in changes:
            for record in () if change.fenced else change.records:
                self.ledger.apply(record)
                if isinstance(record, Settled) and (settled := self.ledger.unlogged.pop(record.seq, None)):
                    self._taker.settled(*settled)


@cache
def event_adapter() -> TypeAdapter[FollowUp]:
    """Return the validator of the events that are mailed to a thread's owner. Built on first use."""
    return TypeAdapter(FollowUp)


def _line(record: Record) -> str:
    return encode(record_adapter(), record).decode().rstrip("\n")


_PLACES = {Received: 0, Started: 1, Intent: 2, Posted: 3, Settled: 4}


def _records(changes: Iterable[Change]) -> tuple[list[str | None], ...]:
    """Return the records as columns, one row per message, because an update uses only one row per message."""
    rows: dict[str, list[str | None]] = {}
    for change in changes:
        for record in change.records:
            row = rows.setdefault(
                message_key(ThreadId.parse(record.thread_id), record.message_id), [None] * 6
            )
            row[_PLACES[type(record)]] = _line(record)
            if isinstance(record, Settled):
                row[5] = record.outcome
    columns = [[row[place] for row in rows.values()] for place in range(6)]
    return list(rows), *columns


def _conversations(changes: Iterable[Change]) -> tuple[list[str], list[int], list[str], list[int], list[str]]:
    """Return the changed conversations: threads and first indexes, then the thread, index and text of each line."""
    tails: dict[str, Lines] = {}
    for change in changes:
        if (new := change.lines) is not None:
            old = tails.get(change.thread, new)
            start = min(old.start, new.start)
            tails[change.thread] = Lines(start, [*old.lines[: new.start - start], *new.lines])
    lines = [
        (thread, place, line.decode().rstrip("\n"))
        for thread, tail in tails.items()
        for place, line in enumerate(tail.lines, tail.start)
    ]
    return (
        list(tails),
        [tail.start for tail in tails.values()],
        [one[0] for one in lines],
        [one[1] for one in lines],
        [one[2] for one in lines],
    )
