"""The tables, in numbered SQL files, and the functions, all in one.

A later file of tables changes what those before it made; older workers accept that. The functions are replaced as a
whole when the database has those of an earlier version.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import psycopg

from bot.ports.config_error import ConfigInvalid
from threads.errors import NewerSchema

from .session import address, outages

LOCK = 7_777_000
"""The advisory lock of a migration: one worker migrates at a time."""

SQL = files(__package__).joinpath("sql")
STEPS = sum(entry.name[0].isdigit() for entry in SQL.iterdir())
"""The number of files of tables: `sql/0001.sql` and so on."""

FUNCTIONS = 6
"""The version of `sql/functions.sql`. A change there raises it."""


def migrate(dsn: str) -> None:
    """Bring the database up to date, all or nothing. Raises `NewerSchema` and `SessionLost`.

    Raises `ConfigInvalid` for a store that was moved elsewhere, and for what is no address.
    """
    with outages(), psycopg.connect(address(dsn)) as connection:
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        for step in range(schema_of(connection) + 1, STEPS + 1):
            connection.execute(SQL.joinpath(f"{step:04}.sql").read_bytes())
            connection.execute("UPDATE meta SET schema = %s", (step,))
        if connection.execute("SELECT FROM meta WHERE functions < %s", (FUNCTIONS,)).fetchone() is not None:
            connection.execute(SQL.joinpath("functions.sql").read_bytes())
            connection.execute("UPDATE meta SET functions = %s", (FUNCTIONS,))
        connection.execute("SELECT make_months()")
        if moved := connection.execute("SELECT moved_to FROM meta WHERE moved_to IS NOT NULL").fetchone():
            raise ConfigInvalid(f"The store was moved to {moved[0]}; name that in the settings (`store`).")


def schema_of(connection: psycopg.Connection[Any]) -> int:
    """Return how many of the files the tables have. Raises `NewerSchema`."""
    row = connection.execute("SELECT to_regclass('meta') IS NOT NULL").fetchone()
    if row is None or not row[0]:
        return 0
    row = connection.execute("SELECT schema, min_reader FROM meta").fetchone()
    schema, min_reader = row or (0, 0)
    if min_reader > STEPS:
        raise NewerSchema(
            f"The database was written by a newer Threadfast (schema {schema}, this one knows {STEPS}) and is left "
            "as it is; update this one, or name another database in `store.dsn`."
        )
    return schema
