"""What the database keeps of threads that nobody serves, and how it is erased: in one transaction, or not at all."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any

import psycopg

from bot.agent.prompt.memory import memory_paths
from bot.store.reader import Forgotten
from threads.model import ThreadId

from .memory import encode_text

TEXT = ".md"
"""How the names of texts of the memory end, among the small values."""

QUIET = (
    "SELECT t.id, GREATEST(t.changed_at, l.at) FROM thread t LEFT JOIN LATERAL ("
    "SELECT COALESCE(m.settled_at, m.at) AS at FROM message m WHERE m.thread = t.id ORDER BY m.seq DESC LIMIT 1"
    ") l ON true WHERE t.owner IS NULL AND GREATEST(t.changed_at, l.at) < %s "
    "AND NOT EXISTS (SELECT FROM message m WHERE m.thread = t.id AND m.settled IS NULL) ORDER BY t.id"
)
SIZES = (
    "SELECT part, count(*), sum(size)::bigint FROM ("
    "SELECT 'conversation' AS part, pg_column_size(c.*) AS size FROM context c WHERE c.thread = %(thread)s "
    "UNION ALL SELECT 'log', pg_column_size(m.*) FROM message m "
    "WHERE m.thread = %(thread)s AND m.settled IS NOT NULL "
    "UNION ALL SELECT 'log', pg_column_size(l.*) FROM log l WHERE l.thread = %(thread)s "
    "UNION ALL SELECT CASE WHEN starts_with(encode(f.path, 'escape'), 'attachments/') THEN 'attachments' "
    "ELSE 'workspace' END, sum(octet_length(b.data)) FROM file f JOIN blob b USING (sha) "
    "WHERE f.thread = %(thread)s GROUP BY f.path) s GROUP BY part"
)
VALUES = "SELECT name, body::text FROM slot ORDER BY name"

PARTS = "SELECT forget_parts(NULL, %s, %s, %s, %s)"
MESSAGES = "SELECT forget_messages(%s)"
FILES = "SELECT forget_files(%s, %s)"
LINES = [
    f"DELETE FROM {table} t USING unnest(%s::text[]) g (line) WHERE t.line::text = g.line"  # noqa: S608 - ours
    for table in ("audit", "log", "spending")
]
NEW_LINES = (
    "UPDATE spending t SET line = g.new::json FROM unnest(%s::text[], %s::text[]) g (line, new) "
    "WHERE t.line::text = g.line"
)
VALUES_GONE = "DELETE FROM slot s WHERE s.name = ANY (%s)"
NEW_VALUES = (
    "UPDATE slot s SET rev = s.rev + 1, body = g.body::json FROM unnest(%s::text[], %s::text[]) g (name, body) "
    "WHERE s.name = g.name"
)
ACCOUNTS = (
    "DELETE FROM account a USING unnest(%s::text[], %s::text[]) g (scope, key) "
    "WHERE a.scope = g.scope AND a.key = g.key"
)


def forget(connection: psycopg.Connection[Any], forgotten: Forgotten) -> list[str]:
    """Erase all of it and return []; or nothing, and return the threads that are in the way."""
    left = list[str]()
    with connection.transaction() as transaction:
        for parts in {tuple(sorted(some)) for some in forgotten.parts.values()}:
            threads = [thread for thread, some in forgotten.parts.items() if sorted(some) == [*parts]]
            memories = [str(memory_paths(ThreadId.parse(thread))["thread"]) for thread in threads]
            rows = connection.execute(PARTS, (threads, memories, [*parts], forgotten.until))
            left += [thread for (thread,) in rows]
        if left:
            raise psycopg.Rollback(transaction)
        connection.execute(MESSAGES, (list(forgotten.messages),))
        for thread, paths in forgotten.files.items():
            connection.execute(FILES, (thread, [os.fsencode(path) for path in paths]))
        gone = [line.decode() for line, new in forgotten.lines.items() if new is None]
        for statement in LINES:
            connection.execute(statement.encode(), (gone,))
        lines = [(line.decode(), new.decode()) for line, new in forgotten.lines.items() if new is not None]
        connection.execute(NEW_LINES, _columns(lines))
        connection.execute(VALUES_GONE, ([name for name, new in forgotten.values.items() if new is None],))
        kept = [(name, new) for name, new in forgotten.values.items() if new is not None]
        values = [(name, encode_text(new) if name.endswith(TEXT) else new) for name, new in kept]
        connection.execute(NEW_VALUES, _columns(values))
        connection.execute(ACCOUNTS, _columns(forgotten.accounts))
    return left


def _columns(rows: Collection[tuple[str, str]]) -> tuple[list[str], list[str]]:
    return [first for first, _ in rows], [second for _, second in rows]
