"""Checks whether a database is fit for many workers."""

from __future__ import annotations

from dataclasses import dataclass

import psycopg

from .session import OPTIONS, SessionLost, address, outages

FACTS = (
    "SELECT current_setting('server_version'), current_setting('fsync') = 'on', "
    "current_setting('synchronous_commit') IN ('on', 'remote_apply'), "
    "EXISTS (SELECT FROM pg_stat_replication) AND current_setting('synchronous_standby_names') = '', "
    "to_regclass('worker') IS NOT NULL, (SELECT sum(numbackends) FROM pg_stat_database)::int, "
    "current_setting('max_connections')::int"
)
PID = "SELECT pg_backend_pid()"
DATABASE = "SELECT system_identifier, current_database() FROM pg_control_system()"
COUNTS = (
    "SELECT (SELECT count(*) FROM worker WHERE alive_until > clock_timestamp()), "
    "(SELECT count(*) FROM message WHERE settled IS NULL)"
)
SIZES = (
    "SELECT root::regclass::text, sum(bytes)::bigint FROM (SELECT COALESCE(pg_partition_root(c.oid), c.oid) AS root, "
    "pg_total_relation_size(c.oid) AS bytes FROM pg_class c JOIN pg_class m ON m.oid = 'meta'::regclass "
    "AND m.relnamespace = c.relnamespace WHERE c.relkind = 'r') t GROUP BY root ORDER BY 2 DESC, 1"
)
"""Each table with its indexes and what lies beside it; partitions count under the name of their table."""

POOLED = (
    "The connections go through a pooler that gives each transaction another session. Locks and notifications are "
    "lost there. Use the address of the server itself, or a pool of whole sessions."
)


@dataclass(frozen=True, slots=True)
class Database:
    """``faults`` are sentences about what loses messages, ``risks`` about what may.

    ``workers`` counts the live ones, ``waiting`` the messages without an outcome, and ``connections`` those that the
    server has, of the ``most`` that it takes. ``sizes`` are the tables with their bytes, the largest first.
    """

    version: str
    workers: int
    faults: tuple[str, ...]
    risks: tuple[str, ...]
    waiting: int = 0
    connections: int = 0
    most: int = 0
    sizes: tuple[tuple[str, int], ...] = ()


ELSEWHERE = "store.pool_dsn leads to another database than store.dsn."


def examine(dsn: str, pool_dsn: str = "") -> Database:
    """Examine a server, and whether the pooler before it leads there. Blocking.

    Raises `SessionLost` and `ConfigInvalid`.
    """
    server, elsewhere = address(dsn, options=OPTIONS), False
    try:
        with (
            outages(),
            psycopg.connect(server, autocommit=True) as one,
            psycopg.connect(server, autocommit=True) as other,
        ):
            # A pooler gives a session that has just become free to the next client.
            pooled = one.execute(PID).fetchone() == other.execute(PID).fetchone()
            row = one.execute(FACTS).fetchone() or ("", False, False, False, False, 0, 0)
            version, fsync, commits, unsynchronised, has_tables, connections, most = row
            counts = one.execute(COUNTS).fetchone() if has_tables else None
            sizes = tuple(one.execute(SIZES).fetchall()) if has_tables else ()
            here = one.execute(DATABASE).fetchone()
        if pool_dsn:
            with outages(), psycopg.connect(address(pool_dsn), autocommit=True) as pooler:
                elsewhere = pooler.execute(DATABASE).fetchone() != here
    except SessionLost as error:
        if "unsupported startup parameter" in str(error):
            return Database("", 0, (POOLED,), ())
        raise
    faults = [
        *([POOLED] if pooled else []),
        *([ELSEWHERE] if elsewhere else []),
        *([] if fsync else ["fsync is off: a crash of the server loses what was acknowledged."]),
        *([] if commits else ["synchronous_commit is off: a crash loses what was acknowledged."]),
    ]
    risk = "A replica is not synchronous: if it is promoted, what was acknowledged last is lost."
    workers, waiting = counts or (0, 0)
    risks = (risk,) if unsynchronised else ()
    return Database(version, workers, tuple(faults), risks, waiting, connections - 2, most, sizes)
