"""Credentials in both stores: read again at each use, so that no process works with another's old ones."""

from contextlib import asynccontextmanager

import anyio.lowlevel
import pytest

from bot.extensions.mcp.credentials import CredentialStore, SignInOffer
from bot.extensions.postgres.session import Pool
from bot.extensions.postgres.states import PostgresStates
from tests.bot.extensions.mcp.opened import offload_to_thread
from threads.store.disk import PosixDisk
from threads.store.json_file import JsonFiles

URL = "https://mcp.example/mcp"


@pytest.fixture(params=["files", "postgres"])
def two_processes(request, tmp_path):
    """Return a context with the stores of two processes."""

    @asynccontextmanager
    async def opened(learned):
        if request.param == "files":
            yield [
                CredentialStore(JsonFiles(PosixDisk(), tmp_path, offload_to_thread), learned.extend)
                for _ in range(2)
            ]
            return
        dsn = request.getfixturevalue("dsn")
        pool = Pool(dsn)
        states = [PostgresStates(pool, anyio.lowlevel.checkpoint) for _ in range(2)]
        yield [CredentialStore(one, learned.extend) for one in states]
        await pool.close()

    return opened


async def test_what_one_process_writes_the_other_reads(two_processes):
    learned = []
    async with two_processes(learned) as (one, other):
        assert (await other.read(URL, "slack:U1")).tokens is None
        tokens = {"access_token": "the-access", "refresh_token": "the-refresh", "token_type": "Bearer"}
        await one.change(URL, "slack:U1", lambda old: old.model_copy(update={"tokens": tokens}))
        assert (await other.read(URL, "slack:U1")).tokens == tokens
        assert {"the-access", "the-refresh"} <= set(learned)
        for url, person in ((URL, "slack:U2"), (f"{URL}/", "slack:U1"), (URL, "discord:U1")):
            assert (await other.read(url, person)).tokens is None
        await other.change(URL, "slack:U1", lambda old: old.model_copy(update={"tokens": None}))
        assert (await one.read(URL, "slack:U1")).tokens is None


async def test_an_address_that_reaches_another_process_is_found_and_then_forgotten(two_processes):
    learned = []
    async with two_processes(learned) as (one, other):
        offer = SignInOffer(
            state="s", place="p", until=1.0, redirect="http://127.0.0.1/callback?code=the-code&state=s"
        )
        await other.change(URL, "slack:U1", lambda old: old.model_copy(update={"offer": offer}))
        assert (await one.read(URL, "slack:U1")).offer == offer
        assert "the-code" in learned
        assert (await one.change(URL, "slack:U1", lambda old: old.with_outcome("x", ""))).offer == offer
        ended = await one.change(URL, "slack:U1", lambda old: old.with_outcome("s", "why"))
        assert (ended.offer.redirect, ended.offer.outcome) == ("", "why")
