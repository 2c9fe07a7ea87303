from __future__ import annotations

from contextlib import ExitStack

import psycopg
import pytest

from bot.extensions.postgres.session import Pool
from bot.extensions.postgres.worker import LOCKS


@pytest.fixture
async def pool(dsn):
    pool = Pool(dsn)
    yield pool
    await pool.close()


@pytest.fixture
def cut_off():
    """Keep a worker from renewing its lease: its session is ended, and its lock is held by somebody else."""
    with ExitStack() as stack:

        def cut(dsn: str, number: int) -> None:
            connection = stack.enter_context(psycopg.connect(dsn, autocommit=True))
            while True:
                connection.execute(ITS_SESSION, (LOCKS, number))
                if connection.execute("SELECT pg_try_advisory_lock(%s, %s)", (LOCKS, number)).fetchone() == (
                    True,
                ):
                    return

        yield cut


ITS_SESSION = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND classid = %s AND objid = %s"
