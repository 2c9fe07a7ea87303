"""Checks whether a database is fit for many workers."""

from __future__ import annotations

from dataclasses import dataclass

import psycopg

from .session import OPTIONS, SessionLost, address, outages

FACTS = (
    "SELECT current_setting('server_version'), current_setting('fsync') = 'on', "
    "current_setting('synchronous_commit') IN ('on', 'remote_apply'), "
    "EXISTS (SELECT FROM pg_stat_replication) AND current_setting('synchronous_standby_names') = '', "
    "to_regclass('worker') IS NOT NULL"
)
PID = "SELECT pg_backend_pid()"
COUNTS = (
    "SELECT (SELECT count(*) FROM worker WHERE alive_until > clock_timestamp()), "
    "(SELECT count(*) FROM message WHERE settled IS NULL)"
)

POOLED = (
    "The connections go through a pooler that gives each transaction another session. Locks and notifications are "
    "lost there. Use the address of the server itself, or a pool of whole sessions."
)


@dataclass(frozen=True, slots=True)
class Database:
    """``faults`` are sentences about what loses messages, ``risks`` about what may.

    ``workers`` counts the live ones, and ``waiting`` the messages without an outcome.
    """

    version: str
    workers: int
    faults: tuple[str, ...]
    risks: tuple[str, ...]
    waiting: int = 0


def examine(dsn: str) -> Database:
    """Examine a server. Blocking. Raises `SessionLost` and `ConfigInvalid`."""
    server = address(dsn, options=OPTIONS)
    try:
        with (
            outages(),
            psycopg.connect(server, autocommit=True) as one,
            psycopg.connect(server, autocommit=True) as other,
        ):
            # A pooler gives a session that has just become free to the next client.
            pooled = one.execute(PID).fetchone() == other.execute(PID).fetchone()
            row = one.execute(FACTS).fetchone() or ("", False, False, False, False)
            version, fsync, commits, unsynchronised, has_tables = row
            counts = one.execute(COUNTS).fetchone() if has_tables else None
    except SessionLost as error:
        if "unsupported startup parameter" in str(error):
            return Database("", 0, (POOLED,), ())
        raise
    faults = [
        *([POOLED] if pooled else []),
        *([] if fsync else ["fsync is off: a crash of the server loses what was acknowledged."]),
        *([] if commits else ["synchronous_commit is off: a crash loses what was acknowledged."]),
    ]
    risk = "A replica is not synchronous: if it is promoted, what was acknowledged last is lost."
    workers, waiting = counts or (0, 0)
    return Database(version, workers, tuple(faults), (risk,) if unsynchronised else (), waiting)
