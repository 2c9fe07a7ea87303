"""The whole core over one database: what files tell is told here too, and workers that end in the middle change nothing."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import anyio
import psycopg
import pytest

from bot import wording
from bot.extensions.postgres.store import PostgresStore
from bot.ports.model import Completion, Usage
from bot.routing.rate_limit import RateLimiter
from tests.bot.extensions.postgres.workers import rows as rows_of
from tests.one_model import OneModel
from tests.patience import WITHIN_S, until
from tests.world import T1, Gate, Platform, Scripted, calls, message, running, says
from threads.background import background_tasks
from threads.errors import StoreUnavailable
from threads.model import Deleted, ThreadId, TurnLimits, message_key

now = partial(datetime.now, UTC)


class Echo(OneModel):
    """A model that takes a moment, and answers what was said last."""

    name = "fake/one"

    async def complete(self, request, on_event):
        await anyio.sleep(0.02)
        return Completion(says(f"to {request.messages[-1].text.split()[-1]}"), Usage(10, 5), "end")


@asynccontextmanager
async def worker(dsn, tmp_path, platform, model, *, deaf=False, **changes):
    """Run a worker with a whole core until the block ends; a *deaf* one opens no mail."""
    store = PostgresStore(dsn, tmp_path, name="w", version="1", now=now)
    if deaf:
        store.journal.open_mail = lambda _: anyio.sleep(0)
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


@pytest.mark.parametrize("dies", [False, True])
async def test_a_delete_that_another_worker_hears_ends_the_turn_of_the_owner(dsn, tmp_path, dies):
    platform, gate = Platform(), Gate(says("never"))
    async with worker(dsn, tmp_path / "b", platform, Scripted()) as other:
        async with worker(dsn, tmp_path / "a", platform, Scripted(gate), deaf=dies) as owner:
            await gate.hold(owner, message(1))
            await other.orchestrator.receive(Deleted("m1", T1))
            if not dies:
                await platform.settled("m1")
        await other.orchestrator.receive(message(2))
        await platform.settled("m1", "m2")
    assert (platform.outcomes["m1"], platform.texts) == ("withdrawn", ["ok"])
    assert set(outcomes(dsn).values()) == {"withdrawn", "answered"}


async def test_workers_that_end_in_the_middle_lose_nothing_and_answer_nothing_twice(dsn, tmp_path):
    rng, platform, messages, threads = random.Random(1), Platform(), 120, 12
    limits = TurnLimits(mailbox=messages)
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

    async with background_tasks() as tasks:
        for place in range(3):
            tasks.start_soon(serve, place)
        await until(lambda: len(cores) >= 3)
        async with anyio.create_task_group() as said:
            for number in range(messages):
                said.start_soon(receive, number)
                await anyio.sleep(0.02)
                if number % 15 == 14:
                    stopped[rng.randrange(3)].set()
        with anyio.fail_after(WITHIN_S):
            while None in (rows := outcomes(dsn)).values():
                await anyio.sleep(0.1)
    assert len(rows) == messages
    assert set(rows.values()) <= {"answered", "merged"}
    assert max(Counter(post.key for post in platform.posts).values()) == 1
    answered = [key for key, outcome in rows.items() if outcome == "answered"]
    assert sorted(post.key for post in platform.posts) == sorted(answered)


class Stuck(OneModel):
    """A model that never answers."""

    name = "fake/one"

    def __init__(self):
        self.asked = anyio.Event()

    async def complete(self, request, on_event):
        self.asked.set()
        await anyio.sleep_forever()


@pytest.mark.parametrize("alive", [True, False])
async def test_a_stop_in_a_channel_ends_what_any_worker_does_there_or_will(dsn, tmp_path, alive):
    """One that dies before it learns of the stop leaves it to who takes its threads up."""
    platform, model, other = Platform(), Stuck(), Stuck()
    place = ThreadId("fake", "W", "C", "")
    here, elsewhere = replace(place, root="1"), ThreadId("fake", "W", "D", "1")
    async with worker(dsn, tmp_path / "b", platform, other) as b:
        async with worker(dsn, tmp_path / "a", platform, model, deaf=not alive) as a:
            await a.orchestrator.receive(message(1, "go", here))
            await model.asked.wait()
            await a.orchestrator.receive(message(2, "and on", here))
            await a.orchestrator.receive(message(3, "go", elsewhere))
            await b.orchestrator.receive(message(4, "/stop", place))
            await platform.settled("m4")
            if alive:
                await platform.settled("m1")
        await platform.settled("m1")
        await platform.settled("m2")
    stopped = {message_key(here, "m1"): "stopped", message_key(here, "m2"): "stopped"}
    assert outcomes(dsn).items() >= stopped.items()
    assert outcomes(dsn)[message_key(elsewhere, "m3")] is None
    assert wording.stopped(1, 1) in platform.texts


async def test_status_in_a_channel_counts_what_all_workers_do_there(dsn, tmp_path):
    platform, model = Platform(), Stuck()
    place = ThreadId("fake", "W", "C", "")
    async with (
        worker(dsn, tmp_path / "a", platform, model) as a,
        worker(dsn, tmp_path / "b", platform, Stuck()) as b,
    ):
        await a.orchestrator.receive(message(1, "go", replace(place, root="1")))
        await model.asked.wait()
        # The start of a turn is written while the model is asked.
        await until(lambda: rows_of(dsn, "SELECT FROM message WHERE started IS NOT NULL"))
        await a.orchestrator.receive(message(2, "and on", replace(place, root="1")))
        await a.orchestrator.receive(message(3, "go", ThreadId("fake", "W", "D", "1")))
        await b.orchestrator.receive(message(4, "/status", place))
        await platform.settled("m4")
    assert platform.texts[0].startswith("Working on a message; 1 waiting.")


async def test_the_messages_of_a_person_are_counted_over_all_workers(dsn, tmp_path):
    """Commands, copies and other people are not in that number."""
    platform, rates = Platform(), RateLimiter(3, exempt=lambda who: who == "ADMIN")
    async with (
        worker(dsn, tmp_path / "a", platform, Echo(), rates=rates) as a,
        worker(dsn, tmp_path / "b", platform, Echo(), rates=rates) as b,
    ):
        for number in range(6):
            said = message(number, f"say {number}", ThreadId("fake", "W", "C", str(number)))
            await (a, b)[number % 2].orchestrator.receive(said)
            await (b, a)[number % 2].orchestrator.receive(said)
            await b.orchestrator.receive(replace(said, id=f"s{number}", text="/status"))
        for number in range(6, 11):
            other = message(number, f"say {number}", ThreadId("fake", "W", "C", str(number)))
            await a.orchestrator.receive(replace(other, author=replace(other.author, id="ADMIN")))
        await platform.settled(
            *(f"m{number}" for number in range(11)), *(f"s{number}" for number in range(6))
        )
    assert [platform.outcomes[f"m{number}"] for number in range(6)] == ["answered"] * 3 + ["refused"] * 3
    assert {platform.outcomes[f"m{number}"] for number in range(6, 11)} == {"answered"}
    assert {platform.outcomes[f"s{number}"] for number in range(6)} == {"answered"}
