"""The whole core over one database: what files tell is told here too, and workers that end in the middle change nothing."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial

import anyio
import psycopg
import pytest

from bot.ports.model import Completion, Usage
from bot.store.postgres.store import PostgresStore
from tests.one_model import OneModel
from tests.world import Platform, Scripted, calls, message, running, says
from threads.errors import StoreUnavailable
from threads.model import Limits, ThreadId

pytestmark = pytest.mark.anyio

now = partial(datetime.now, UTC)


class Echo(OneModel):
    """A model that takes a moment, and answers what was said last."""

    name = "fake/one"

    async def complete(self, request, on_event):
        await anyio.sleep(0.02)
        return Completion(says(f"to {request.messages[-1].text.split()[-1]}"), Usage(10, 5), "end")


@asynccontextmanager
async def worker(dsn, tmp_path, platform, model, **changes):
    """Run a worker with a whole core until the block ends."""
    store = PostgresStore(dsn, tmp_path, name="w", version="1", now=now)
    try:
        async with running(tmp_path, platform, model, store=store, clock=now, **changes) as core:
            yield core
    finally:
        with anyio.CancelScope(shield=True):
            await store.abort()


def outcomes(dsn):
    with psycopg.connect(dsn) as connection:
        return dict(connection.execute("SELECT key, outcome FROM message").fetchall())


async def test_a_conversation_goes_on_in_another_worker_as_in_one(dsn, tmp_path):
    platform = Platform()
    model = Scripted(calls("list_files", path="."), says("nothing there"), says("as I said, nothing"))
    async with worker(dsn, tmp_path / "a", platform, model) as core:
        await core.orchestrator.receive(message(1, "what is there?"))
        await platform.settled("m1")
    async with worker(dsn, tmp_path / "b", platform, model) as core:
        await core.orchestrator.receive(message(1, "what is there?"))
        await core.orchestrator.receive(message(2, "really?"))
        await platform.settled("m2")
    assert platform.texts == ["nothing there", "as I said, nothing"]
    roles = [one.role for one in model.requests[-1].messages]
    assert roles == ["user", "assistant", "user", "assistant", "user"]


async def test_workers_that_end_in_the_middle_lose_nothing_and_answer_nothing_twice(dsn, tmp_path):
    rng, platform, messages, threads = random.Random(1), Platform(), 120, 12
    limits = Limits(mailbox=messages)
    stopped = [anyio.Event() for _ in range(3)]
    cores = {}

    async def serve(place):
        for life in range(1000):
            async with worker(dsn, tmp_path / f"{place}-{life}", platform, Echo(), limits=limits) as core:
                cores[place] = core
                await stopped[place].wait()
                stopped[place] = anyio.Event()

    async def receive(number):
        """As a platform does: what was not acknowledged comes again, to whichever worker."""
        thread = ThreadId("fake", "W", "C", str(number % threads))
        while True:
            core = cores[rng.randrange(3)]
            try:
                with anyio.fail_after(2):
                    return await core.orchestrator.receive(message(number, f"say {number}", thread))
            except (StoreUnavailable, TimeoutError):
                await anyio.sleep(0.01)

    async with anyio.create_task_group() as tasks:
        for place in range(3):
            tasks.start_soon(serve, place)
        while len(cores) < 3:
            await anyio.sleep(0.01)
        async with anyio.create_task_group() as said:
            for number in range(messages):
                said.start_soon(receive, number)
                await anyio.sleep(0.02)
                if number % 15 == 14:
                    stopped[rng.randrange(3)].set()
        with anyio.fail_after(40):
            while None in (rows := outcomes(dsn)).values():
                await anyio.sleep(0.1)
        tasks.cancel_scope.cancel()
    assert len(rows) == messages
    assert set(rows.values()) <= {"answered", "merged"}
    assert max(Counter(post.key for post in platform.posts).values()) == 1
    answered = [key for key, outcome in rows.items() if outcome == "answered"]
    assert sorted(post.key for post in platform.posts) == sorted(answered)
