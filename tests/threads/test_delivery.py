"""An answer that could not be posted for too long: one honest note in its place, and one outcome; in virtual time."""

from __future__ import annotations

from datetime import timedelta

import anyio
import pytest

from bot.reports.files import FileReader
from bot.reports.message_story import stories
from tests.sim.loop import virtual_time
from tests.world import Clock, Platform, Scripted, message, running, says
from threads.errors import StoreUnavailable, TransportUnavailable
from threads.journal.records import Intent
from threads.wording import MAYBE_REPEAT
from transports.shared.delivery.outbox import Outbox

HOURS = timedelta(hours=3)


anyio_backend = virtual_time


class LoopClock(Clock):
    """Wall time that goes with the virtual time of the loop."""

    def __call__(self):
        return super().__call__() + timedelta(seconds=anyio.current_time() - 1000.0)


class Away(Platform):
    """Refuses posts, and look-ups if so wanted, while it is away."""

    def __init__(self, *, looks: bool = True):
        super().__init__()
        self.away, self.tries, self.looks = True, 0, looks
        self.back_at = 0.0

    async def post(self, outgoing):
        self.tries += 1
        self._look()
        if self.away:
            raise TransportUnavailable("no link")
        return await super().post(outgoing)

    async def find(self, thread, key):
        if not self.looks:
            raise TransportUnavailable("no link")
        return await super().find(thread, key)

    async def reconnected(self):
        await anyio.sleep_until(self.back_at)
        self.away = False


def impatient(platform, clock):
    """What a bot whose answers wait for ten minutes at most is started with."""
    outbox = Outbox(platform, ensure_ownership=anyio.lowlevel.checkpoint, max_age_s=600.0)
    return {"clock": clock, "outboxes": {"fake": outbox}}


async def answer_and_die(data, platform, clock) -> None:
    """Answer a message, and die at the first try to post that."""
    async with running(data, platform, Scripted(says("the answer")), clock=clock) as bot:
        platform.back_at = 1e9
        await bot.orchestrator.receive(message())
        await platform.until(lambda: platform.tries > 0)
    platform.back_at = 0.0


async def start(data, platform, clock) -> None:
    async with running(data, platform, Scripted(), clock=clock):
        await anyio.sleep(60)


@pytest.mark.parametrize(("later", "outcome"), [(timedelta(minutes=9), "answered"), (HOURS, "failed")])
async def test_a_start_after_hours_tells_that_an_answer_is_too_old_and_does_not_post_it(
    tmp_path, later, outcome
):
    clock, platform = LoopClock(), Away()
    await answer_and_die(tmp_path, platform, clock)
    platform.away, clock.offset = False, later
    for _ in range(2):  # the second start has nothing to do
        await start(tmp_path, platform, clock)
    [post] = platform.posts
    assert platform.outcomes == {"m1": outcome}
    if outcome == "answered":
        assert post.text == "the answer"
        return
    assert post.text.startswith(
        "I had an answer to this on 21 Nov at 10:00 UTC, but I could not post it here in time."
    )
    assert "the answer" not in post.text
    assert [choice.command for choice in post.choices] == ["/retry m1"]
    [story] = stories(FileReader(tmp_path), "m1")
    assert story.verdict == "It failed, and the thread was told so."
    told = [event.what for event in story.events if event.kind == "intent"]
    assert told[0] == 'reply: "the answer"'
    assert told[1].startswith('error, transport_unavailable: "I had an answer')


async def test_an_answer_that_is_out_after_all_is_only_settled_however_old_it_is(tmp_path):
    clock, platform = LoopClock(), Away()
    await answer_and_die(tmp_path, platform, clock)
    platform.away, clock.offset = False, HOURS
    platform.find = found
    await start(tmp_path, platform, clock)
    assert platform.posts == []
    assert platform.outcomes == {"m1": "answered"}


async def found(thread, key):
    return "p1"


async def test_where_nobody_can_say_whether_it_is_out_it_is_a_marked_repeat_and_no_second_outcome(tmp_path):
    clock, platform = LoopClock(), Away(looks=False)
    await answer_and_die(tmp_path, platform, clock)
    platform.away, clock.offset = False, HOURS
    await start(tmp_path, platform, clock)
    assert platform.texts == [f"the answer\n\n{MAYBE_REPEAT}"]
    assert platform.outcomes == {"m1": "answered"}


class Unsure(Away):
    """Cannot be asked until the first try to post is refused, which may be out. Then it can, and has nothing."""

    async def post(self, outgoing):
        if self.looks:
            return await super().post(outgoing)
        self.tries, self.looks = self.tries + 1, True
        raise TransportUnavailable("cut", maybe_posted=True)


async def test_an_old_answer_that_turns_out_not_to_be_posted_becomes_the_note(tmp_path):
    clock, platform = LoopClock(), Unsure()
    await answer_and_die(tmp_path, platform, clock)
    platform.away, platform.looks, clock.offset = False, False, HOURS
    async with running(tmp_path, platform, Scripted(), **impatient(platform, clock)):
        await anyio.sleep(60)
    [text] = platform.texts
    assert text.startswith("I had an answer to this on 21 Nov at 10:00 UTC, but I could not post it")
    assert platform.outcomes == {"m1": "failed"}


async def test_a_full_disk_before_the_note_delays_the_note_and_brings_no_old_answer(tmp_path, monkeypatch):
    clock, platform = LoopClock(), Away(looks=False)
    platform.back_at = anyio.current_time() + 700
    async with running(tmp_path, platform, Scripted(says("the answer")), **impatient(platform, clock)) as bot:
        append, refusals = bot.journal.append, [StoreUnavailable("journal: No space left on device")]

        async def refuse_first(*records):
            if refusals and isinstance(records[0], Intent):
                raise refusals.pop()
            await append(*records)

        monkeypatch.setattr(bot.journal, "append", refuse_first)
        await platform.exchange(bot, message())
        assert not refusals
    [text] = platform.texts
    assert text.startswith("I had an answer to this on 21 Nov at 10:00 UTC, but I could not post it")


async def test_a_death_before_the_note_is_posted_leaves_the_note_and_never_the_answer(tmp_path):
    clock, platform = LoopClock(), Away()
    await answer_and_die(tmp_path, platform, clock)
    clock.offset, tries = HOURS, platform.tries
    async with running(tmp_path, platform, Scripted(), clock=clock):
        platform.back_at = 1e9
        await platform.until(lambda: platform.tries > tries)  # the note is tried, and the process dies
    platform.away, clock.offset = False, 2 * HOURS
    await start(tmp_path, platform, clock)
    [text] = platform.texts
    assert text.startswith("I had an answer to this on 21 Nov at 10:00 UTC")
    assert platform.outcomes == {"m1": "failed"}


@pytest.mark.parametrize(
    ("away_s", "begins", "outcome"),
    [(700, "I had an answer to this", "failed"), (500, "the answer", "answered")],
)
async def test_a_link_that_stays_away_for_longer_than_an_answer_may_wait_gets_the_note(
    tmp_path, away_s, begins, outcome
):
    clock, platform = LoopClock(), Away()
    platform.back_at = anyio.current_time() + away_s
    async with running(tmp_path, platform, Scripted(says("the answer")), **impatient(platform, clock)) as bot:
        await platform.exchange(bot, message())
    [text] = platform.texts
    assert text.partition(" on 21 Nov at 10:00 UTC")[0] == begins
    assert platform.outcomes == {"m1": outcome}
