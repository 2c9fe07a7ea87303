"""The tables come by numbered steps, once; a newer database is left alone."""

from __future__ import annotations

import psycopg
import pytest

from bot.extensions.postgres.migrations import STEPS, migrate
from bot.extensions.postgres.session import SessionLost
from threads.errors import NewerSchema


def test_migrating_twice_is_migrating_once(dsn):
    migrate(dsn)
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT schema FROM meta").fetchall() == [(STEPS,)]


def test_a_database_of_a_newer_version_is_refused_and_left_as_it_is(dsn):
    with psycopg.connect(dsn) as connection:
        connection.execute("UPDATE meta SET schema = 999, min_reader = 999")
    with pytest.raises(NewerSchema, match=f"schema 999, this one knows {STEPS}"):
        migrate(dsn)


def test_a_newer_database_that_older_versions_may_use_is_used(dsn):
    with psycopg.connect(dsn) as connection:
        connection.execute("UPDATE meta SET schema = 999, min_reader = 1")
    migrate(dsn)


def test_a_server_that_is_away_is_a_lost_session():
    with pytest.raises(SessionLost):
        migrate("host=/nowhere dbname=x user=y")
