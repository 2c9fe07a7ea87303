"""A store that comes back from a dump, or on another server, knows less than the platforms: it notices that itself."""

from __future__ import annotations

import psycopg

from tests.bot.extensions.postgres.workers import Seat


async def restored(dsn):
    """Return what a worker finds that starts on the database."""
    store = Seat(dsn).store
    try:
        await store.prepare()
        return await store.restored()
    finally:
        await store.abort()


async def test_a_store_that_is_only_started_again_was_not_restored(dsn):
    assert await restored(dsn) is None
    assert await restored(dsn) is None


async def test_a_dump_that_was_restored_is_noticed_at_the_next_start_and_remembered(server, dsn):
    await restored(dsn)
    dump = server.run("pg_dump", "--format=custom", f"--dbname={dsn}")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    server.run("pg_restore", f"--dbname={dsn}", given=dump)
    found = await restored(dsn)
    assert found is not None
    assert await restored(dsn) == found
