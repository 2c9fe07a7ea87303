"""What an operator asks of a PostgreSQL that has years of data.

The rows are as long as a worker's: some 2 kB of records for a message, two lines of the ledger for its call, and an
audit line for every second one. One thread has a hundredth of all messages.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.figures import Conditions, Figure
from bot.extensions.postgres.reading import AT_ONCE, PostgresReader
from bot.reports.audit_trail import Filter, read_audit
from bot.reports.dead_letters import dead_letters
from bot.reports.line_reader import Damage
from bot.reports.message_story import stories
from bot.reports.thread import entries, summaries, waiting
from bot.reports.usage import report
from tests.fakes.postgres import Server
from transports.web.page_history import AT_ONCE as AT_ONCE_SEARCHED

MESSAGES, MONTHS = 1_000_000, 24
SHOWN = 50
"""Threads that a list shows, and messages that a page shows."""

MOST_MS = 100.0

MAKE_MONTHS = """
DO $$
DECLARE
    kind text;
BEGIN
    FOREACH kind IN ARRAY ARRAY['audit', 'spending'] LOOP
        EXECUTE format('DROP TABLE %I', kind || to_char(now() AT TIME ZONE 'UTC', '_YYYY_MM'));
    END LOOP;
    PERFORM make_month((date_trunc('month', now() AT TIME ZONE 'UTC') - n * interval '1 month')::date)
    FROM generate_series(0, {months}) n;
END $$
"""
# Each line has its checksum: no report leaves one out as damaged.
GIVEN = """
CREATE FUNCTION checked(body text) RETURNS json LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN body || ',"crc":"' || lpad(to_hex(crc32(convert_to(body, 'UTF8'))), 8, '0') || '"}';
END $$;
CREATE UNLOGGED TABLE given AS
SELECT n, at, iso, id, 'slack:T1:C1:' || root AS thread, 'slack:T1:C1:' || id AS key, md5(n::text) AS hash,
    format('{"thread_id":"slack:T1:C1:%s","message_id":"%s","seq":%s,"at":"%s","v":1', root, id, n, iso) AS head,
    to_char(at AT TIME ZONE 'UTC', 'YYYYMM')::bigint * 10000000000 + n * 2 AS seq,
    format('"at":"%s","v":1,"call":{"thread_id":"slack:T1:C1:%s","user":"U%s","turn":"slack:T1:C1:%s",'
        '"model":"anthropic/claude","day":"%s","scopes":[]}', iso, root, n % 500, id, left(iso, 10)) AS call
FROM (
    SELECT n, at, to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"+00:00"') AS iso,
        floor(extract(epoch FROM at)) || '.' || lpad((n % 1000000)::text, 6, '0') AS id,
        CASE WHEN n % 100 = 0 THEN 'long' ELSE (n / 1000 * 20 + n % 20)::text || '.0' END AS root
    FROM (
        SELECT n, now() - ({messages} - n) * (interval '{months} months' / {messages}) AS at
        FROM generate_series(1, {messages}) n
    ) o
) g
"""
ROWS = (
    "INSERT INTO thread (id, epoch, changed_at) SELECT thread, 1, max(at) FROM given GROUP BY thread",
    """
INSERT INTO message (key, thread, received, started, intent, posted, settled, at, settled_at, outcome)
SELECT key, thread,
    checked(head || ',"author":{"id":"U' || n % 500 || '","name":"ann","roles":[]},"text":"'
        || repeat(left(hash, 9) || ' ', 40) || '","sent_at":"' || iso || '","via":"direct","files":[],"alias":"",'
        '"stale":false,"reply_address":"","unsure":false,"quoted":"","replaces":"","kind":"received"'),
    checked(head || ',"attempt":1,"correlation_id":"' || left(hash, 8) || '","asked":[],"kind":"started"'),
    checked(head || ',"text":"' || repeat(right(hash, 9) || ' ', 70)
        || '","post":"reply","outcome":"answered","code":"","ways":[],"mentions":[],"kind":"intent"'),
    checked(head || ',"platform_id":"p' || id || '","kind":"posted"'),
    checked(head || ',"outcome":"' || outcome || '","by":"","alias":"","logged":0,"interrupted":false,"shown":"",'
        '"spent":{"model":"anthropic/claude","tokens":4000,"cached":0.5,"cost_usd":0.01},"kind":"settled"'),
    at, at + interval '5 s', outcome
FROM given, LATERAL (SELECT CASE WHEN n % 20000 = 1 THEN 'dead_letter' ELSE 'answered' END AS outcome) o ORDER BY n
""",
    """
INSERT INTO spending (seq, at, line)
SELECT seq + o, at + o * interval '4 s', checked('{"seq":' || seq + o || ',' || call || CASE o
    WHEN 0 THEN ',"micros":90000,"pace":null,"kind":"reserve"'
    ELSE ',"usage":{"input":900,"output":300,"cache_read":3000,"cache_write":0,"cache_write_1h":0,"hidden":0},'
        '"micros":10000,"outcome":"ok","reserve":' || seq || ',"kind":"commit"' END)
FROM given, generate_series(0, 1) o ORDER BY n, o
""",
    """
INSERT INTO audit (at, line, digest) SELECT at, checked(format(
    '{"at":"%s","kind":"retry","thread_id":"%s","message_id":"%s","author":"","details":{"event":"model.retry",'
    '"error":"provider_overloaded","attempt":1,"wait_s":"0.6"},"correlation_id":"%s","worker":"host:1","v":1',
    iso, thread, id, left(hash, 8))), sha256(key::bytea)
FROM given WHERE n % 2 = 0 ORDER BY n
""",
)
END = "DROP TABLE given; DROP FUNCTION checked"
SOME = (
    "SELECT m.thread, substring(key FROM '[^:]*$'), started->>'correlation_id', posted->>'platform_id' "
    "FROM message m WHERE seq = (SELECT max(seq) / 2 + 1 FROM message)"
)


NOTED = "SELECT note_words(), (SELECT count(*) FROM vocabulary)"


class TimedReader(PostgresReader):
    """Adds up the seconds that its statements take, with the transfer of their rows."""

    spent = 0.0

    def _rows(self, statement: str, values: Any = ()) -> list[tuple[Any, ...]]:
        began = time.perf_counter()
        try:
            return super()._rows(statement, values)
        finally:
            self.spent += time.perf_counter() - began

    def _stream(
        self, statement: str, values: Any, size: int = AT_ONCE
    ) -> Generator[tuple[Any, ...], None, None]:
        rows = super()._stream(statement, values, size)
        while True:
            began = time.perf_counter()
            row = next(rows, None)
            self.spent += time.perf_counter() - began
            if row is None:
                return
            yield row


def fill(dsn: str, messages: int) -> None:
    """Fill an empty database, with a partition for each month."""

    def run(*statements: str) -> None:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("SET synchronous_commit = off")
            for one in statements:
                filled = one.replace("{messages}", str(messages)).replace("{months}", str(MONTHS))
                connection.execute(filled.encode())

    run(MAKE_MONTHS, GIVEN)
    with ThreadPoolExecutor() as pool:
        list(pool.map(run, ROWS))
    run(END, "VACUUM ANALYZE")


def note_words(dsn: str) -> int:
    """Note the words of the threads, as workers do at intervals, and return of how many."""
    noted = -1
    with psycopg.connect(dsn, autocommit=True) as connection:
        while noted != (noted := connection.execute(NOTED).fetchall()[0][1]):
            pass
        connection.execute("VACUUM ANALYZE vocabulary")
    return noted


def answers(dsn: str) -> dict[str, Callable[[PostgresReader], object]]:
    """Return what to ask, by name."""
    with psycopg.connect(dsn) as connection:
        [(thread, message, reference, post)] = connection.execute(SOME).fetchall()
    now = datetime.now(UTC)
    week, month = ((now - timedelta(days=days)).date().isoformat() for days in (7, 30))

    def page(reader: PostgresReader, name: str) -> object:
        [one] = reader.find(name)
        return [*entries(reader, one, Damage(), SHOWN)], reader.count(one), waiting(reader, one.name)

    def search(reader: PostgresReader, word: str) -> int:
        """Return in how many of every hundredth thread, without the long one, the word may be."""
        with closing(reader.saying(reader.threads()[50::100], [word], AT_ONCE_SEARCHED)) as said:
            return len([*islice(filter(None, (next(iter(lines), None) for lines in said)), SHOWN)])

    return {
        "threads list": lambda reader: [*summaries(reader, reader.threads()[:SHOWN])],
        "why MESSAGE": lambda reader: stories(reader, message),
        "why REFERENCE": lambda reader: stories(reader, reference),
        "why POST": lambda reader: stories(reader, post),
        "why, of what nobody knows": lambda reader: stories(reader, "1234567.89"),
        "a thread's page": lambda reader: page(reader, thread),
        "a thread by the end of its id": lambda reader: reader.find(thread.rpartition(":")[2]),
        "the page's search, a word that is often said": lambda reader: search(reader, "a"),
        "the page's search, a word that is nowhere": lambda reader: search(reader, "nowhere"),
        "dead letters": dead_letters,
        "audit of a week": lambda reader: deque(read_audit(reader, Filter(week), Damage())),
        "audit of a thread": lambda reader: [*read_audit(reader, Filter(threads=[thread]), Damage())],
        "page of the long thread": lambda reader: page(reader, "slack:T1:C1:long"),
        "usage of 30 days": lambda reader: report(reader, "model", (month, None)),
    }


def measure(conditions: Conditions) -> Iterator[Figure]:
    """Fill a store with two years of messages, and yield how long each answer takes."""
    messages = MESSAGES // 10 if conditions.quick else MESSAGES
    with Server() as server:
        dsn, began = server.new_database(), time.perf_counter()
        fill(dsn, messages)
        yield Figure(f"{messages:,} messages stored", time.perf_counter() - began, "s", at_most=180)
        began = time.perf_counter()
        noted = note_words(dsn)
        yield Figure(f"the words of {noted:,} threads noted", time.perf_counter() - began, "s", at_most=180)
        for what, ask in answers(dsn).items():
            with closing(TimedReader(dsn, Path("/nowhere"))) as reader:
                ask(reader)  # the server has read the pages once
                began, reader.spent = time.perf_counter(), 0.0
                ask(reader)
                took = (time.perf_counter() - began) * 1000
                yield Figure(what, reader.spent * 1000, "ms", at_most=MOST_MS, note=f"{took:,.0f} ms in all")
