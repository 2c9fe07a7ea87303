"""What was said while no worker listened is found by the next one, on whichever machine it runs."""

from __future__ import annotations

import os
from functools import partial

import anyio
import anyio.to_thread
import pytest

from bot.extensions.postgres.marks import PostgresMarks
from tests.bot.extensions.postgres.workers import rows
from tests.fakes.postgres import Server
from tests.fakes.slack import FakeSlack
from tests.patience import WITHIN_S, until
from tests.transports.slack.bot import bot_in
from tests.transports.slack.worker import worker_in
from tests.world import Scripted, says

AWAY_S = float(os.environ.get("AWAY_S", "3"))
"""How long the database is away in a test; `AWAY_S=600` shows that it makes no difference."""


def answer(slack, text):
    return any(post.text == text for post in slack.posts())


async def test_what_was_said_while_no_worker_ran_is_found_by_one_with_an_empty_folder(dsn, tmp_path):
    async with FakeSlack() as slack:
        async with worker_in(slack, dsn, tmp_path / "a", Scripted(says("first"))):
            await slack.say("U1", "C1", "<@UBOT> hello")
            await slack.until(lambda: answer(slack, "first"))
            await slack.until(lambda: rows(dsn, "SELECT FROM mark WHERE body LIKE '%C1%'"))
        slack.say("U1", "C1", "<@UBOT> anybody?", quiet=True)
        async with worker_in(slack, dsn, tmp_path / "b", Scripted(says("here I am"))):
            await slack.until(lambda: answer(slack, "here I am"))
            await slack.until(lambda: len(rows(dsn, "SELECT FROM mark")) == 1)
        assert len(slack.posts()) == 2


async def test_what_was_said_while_the_database_was_away_is_answered_once_it_is_back(tmp_path):
    with Server() as server:
        models = [Scripted(*[says("yes")] * 3) for _ in range(2)]
        async with (
            FakeSlack() as slack,
            worker_in(slack, dsn := server.new_database(), tmp_path / "a", models[0], max_age_s=600 + AWAY_S),
            worker_in(slack, dsn, tmp_path / "b", models[1], max_age_s=600 + AWAY_S),
        ):
            first = await slack.say("U1", "C1", "<@UBOT> before")
            await slack.until(lambda: len(slack.posts()) == 1)
            await anyio.to_thread.run_sync(server.stop)
            said = [slack.say("U1", "C1", f"<@UBOT> away {number}") for number in range(2)]
            await anyio.sleep(AWAY_S)
            assert len(slack.posts()) == 1
            await anyio.to_thread.run_sync(server.start)
            await until(
                lambda: len(slack.posts()) >= 3 and not rows(dsn, "SELECT FROM message WHERE settled IS NULL")
            )
            assert {key for (key,) in rows(dsn, "SELECT key FROM message WHERE outcome = 'answered'")} == {
                f"slack:T1:C1:{one.ts}" for one in (first, *said)
            }


async def test_a_follow_up_is_answered_although_the_worker_died_that_heard_the_mention_and_had_not_stored_it(
    dsn, tmp_path
):
    async with (
        FakeSlack() as slack,
        worker_in(slack, dsn, tmp_path / "a", Scripted(says("one"), says("two"))),
    ):
        [link] = slack.sockets.links
        async with worker_in(slack, dsn, tmp_path / "b", Scripted(), stores=False):
            [dying] = [each for each in slack.sockets.links if each is not link]
            send = slack.sockets.send

            def send_mention_first_to_the_dying(delivery):
                is_mention = "hello" in str(delivery.payload) and not delivery.attempt
                slack.sockets._next_link = lambda: dying if is_mention else link
                send(delivery)

            slack.sockets.send = send_mention_first_to_the_dying
            root = slack.say("U1", "C1", "<@UBOT> hello")
            await slack.say("U1", "C1", "and one thing more", thread_ts=root.ts)
        with anyio.fail_after(WITHIN_S):
            await slack.until(lambda: answer(slack, "one") and answer(slack, "two"))


async def test_the_links_of_other_workers_are_not_taken_for_another_bot(dsn, tmp_path, caplog):
    async with FakeSlack() as slack, worker_in(slack, dsn, tmp_path / "a", Scripted()):
        async with worker_in(slack, dsn, tmp_path / "b", Scripted()):
            assert len(slack.sockets.links) == 2
        assert "link.shared" not in caplog.text
        async with bot_in(slack, tmp_path / "c", Scripted()):
            assert "link.shared" in caplog.text


in_thread = anyio.to_thread.run_sync


@pytest.fixture
def marks(dsn, pool):
    for number in (1, 2):
        rows(dsn, f"INSERT INTO worker VALUES ({number}, now(), 'w', '1') RETURNING id")
    return [PostgresMarks(pool, partial(int, number), "slack") for number in (1, 2, 3)]


async def test_what_a_gone_worker_left_comes_until_it_is_written_by_another(dsn, marks):
    one, other, gone = marks
    for store, body in zip(marks, (b"one", b"other", b"gone"), strict=True):
        await in_thread(store.write, body)
    assert await in_thread(one.read) == b"one"
    assert await in_thread(one.take_over) == [b"gone"]
    assert await in_thread(one.take_over) == []
    assert await in_thread(other.take_over) == [b"gone"], "nobody has it for sure yet"
    await in_thread(one.write, b"one and gone")
    assert rows(dsn, "SELECT worker, body FROM mark ORDER BY worker") == [(1, b"one and gone"), (2, b"other")]
    await in_thread(other.write, b"other and gone")
    assert await in_thread(gone.read) == b""


async def test_marks_are_written_after_the_server_was_lost(dsn, marks):
    one, *_ = marks
    await in_thread(one.write, b"before")
    rows(
        dsn,
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE query LIKE '%INTO mark%' AND pid <> pg_backend_pid()",
    )
    await in_thread(one.write, b"after")
    assert await in_thread(one.read) == b"after"


T0 = 1_700_000_000


async def claim(store, since=T0, due=T0 + 50, now=T0 + 100, begins=T0 - 120):
    """Claim to read a channel that was read up to *since*, and has a gap since *due*."""
    return await in_thread(store.claim, "C1", *(f"{time}.000100" for time in (since, begins, due, now)))


async def test_what_several_workers_missed_is_read_by_one(marks):
    one, other, _ = marks
    assert await claim(one) == ""
    assert await claim(other) is None, "it is being read"
    assert await claim(one) == "", "its reader may begin anew"
    await in_thread(one.finish, "C1", f"{T0 + 90}.000100")
    assert await claim(other, since=T0 - 60) == f"{T0 + 90}.000100"
    assert await in_thread(other.claim, "C2", "1.0", "1.0", "1.0", "2.0") == ""


@pytest.mark.parametrize(
    "changes", [{"due": T0 + 101}, {"since": T0 - 121}], ids=["a later gap", "an earlier mark"]
)
async def test_what_another_has_not_read_is_read_all_the_same(marks, changes):
    one, other, _ = marks
    await claim(one)
    await in_thread(one.finish, "C1", f"{T0 + 90}.000100")
    assert await claim(other, **changes) == ""
    assert await claim(one) is None


async def test_what_a_worker_began_to_read_that_is_gone_is_read_by_another(marks):
    one, _, gone = marks
    assert await claim(gone) == ""
    assert await claim(one) == ""
    await in_thread(gone.finish, "C1", f"{T0 + 90}.000100")
    assert await claim(one) == "", "a zombie finishes nothing"
