"""Reads PostgreSQL for the operator's commands, beside the workers and from any machine, without a lock.

Each method is one statement, or one for each look; only `receive` and `forget` change anything. Lines are the very
bytes that the files of one machine would hold.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import psycopg

from bot.budget.budgets import Call, Commit, Record, Reserve
from bot.budget.budgets import record_adapter as spending_adapter
from bot.ports.model import Usage
from bot.reports.thread import in_json
from bot.store.reader import Forgotten, Kind, Lines, Thread, Wait, WorkerRow, WorkspaceFile
from threads.journal.records import Ledger, Received, record_adapter
from threads.log import entry_adapter, log_entries
from threads.model import Incoming, ThreadId
from threads.store.checksummed_lines import encode, read_line
from threads.store.data_folder import thread_folder

from .checks import SIZES as SIZES_OF_TABLES
from .forgetting import QUIET, SIZES, TEXT, VALUES, forget
from .journal import ANYBODY, KNOWN, NOTIFY
from .local_files import NewFile, StoredFile
from .memory import decode_text
from .migrations import STEPS, schema_of
from .session import SessionLost, address, outages
from .worker import LEASE_S, LOCKS

OPTIONS = "-c statement_timeout=300s -c idle_in_transaction_session_timeout=10s"

AT_ONCE = 1000
"""Lines that are fetched together."""

SIGNS, DOT = dict(zip("kiåθωß", "\u212a\u0130\u212b\u03f4\u2126\u1e9e", strict=True)), "\u0307"
"""What else has these small letters; that of U+0130 is two, the second is a dot."""

LETTERS = re.compile(r"[^\W_]+")
"""What stays together of a word in the vocabulary of a thread."""

NO_TABLES = "the database has no tables of this version yet: `threadfast run` makes them at its start"

LATE_S = 10
"""How much later than a message's outcome its commit may be seen."""

MESSAGE = b'"kind":"message"'

LAST = 200
"""Messages of one thread that its journal tells of, beside those without an outcome."""

RECORDS = ("received", "started", "intent", "posted", "settled")
TEXTS = ", ".join(f"m.{name}::text" for name in RECORDS)


def value(column: str, name: str, place: int = 2) -> str:
    """Return SQL for the first string of that name in a line, as its index has it, or for the last: *place* -1.

    The text is looked into and not the JSON, which fails at an escaped NUL.
    """
    return f"""split_part(split_part({column}::text, '"{name}":"', {place}), '"', 1)"""


def says(line: str, name: str, following: str) -> str:
    """Return SQL for whether that text of a line may have all words. What costs less comes first."""
    said = f"said({line}, '{name}', '{following}')"
    return f"""(lower({line}::text COLLATE "C") LIKE ALL (%(likes)s) AND {said} ~ ALL (%(words)s))"""


# Constants only; `json` as text shows \u0000 as these six characters, so no text is refused.
NAMED = (
    "(split_part(m.key, ':', -1) = ANY (%(ids)s) "
    f"OR m.started IS NOT NULL AND {value('m.started', 'correlation_id')} = ANY (%(ids)s) "
    f"OR m.posted IS NOT NULL AND {value('m.posted', 'platform_id')} = ANY (%(ids)s))"
)
LOG_NAMES = (
    f"ARRAY[{value('l.line', 'message_id')}, {value('l.line', 'correlation_id', -1)}, "
    f"{value('l.line', 'platform_id')}, {value('l.line', 'outcome')}]"
)
OUTCOME = '"outcome":"'
OF_THREAD = (
    "m.key IN (SELECT o.key FROM message o WHERE o.thread = %(thread)s AND o.settled IS NULL UNION "  # noqa: S608
    f"(SELECT o.key FROM message o WHERE o.thread = %(thread)s ORDER BY o.seq DESC LIMIT {LAST}))"
)
JOURNAL = f"SELECT {TEXTS} FROM message m WHERE {{}} ORDER BY m.seq"  # noqa: S608
ENDED = (
    f"SELECT m.seq, {TEXTS} FROM message m WHERE m.thread = %(thread)s AND NOT m.logged "  # noqa: S608
    f"AND m.settled IS NOT NULL AND m.settled_at >= %(since)s::timestamptz - interval '{LATE_S}s' "
    "AND m.seq <> ALL (%(seen)s::bigint[]) "
    "ORDER BY m.settled_at DESC, m.seq DESC LIMIT %(most)s"
)
ENDS = (
    f"SELECT u.n, {TEXTS} FROM unnest(%(threads)s::text[]) WITH ORDINALITY u (thread, n) "  # noqa: S608
    "CROSS JOIN LATERAL (SELECT * FROM message e WHERE e.thread = u.thread AND NOT e.logged "
    "AND e.settled IS NOT NULL ORDER BY e.settled_at DESC, e.seq DESC LIMIT %(last)s) m "
    "ORDER BY u.n, m.settled_at, m.seq"
)
SAYING = (
    "SELECT u.n, s.said, s.intent, s.settled FROM unnest(%(threads)s::text[]) WITH ORDINALITY u (thread, n) "  # noqa: S608
    "LEFT JOIN LATERAL (SELECT * FROM ((SELECT l.line::text AS said, NULL AS intent, NULL AS settled FROM log l "
    f"WHERE l.thread = u.thread AND {says('l.line', 'text', 'outcome')} ORDER BY l.n) UNION ALL "
    "(SELECT m.received::text, m.intent::text, m.settled::text FROM message m "
    "WHERE m.thread = u.thread AND NOT m.logged AND m.settled IS NOT NULL AND "
    f"({says('m.received', 'text', 'sent_at')} OR {says('m.intent', 'text', 'post')} "
    f"OR m.outcome <> 'answered' AND {says('m.settled', 'shown', 'spent')}) ORDER BY m.settled_at, m.seq)) a "
    "WHERE COALESCE((SELECT v.words LIKE ALL (%(likes)s) AND v.words ~ ALL (%(runs)s) FROM thread t, vocabulary v "
    "WHERE t.id = u.thread AND v.thread = t.id AND v.at = COALESCE(t.told_at, t.changed_at)), true) "
    "LIMIT %(most)s) s ON true"
)
LOGGED = "SELECT line::text FROM log WHERE thread = %s ORDER BY n"
COUNTS = (
    "SELECT (SELECT count(*) FROM message WHERE thread = u.thread AND NOT logged AND settled IS NOT NULL) "
    "+ (SELECT count(*) FROM log WHERE thread = u.thread AND strpos(line::text, %(message)s) > 0) "
    "FROM unnest(%(threads)s::text[]) WITH ORDINALITY u (thread, n) ORDER BY u.n"
)
CONVERSATION = "SELECT line::text FROM context WHERE thread = %s ORDER BY generation, n"
THREADS = (
    "SELECT t.id, date_part('epoch', COALESCE(GREATEST(t.changed_at, t.told_at), (SELECT "
    "COALESCE(max(m.settled_at), min(m.at)) FROM message m WHERE m.thread = t.id), 'epoch')) "
    "FROM thread t WHERE {} ORDER BY 2 DESC, 1"
)
HOLDING = (
    f"t.id IN (SELECT m.thread FROM message m WHERE {NAMED} "  # noqa: S608
    "UNION SELECT m.thread FROM message m WHERE m.outcome = ANY (%(outcomes)s) "
    f"UNION SELECT l.thread FROM log l WHERE {LOG_NAMES} && %(names)s::text[])"
)
FILES = (
    "SELECT f.path, sum(octet_length(b.data))::bigint FROM file f JOIN blob b USING (sha) "
    "WHERE f.thread = %s GROUP BY f.path"
)
PARTS = "SELECT path, array_agg(sha ORDER BY part) FROM file WHERE thread = %s GROUP BY path"
PART = "SELECT data FROM blob WHERE sha = %s"
SPENT = "SELECT EXISTS (SELECT FROM spending)"
SPENDING = "SELECT s.line::text FROM spending s WHERE s.at >= %(since)s AND {} ORDER BY s.at, s.seq"
TURN = f"{value('s.line', 'turn')} = ANY (%(names)s)"
ACCOUNTS = "SELECT scope, key, spent, granted, prompt, cached, output, said, day, reserved FROM account"
AUDIT = "SELECT a.id, a.line::text FROM audit a WHERE a.at >= %(since)s AND a.id > %(after)s ORDER BY a.id"
AUDIT_LINES = "SELECT a.id, a.line FROM audit a WHERE a.at >= %(since)s AND a.id > %(after)s AND"
AUDIT_MESSAGE = f'{value("a.line", "message_id")} COLLATE "C"'
AUDIT_ABOUT = (
    "SELECT DISTINCT ON (l.id) l.id, l.line::text FROM unnest(%(names)s::text[]) n (name) CROSS JOIN LATERAL ("  # noqa: S608
    f"{AUDIT_LINES} {value('a.line', 'thread_id')} = n.name "
    f"UNION ALL {AUDIT_LINES} {value('a.line', 'correlation_id', -1)} = n.name "
    f"UNION ALL {AUDIT_LINES} {AUDIT_MESSAGE} >= n.name AND {AUDIT_MESSAGE} < n.name || '/'"
    ") l ORDER BY l.id"
)
"""A stage of a playbook has the message's id, a point, and its own name after it."""

MONTHS = (
    "SELECT to_char(g.month + interval '1 month', 'YYYY-MM-DD'), g.lines, g.size::bigint FROM ("
    "SELECT date_trunc('month', t.at AT TIME ZONE 'UTC') AS month, count(*) AS lines, "
    "sum(pg_column_size(t.*)) AS size FROM {} t WHERE t.at < month_of(%s::timestamptz) {} "
    "GROUP BY 1) g ORDER BY g.month"
)
SINGLE = "AND t.seq > -1000000000000000 AND NOT EXISTS (SELECT FROM reservation o WHERE o.seq = t.seq)"
"""Sums of months that went are no single calls."""

CALLS_BEFORE = "SELECT * FROM calls_before(%s)"
DROP_MONTHS = "SELECT drop_months(%s, %s, %s, %s, %s)"
WORKERS = (
    "SELECT w.name, w.version, w.alive_until > clock_timestamp() AND EXISTS (SELECT FROM pg_locks l "
    "WHERE l.locktype = 'advisory' AND l.granted AND l.classid = %s AND l.objid = w.id "
    "AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())), "
    "extract(epoch FROM clock_timestamp() - w.alive_until)::float8 + %s, "
    "(SELECT count(*) FROM thread t WHERE t.owner = w.id), (SELECT count(*) FROM pg_stat_activity a "
    "WHERE a.datname = current_database() AND split_part(a.application_name, ' ', 2) = w.tag) "
    "FROM worker w ORDER BY w.id"
)
RECEIVE = "SELECT new, thread, owner FROM take_in(NULL, %s, %s, %s, %s, NULL, NULL)"
STAMP = "SELECT clock_timestamp()"
NOW = "SELECT clock_timestamp()::text"


@dataclass(frozen=True, slots=True)
class StoredThread:
    """A thread in the database. ``data`` is this machine's data folder."""

    name: str
    data: Path
    changed_at: float = 0.0

    @property
    def path(self) -> Path:
        """Where this machine has its files, if it has them."""
        return thread_folder(self.data, ThreadId.parse(self.name))


class PostgresReader:
    """A `bot.store.reader.SharedReader`. *link* finds the thread's root in a link to a message.

    Raises `SessionLost`, `NewerSchema` when a newer version made the tables, and `ConfigInvalid` for no address.
    """

    def __init__(
        self, dsn: str, data: Path, link: Callable[[str], tuple[str, str] | None] = lambda _: None
    ) -> None:
        self._data, self._link = data, link
        self._dsn = address(dsn, options=OPTIONS)
        self._connect()

    def _connect(self) -> None:
        with outages(), ExitStack() as stack:
            self._connection = psycopg.connect(self._dsn, autocommit=True)
            stack.callback(self.close)
            if schema_of(self._connection) < STEPS:
                raise SessionLost(NO_TABLES)
            stack.pop_all()

    def close(self) -> None:
        self._connection.close()

    def threads(self, place: str = "") -> list[StoredThread]:
        return self._threads("starts_with(t.id, %(start)s)", start=place and f"{place}:")

    def find(self, wanted: str) -> list[StoredThread]:
        if link := self._link(wanted):
            wanted = link[1]
        if exact := self._threads("t.id = %(id)s", id=wanted):
            return exact
        last = wanted.rpartition(":")[2].rpartition("~")[2]
        return [
            one
            for one in self._threads("strpos(t.id, %(last)s) > 0", last=last)
            if wanted == one.path.name
            or (one.name.endswith(wanted) and ThreadId.parse(one.name).root == last)
        ]

    def holding(self, pieces: Sequence[bytes]) -> list[StoredThread]:
        texts = _texts(pieces)
        outcomes = [text[len(OUTCOME) : -1] for text in texts if text.startswith(OUTCOME)]
        return self._threads(HOLDING, names=texts + outcomes, ids=_ids(texts), outcomes=outcomes)

    def journal(self, having: Sequence[bytes] = (), thread: str = "") -> Iterator[bytes]:
        which = OF_THREAD if thread else NAMED if having else "true"
        for row in self._stream(JOURNAL.format(which), {"ids": _ids(_texts(having)), "thread": thread}):
            yield from (line.encode() for line in row if line is not None)

    def log(self, thread: Thread, last: int | None = None, wait: Wait | None = None) -> Iterator[bytes]:
        since, seen = "-infinity", list[int]()
        while True:
            wanted = {"thread": thread.name, "since": since, "seen": seen, "most": None if wait else last}
            try:
                rows = self._rows(ENDED, wanted)[::-1]
            except SessionLost as error:
                self._wait_for_server(error, wait)
                continue
            if since == "-infinity":
                yield from self._imported(thread, last, len(rows))
                [[since]] = self._rows(NOW) if wait else [[since]]
                seen += [seq for seq, *_ in rows]
                rows = rows if last is None else rows[-last:]
            for seq, *records in rows:
                seen.append(seq)
                yield from _told(records)
            if wait is None:
                return
            wait()

    def ends(self, threads: Sequence[Thread], last: int) -> Iterator[tuple[Iterable[bytes], int]]:
        names, ended = [one.name for one in threads], defaultdict[int, list[Sequence[str | None]]](list)
        for place, *records in self._rows(ENDS, {"threads": names, "last": last}):
            ended[place].append(records)
        for place, (thread, count) in enumerate(zip(threads, self._counts(names), strict=True), 1):
            told = ended[place]
            before = self._imported(thread, last, len(told)) if count > len(told) else []
            yield chain(before, *map(_told, told)), count

    def saying(self, threads: Sequence[Thread], words: Sequence[str], first: int | None) -> Lines:
        texts = [in_json(word).decode().lower() for word in words]
        runs = [run for text in texts for run in LETTERS.findall(text)]
        likes = [f"%{''.join('%' if one > 'z' or one in SIGNS else one for one in run)}%" for run in runs]
        patterns = {"words": [*map(_pattern, texts)], "runs": [*map(_pattern, runs)], "likes": likes}
        wanted = {"threads": [one.name for one in threads], "most": first, **patterns}
        with closing(self._stream(SAYING, wanted, first or AT_ONCE)) as rows:
            for place, found in groupby(rows, itemgetter(0)):
                some = [*found]
                yield chain(_lines(some), self._all(threads[place - 1], words) if len(some) == first else ())

    def count(self, thread: Thread) -> int:
        return self._counts([thread.name])[0]

    def conversation(self, thread: Thread) -> Iterator[bytes]:
        return (line.encode() for (line,) in self._rows(CONVERSATION, (thread.name,)))

    def files(self, thread: Thread) -> list[WorkspaceFile]:
        found = [WorkspaceFile(os.fsdecode(path), size) for path, size in self._rows(FILES, (thread.name,))]
        return sorted(found, key=lambda file: file.name)

    def copy_files(self, thread: Thread, target: Path) -> int:
        stored = self._rows(PARTS, (thread.name,))
        for path, shas in stored:
            target.mkdir(mode=0o700, parents=True, exist_ok=True)
            with closing(NewFile(target, StoredFile(path, tuple(shas), 0o600))) as file:
                for sha in shas:
                    [(data,)] = self._rows(PART, (sha,))
                    file.write(data)
                file.place()
        return len(stored)

    def spending(self, month: str = "", having: Sequence[bytes] = (), _: str = "") -> list[Iterable[bytes]]:
        if self._rows(SPENT) == [(False,)]:
            return []
        since = f"{month}-01" if month else "-infinity"
        which = SPENDING.format(TURN if having else "true")
        return [(line.encode() for (line,) in self._stream(which, {"since": since, "names": _texts(having)}))]

    def accounts(self) -> list[tuple[Any, ...]]:
        return self._rows(ACCOUNTS)

    def audit(
        self, since: str = "", having: Sequence[bytes] = (), wait: Wait | None = None, _: str = ""
    ) -> Iterator[bytes]:
        after = 0
        while True:
            wanted = {"since": since[:10] or "-infinity", "after": after, "names": _texts(having)}
            try:
                for number, line in self._stream(AUDIT_ABOUT if having else AUDIT, wanted):
                    after = number
                    yield line.encode()
            except SessionLost as error:
                self._wait_for_server(error, wait)
                continue
            if wait is None:
                return
            wait()

    def workers(self) -> list[WorkerRow]:
        """Return the workers of the database, those that are not reaped yet too."""
        return [WorkerRow(*row) for row in self._rows(WORKERS, (LOCKS, LEASE_S))]

    def tables(self) -> list[tuple[str, int]]:
        return [(name, size) for name, size in self._rows(SIZES_OF_TABLES)]

    def receive(self, incoming: Incoming) -> bool:
        """Make a message durable for whichever worker takes it up; False when its id is known already."""
        received = Received.of(incoming)
        [key] = received.keys
        if self._rows(KNOWN, (key, key)) == [(True,)]:
            return False
        [[now]] = self._rows(STAMP)
        Ledger().stamp(received, now.astimezone(UTC).isoformat(timespec="milliseconds"))
        line = encode(record_adapter(), received).decode().rstrip("\n")
        [[new, thread, owner]] = self._rows(RECEIVE, ([key], [received.thread_id], [None], [line]))
        self._rows(NOTIFY, ([ANYBODY if owner is None else f"w{owner}"], [thread]))
        return bool(new)

    def quiet_threads(self, before: datetime) -> list[tuple[str, datetime]]:
        return [(thread, since) for thread, since in self._rows(QUIET, (before,))]

    def sizes(self, thread: str) -> dict[str, tuple[int, int]]:
        return {part: (count, size) for part, count, size in self._rows(SIZES, {"thread": thread})}

    def values(self) -> Iterator[tuple[str, str]]:
        for name, body in self._rows(VALUES):
            yield name, decode_text(body) if name.endswith(TEXT) else body

    def forget(self, forgotten: Forgotten) -> list[str]:
        with outages():
            return forget(self._connection, forgotten)

    def months(self, kind: Kind, before: str) -> list[tuple[str, int, int]]:
        statement = MONTHS.format(kind, "" if kind == "audit" else SINGLE)
        return [(day, count, size) for day, count, size in self._rows(statement, (before,))]

    def drop_months(self, kind: Kind, before: str) -> int:
        """Drop the rows from before the month of *before* (a day or an instant, UTC), and return how many they were.

        The running month stays, and what is reserved. What calls did cost stays too: one line by day and model, of
        nobody; accounts are as they were. Raises `SessionLost` while somebody reads for long: try again later.
        """
        with outages(), self._connection.transaction():
            calls = self._rows(CALLS_BEFORE, (before,)) if kind == "spending" else []
            places, times = [call[0] for call in calls], [call[2] for call in calls]
            sums = [_summed(*call[1:]) for call in calls]
            [[gone]] = self._rows(DROP_MONTHS, (kind, before, places, times, sums))
        return int(gone)

    def _wait_for_server(self, error: SessionLost, wait: Wait | None) -> None:
        """Wait, and connect again if the server is back.

        Raises the error if nobody waits, or if the connection still works: it would come again.
        """
        if wait is None or not self._connection.closed:
            raise error
        wait()
        with suppress(SessionLost):
            self._connect()

    def _imported(self, thread: Thread, last: int | None, later: int) -> list[bytes]:
        """Return what the files of one machine had, or so much of it that there are *last* messages in all."""
        if last is not None and later >= last:
            return []
        lines = [line.encode() for (line,) in self._rows(LOGGED, (thread.name,))]
        begins = [place for place, line in enumerate(lines) if MESSAGE in line]
        missing = len(begins) if last is None else last - later
        return lines[begins[-missing] :] if 0 < missing < len(begins) else lines

    def _all(self, thread: Thread, words: Sequence[str]) -> Iterator[bytes]:
        """Return all that a search of one thread may find, once it is asked for: another statement is under way."""
        with closing(PostgresReader(self._dsn, self._data)) as other:
            yield from chain.from_iterable(other.saying([thread], words, None))

    def _counts(self, threads: list[str]) -> list[int]:
        return [n for (n,) in self._rows(COUNTS, {"threads": threads, "message": MESSAGE.decode()})]

    def _threads(self, condition: str, **values: object) -> list[StoredThread]:
        found = self._rows(THREADS.format(condition), values)
        return [StoredThread(name, self._data, changed_at) for name, changed_at in found]

    def _rows(self, statement: str, values: Any = ()) -> list[tuple[Any, ...]]:
        with outages():
            cursor = self._connection.execute(statement.encode(), values)
            return cursor.fetchall() if cursor.description else []

    def _stream(
        self, statement: str, values: Any, size: int = AT_ONCE
    ) -> Generator[tuple[Any, ...], None, None]:
        """Return rows a few at a time. Only one such statement can be under way."""
        with outages():
            yield from self._connection.cursor().stream(statement.encode(), values, size=size)


def _texts(pieces: Sequence[bytes]) -> list[str]:
    return [piece.decode() for piece in pieces]


def _ids(words: Sequence[str]) -> list[str]:
    """Return the words as keys of messages end with them: after the last colon."""
    return [word.rpartition(":")[2] for word in words]


def _pattern(text: str) -> str:
    """Return an expression for a text in any case: the server may know the case of ASCII letters alone."""
    return "".join(map(_any_case, text))


def _any_case(letter: str) -> str:
    forms = {letter, letter.upper(), letter.title(), SIGNS.get(letter, letter)}
    if letter == DOT:
        return f"{DOT}?"
    return f"[{''.join(one for one in forms if len(one) == 1)}]" if len(forms) > 1 else re.escape(letter)


def _lines(rows: Iterable[Sequence[Any]]) -> Iterator[bytes]:
    for _, said, *records in rows:
        if said:
            yield from _told([said, *records]) if records[-1] else [said.encode()]


def _told(records: Sequence[str | None]) -> Iterator[bytes]:
    """Return a settled message as its thread's log would tell it."""
    ledger = Ledger()
    for line in filter(None, records):
        ledger.apply(read_line(record_adapter(), line.encode()))
    for pending, end in ledger.unlogged.values():
        for entry in log_entries(pending, end):
            yield encode(entry_adapter(), entry).rstrip(b"\n")


def _summed(
    number: int, at: str, day: str, model: str, micros: int | None, usage: Sequence[int | None] | None
) -> str:
    """Return the line of the ledger for calls of one day, or for one that nobody counted."""
    call = Call("", "", "", model, day)
    record: Record = Reserve(seq=number, at=at, call=call, micros=micros or 0)
    if usage is not None:
        record = Commit(seq=number, at=at, call=call, usage=Usage(*(n or 0 for n in usage)), micros=micros)
    return encode(spending_adapter(), record).decode().rstrip("\n")
