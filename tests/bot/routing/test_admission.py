"""Which messages are for the bot at all, and what becomes of those that came twice, or too late."""

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import anyio

from bot import wording
from bot.ports.errors import ModelUnavailable
from tests.bot.routing.conftest import serve
from tests.world import ANN, T1, Clock, Platform, Scripted, message, running, says
from threads.errors import TransportUnavailable
from threads.model import Author, Feedback, Taken, ThreadId
from threads.store.data_folder import recent_threads, thread_folder

BOB = Author("U2", "bob")


def overheard(n, text="and now?", author=ANN, thread=T1):
    return replace(message(n, text, thread, author), via="overheard")


async def test_a_message_said_beside_the_bot_counts_only_in_a_thread_it_has_joined(tmp_path):
    platform, model = Platform(), Scripted()
    async with running(tmp_path, platform, model) as bot:
        await bot.orchestrator.receive(overheard(1))
        await serve(bot, platform, replace(message(2, "hi"), via="mention"), overheard(3))
    assert set(platform.outcomes) == {"m2", "m3"}
    assert not any("m1" in line for line in (tmp_path / "journal.jsonl").read_text().splitlines())


async def test_a_thread_stays_joined_after_a_restart_and_after_a_fresh_start(tmp_path):
    platform = Platform()
    async with running(tmp_path, platform, Scripted()) as bot:
        await serve(bot, platform, message(1), message(2, "/new"))
    async with running(tmp_path, platform, Scripted()) as bot:
        await serve(bot, platform, overheard(3))


class Deaf(Platform):
    """A platform that does not answer a post."""

    def __init__(self):
        super().__init__()
        self.posting = anyio.Event()

    async def post(self, outgoing):
        self.posting.set()
        return await anyio.sleep_forever()


async def test_a_thread_whose_first_turn_left_only_its_failure_behind_is_joined_and_keeps_its_order(tmp_path):
    deaf, platform = Deaf(), Platform()
    async with running(tmp_path, deaf, Scripted(ModelUnavailable())) as bot:
        await bot.orchestrator.receive(replace(message(1), via="mention"))
        await deaf.posting.wait()
    async with running(tmp_path, platform, Scripted()):
        await platform.settled("m1")
    async with running(tmp_path, platform, Scripted()) as bot:
        await bot.orchestrator.receive(overheard(2))
        await serve(bot, platform, replace(message(3), via="mention"))
        await serve(bot, platform, overheard(2))  # a catch-up brings it again
    assert [post.reply_to for post in platform.posts] == ["m1", "m2", "m3"]


async def test_a_message_that_follows_at_once_is_in_a_joined_thread(tmp_path):
    began, go = anyio.Event(), anyio.Event()

    async def held():
        began.set()
        await go.wait()
        return says("first")

    platform = Platform()
    async with running(tmp_path, platform, Scripted(held)) as bot:
        await bot.orchestrator.receive(replace(message(1), via="mention"))
        await bot.orchestrator.receive(overheard(2))
        go.set()
        await platform.settled("m1", "m2")


async def test_a_message_that_is_heard_before_its_mention_is_in_a_joined_thread(tmp_path):
    platform = Platform()
    async with running(tmp_path, platform, Scripted()) as bot, anyio.create_task_group() as tasks:
        tasks.start_soon(bot.orchestrator.receive, overheard(2))
        await anyio.wait_all_tasks_blocked()
        await bot.orchestrator.receive(replace(message(1), via="mention"))
        await platform.settled("m1", "m2")


async def test_a_message_that_was_said_before_the_mention_is_an_earlier_line_however_late_it_is_taken(
    tmp_path,
):
    platform = Platform()
    async with running(tmp_path, platform, Scripted()) as bot, anyio.create_task_group() as tasks:
        tasks.start_soon(bot.orchestrator.receive, overheard(2))
        await anyio.wait_all_tasks_blocked()
        later = datetime.fromisoformat(overheard(2).sent_at) + timedelta(seconds=1)
        await bot.orchestrator.receive(replace(message(1), via="mention", sent_at=later.isoformat()))
        await platform.settled("m1")
    assert not any("m2" in line for line in (tmp_path / "journal.jsonl").read_text().splitlines())


async def test_what_a_stranger_says_beside_the_bot_is_ignored_and_a_mention_is_refused_alone(tmp_path):
    platform = Platform()
    async with running(tmp_path, platform, Scripted(), allowed=lambda event: event.author == ANN) as bot:
        await serve(bot, platform, message(1))
        await bot.orchestrator.receive(overheard(2, author=BOB))
        await serve(bot, platform, replace(message(3, "hi", author=BOB), via="mention"))
    assert "m2" not in platform.outcomes
    assert (platform.posts[-1].kind, platform.posts[-1].to) == ("refusal", "U2")


async def test_a_stranger_is_refused_directly_once_a_day_however_often_the_first_is_delivered(tmp_path):
    platform, clock = Platform(), Clock()
    served = {"allowed": lambda event: event.author == ANN, "clock": clock}
    async with running(tmp_path, platform, Scripted(), **served) as bot:
        for n in (1, 1, 2):
            await bot.orchestrator.receive(message(n, "hi", author=BOB))
        await platform.settled("m1")
        clock.offset += timedelta(days=1)
        await serve(bot, platform, message(3, "hi", author=BOB))
    assert platform.texts == [wording.NOT_ALLOWED] * 2


async def test_feedback_of_a_stranger_is_not_kept(tmp_path):
    platform, kept = Platform(), []

    async def keep(feedback):
        kept.append(feedback.author)

    served = {"allowed": lambda event: event.author == ANN, "on_feedback": keep}
    async with running(tmp_path, platform, Scripted(), **served) as bot:
        for author in (ANN, BOB):
            await bot.orchestrator.receive(Feedback("f1", T1, author, "p1", "up"))
    assert kept == [ANN]


async def test_a_message_that_comes_again_under_another_id_is_one_message_also_after_a_restart(tmp_path):
    platform = Platform()
    first = replace(message(1), alias="c1")
    async with running(tmp_path, platform, Scripted()) as bot:
        async with anyio.create_task_group() as both:
            both.start_soon(bot.orchestrator.receive, first)
            both.start_soon(bot.orchestrator.receive, replace(message(2), alias="c1"))
        await platform.until(lambda: bool(platform.outcomes))
    async with running(tmp_path, platform, Scripted()) as bot:
        await bot.orchestrator.receive(replace(message(3), alias="c1"))
        await serve(bot, platform, message(4))
    assert set(platform.outcomes) in ({"m1", "m4"}, {"m2", "m4"}), "the first of them, and nothing again"


async def test_messages_that_were_found_too_late_share_notes_and_are_not_served(tmp_path):
    class Slow(Platform):
        async def post(self, outgoing):
            await anyio.sleep(0.2)
            return await super().post(outgoing)

    platform, model = Slow(), Scripted()
    async with running(tmp_path, platform, model) as bot:
        for n in range(1, 6):
            await bot.orchestrator.receive(replace(message(n), stale=True))
        await platform.settled("m1", "m2", "m3", "m4", "m5")
    assert set(platform.outcomes.values()) == {"failed"}
    assert model.requests == []
    assert 1 <= len(platform.posts) <= 2


async def test_a_message_that_was_too_late_before_a_crash_is_too_late_after_it(tmp_path):
    platform, model = Platform(), Scripted()
    async with running(tmp_path, platform, model) as bot:
        await bot.orchestrator.receive(replace(message(1), stale=True))
    async with running(tmp_path, platform, model):
        await platform.settled("m1")
    assert platform.outcomes == {"m1": "failed"}
    assert model.requests == []


async def test_a_message_that_waits_shows_a_sign_before_its_turn(tmp_path):
    platform = Platform()
    async with running(tmp_path, platform, Scripted()) as bot:
        await serve(bot, platform, message(1))
    assert platform.events[0] == ("m1", Taken("hello", "U1"))


async def test_a_stop_said_to_a_channel_stops_all_its_threads_and_no_other(tmp_path):
    gate, began, all_began = anyio.Event(), [], anyio.Event()

    async def held():
        began.append(1)
        if len(began) == 3:
            all_began.set()
        await gate.wait()
        return says("done")

    other = ThreadId("fake", "W", "C9", "9.0")
    here = [T1, replace(T1, root="1.5")]
    platform = Platform()
    async with running(tmp_path, platform, Scripted(held, held, held)) as bot:
        for n, thread in enumerate([*here, other], 1):
            await bot.orchestrator.receive(message(n, thread=thread))
        await all_began.wait()
        await bot.orchestrator.receive(message(4, "/stop", replace(T1, root="")))
        await platform.settled("m1", "m2", "m4")
        assert "m3" not in platform.outcomes
        gate.set()
        await platform.settled("m3")
    assert platform.outcomes["m1"] == platform.outcomes["m2"] == "stopped"


async def test_a_post_waits_for_a_lost_link_before_it_is_tried_again(tmp_path):
    class Away(Platform):
        def __init__(self):
            super().__init__()
            self.back = anyio.Event()
            self.asked = anyio.Event()

        async def reconnected(self):
            self.asked.set()
            await self.back.wait()

    platform = Away()
    platform.faults.append(TransportUnavailable("no route"))
    async with running(tmp_path, platform, Scripted()) as bot:
        await bot.orchestrator.receive(message(1))
        await platform.asked.wait()
        await anyio.sleep(300)
        assert platform.posts == []
        platform.back.set()
        await platform.settled("m1")
    assert platform.outcomes == {"m1": "answered"}


def test_recent_threads_are_those_with_a_folder_newest_first(tmp_path: Path):
    threads = [ThreadId("slack", "T1", f"C{n}", f"17{n}.0001") for n in range(4)]
    for n, thread in enumerate(threads):
        folder = thread_folder(tmp_path, thread)
        folder.mkdir(parents=True)
        if n != 2:
            (folder / "context.jsonl").write_text("")
    (tmp_path / "threads" / "slack" / "odd~name").mkdir()
    found = recent_threads(tmp_path, "slack", 60, 10)
    assert set(found) == {*threads}, "also one whose conversation was forgotten"
    assert len(recent_threads(tmp_path, "slack", 60, 2)) == 2
    assert recent_threads(tmp_path, "slack", -60, 10) == []
    assert recent_threads(tmp_path, "nowhere", 60, 10) == []
