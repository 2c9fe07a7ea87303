"""The signs of work: there in a second, true while it goes on, gone when it ends."""

from __future__ import annotations

import logging
import math
from contextlib import asynccontextmanager
from itertools import pairwise

import anyio
import pytest

from tests.fakes.discord import CHANNEL, CHANNEL2, FORUM, GUILD, U1, U2, Cut, RateLimited, Refused, Status
from tests.transports.discord.virtual import (
    BACKEND,
    EDIT,
    OPEN,
    REACT,
    SEND,
    TYPING,
    UNREACT,
    VirtualRest,
    virtual_discord,
)
from threads.model import (
    Resumed,
    Taken,
    TextDelta,
    ThreadId,
    ToolStarted,
    TurnSettled,
    TurnStarted,
    Waiting,
)
from transports.discord.live.presence import EYES, OUTCOMES, Presence
from transports.discord.post.thread_opening import Destinations

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return BACKEND


class Scene:
    """A question in a channel, or a direct message, and the signs of it."""

    def __init__(self, tasks, place="", **options):
        self.discord = virtual_discord()
        self.rest, self.tasks, self.options = VirtualRest(self.discord, tasks), tasks, options
        self.restart()
        self.place = place or CHANNEL
        self.question = self.asks()
        self.thread = self.thread_of(self.question)

    def restart(self):
        """A new process: nothing is remembered."""
        self.destinations = Destinations(self.rest)
        self.presence = Presence(self.rest, self.destinations, **self.options)
        self.tasks.start_soon(self.presence.run)

    def asks(self, place="", **more):
        return self.discord.say(U1, place or self.place, "how?", **more).id

    def thread_of(self, message_id):
        thread = ThreadId("discord", GUILD, self.place, message_id)
        self.destinations.note_question(thread, "how?")
        return thread

    def show(self, *events, id="", thread=None):
        for event in events:
            self.presence.show(thread or self.thread, id or self.question, event)

    def reactions(self, id=""):
        return list(self.discord.message(id or self.question).reactions)

    def times(self, *routes):
        return [call.at for call in self.discord.calls_to(*routes)]


@asynccontextmanager
async def scene(**options):
    async with anyio.create_task_group() as tasks:
        there = Scene(tasks, **options)
        yield there
        tasks.cancel_scope.cancel()


async def test_a_sign_is_there_within_a_second_and_gone_after_the_answer():
    async with scene() as there:
        there.show(Taken("how?", "U1"), TurnStarted("how?", "U1"))
        await anyio.sleep(0.9)
        assert there.reactions() == [EYES]
        assert there.discord.typings == [there.question]
        there.show(TurnSettled("answered"))
        await anyio.sleep(0.15)
        assert there.reactions() == [EYES, "✅"]
        await anyio.sleep(5)
        assert there.reactions() == ["✅"]
        await anyio.sleep(50)
        assert len(there.discord.typings) == 1
        assert not there.discord.limited


@pytest.mark.parametrize("outcome", sorted(OUTCOMES))
async def test_every_outcome_is_told_by_a_reaction(outcome):
    async with scene() as there:
        there.show(Taken(), TurnStarted())
        await anyio.sleep(3)
        there.show(TurnSettled(outcome))
        await anyio.sleep(5)
        assert there.reactions() == [OUTCOMES[outcome]]


async def test_of_what_is_wanted_one_after_the_other_only_the_newest_is_asked_for():
    async with scene() as there:
        there.show(Taken(), TurnStarted(), TurnSettled("answered"))
        await anyio.sleep(5)
        assert there.reactions() == ["✅"]
        assert len(there.times(REACT, UNREACT)) == 1
        gate = there.discord.gate(REACT)
        other = there.asks()
        there.show(Taken(), id=other)
        await gate.reached()
        there.show(TurnSettled("merged"), id=other)
        gate.open()
        await anyio.sleep(5)
        assert there.reactions(other) == ["➕"]


async def test_what_is_withdrawn_gets_no_sign_any_more():
    async with scene() as there:
        there.show(Taken())
        await anyio.sleep(3)
        there.show(TurnSettled("withdrawn"))
        await anyio.sleep(5)
        assert len(there.times(REACT, UNREACT)) == 1


async def test_reactions_typing_and_drafts_can_be_switched_off():
    async with scene(reactions=False, typing=False, streaming="off") as there:
        there.show(Taken(), TurnStarted(), TextDelta("text\n\n"), ToolStarted("shell", label="running ls"))
        await anyio.sleep(10)
        assert there.presence.draft_of(there.thread, there.question) is None
        there.show(TurnSettled("failed"))
        await anyio.sleep(10)
        assert there.discord.calls == []


async def test_progress_is_what_the_setting_says():
    async with scene(streaming="progress", typing=False) as there:
        there.show(TurnStarted(), TextDelta("text\n\n"), ToolStarted("shell", label="running ls"))
        await anyio.sleep(3)
        [post] = there.discord.posts(there.question)
        assert post.content == "-# running ls…"


async def test_presses_and_slash_commands_get_no_reaction_and_a_channel_itself_no_draft():
    async with scene() as there:
        there.show(Taken(), TurnSettled("stopped"), id="press-17")
        channel = ThreadId("discord", GUILD, CHANNEL, "")
        there.show(TurnStarted("/status"), TextDelta("text\n\n"), id="slash-1", thread=channel)
        there.show(TurnSettled("answered"), id="slash-1", thread=channel)
        await anyio.sleep(10)
        assert there.discord.calls == []


async def test_a_reaction_goes_where_the_message_is():
    async with scene() as there:
        there.show(Taken(), TurnStarted())
        await anyio.sleep(2)
        inside = there.asks(there.question)
        there.show(Taken(), id=inside)
        await anyio.sleep(2)
        assert (there.reactions(), there.reactions(inside)) == ([EYES], [EYES])
        assert all(call.status in (0, 200, 204) for call in there.discord.calls)
        direct = there.discord.dm(U2)
        private = there.asks(direct)
        there.show(Taken(), id=private, thread=ThreadId("discord", "@me", direct, direct))
        post = there.discord.post(U1, FORUM, "a post", "how?")
        [starter] = there.discord.messages(post.id)
        there.show(Taken(), id=starter.id, thread=ThreadId("discord", GUILD, FORUM, post.id))
        await anyio.sleep(3)
        assert there.reactions(private) == there.reactions(starter.id) == [EYES]


async def test_after_a_restart_a_message_of_a_reply_chain_is_looked_for_in_both_places():
    async with scene() as there:
        there.restart()
        later = there.asks(reply_to=there.question)
        there.show(Taken(), id=later)
        await anyio.sleep(3)
        assert there.reactions(later) == [EYES]
        there.show(TurnSettled("answered"), id=later)
        await anyio.sleep(3)
        assert there.reactions(later) == ["✅"]
        assert len(there.times(REACT)) == 3


async def test_a_message_that_is_gone_is_looked_for_once_in_each_place_it_may_be_in():
    async with scene() as there:
        direct = there.discord.dm(U2)
        for thread, tries in (
            (ThreadId("discord", "@me", direct, direct), 1),
            (ThreadId("discord", GUILD, CHANNEL, ""), 1),
            (there.thread, 2),
        ):
            before_it = len(there.times(REACT))
            there.show(Taken(), id=there.discord.snowflake(), thread=thread)
            await anyio.sleep(5)
            assert len(there.times(REACT)) - before_it == tries


@pytest.mark.parametrize("refused", [Refused(403, 50013), Refused(403, 90001)])
async def test_a_channel_that_takes_no_reactions_is_asked_once_an_hour(refused, caplog):
    async with scene(typing=False) as there:
        there.discord.fail(REACT, refused, forever=True, when=lambda call: call.channel == CHANNEL)
        for _ in range(5):
            later = there.asks()
            there.show(
                Taken(), TurnStarted(), TurnSettled("answered"), id=later, thread=there.thread_of(later)
            )
            await anyio.sleep(3)
        assert len(there.times(REACT, UNREACT)) == 1
        elsewhere = there.asks(CHANNEL2)
        there.show(Taken(), id=elsewhere, thread=ThreadId("discord", GUILD, CHANNEL2, elsewhere))
        await anyio.sleep(3)
        assert there.reactions(elsewhere) == [EYES]
        assert len([line for line in caplog.records if line.levelno >= logging.WARNING]) == 1
        there.discord.heal(REACT)
        await anyio.sleep(3600)
        there.show(Taken())
        await anyio.sleep(3)
        assert there.reactions() == [EYES]


async def test_a_reaction_that_is_not_answered_is_tried_three_times():
    async with scene() as there:
        there.discord.fail(REACT, Cut(), RateLimited(5))
        there.show(Taken())
        await anyio.sleep(15)
        assert there.reactions() == [EYES]
        there.discord.fail(REACT, Status(500), forever=True)
        there.show(TurnSettled("answered"))
        await anyio.sleep(100)
        assert len(there.times(REACT)) == 6


async def test_eyes_that_an_earlier_process_left_are_taken_off():
    async with scene() as there:
        there.discord.message(there.question).reactions[EYES] = [there.rest.me.id]
        there.show(TurnSettled("failed", again=True))
        await anyio.sleep(5)
        assert there.reactions() == ["❌"]


async def test_eyes_that_nobody_put_on_are_not_taken_off():
    async with scene() as there:
        there.show(Taken(), TurnSettled("answered"))
        await anyio.sleep(5)
        assert there.reactions() == ["✅"]
        assert not there.times(UNREACT)


async def test_a_storm_of_messages_is_marked_at_the_channels_pace_and_what_is_kept_is_bounded():
    async with scene(typing=False) as there:
        asked = [there.asks() for _ in range(5_000)]
        for message_id in asked:
            there.show(Taken(), id=message_id, thread=there.thread_of(message_id))
        await anyio.sleep(60)
        times = there.times(REACT)
        assert 100 < len(times) < 60 / 0.25
        assert not there.discord.limited
        assert (there.reactions(asked[2_999]), there.reactions(asked[3_000])) == ([], [EYES])


async def test_typing_goes_on_every_eight_seconds_while_the_turn_runs():
    async with scene(reactions=False) as there:
        there.show(TurnStarted())
        await anyio.sleep(60)
        times = there.times(TYPING)
        assert all(8 <= b - a < 9 for a, b in pairwise(times))
        assert 7 <= len(times) <= 8
        there.presence.posted(there.thread, there.question)
        await anyio.sleep(60)
        assert there.times(TYPING) == times


async def test_nobody_types_while_a_person_must_decide():
    async with scene(reactions=False) as there:
        there.show(TurnStarted())
        await anyio.sleep(1)
        there.show(Waiting("rate limited", 20))
        await anyio.sleep(20)
        assert len(there.times(TYPING)) == 3
        there.show(Resumed(), Waiting("your decision", math.inf))
        await anyio.sleep(60)
        assert len(there.times(TYPING)) == 3
        there.show(Resumed())
        await anyio.sleep(1)
        assert len(there.times(TYPING)) == 4


async def test_a_turn_right_after_another_one_is_typed_at_once():
    async with scene(reactions=False) as there:
        there.show(TurnStarted())
        await anyio.sleep(2)
        there.show(TurnSettled("answered"))
        later = there.asks(there.question)
        there.show(TurnStarted(), id=later)
        await anyio.sleep(1)
        assert len(there.times(TYPING)) == 2


async def test_typing_that_is_not_answered_does_not_pile_up_and_holds_nothing_up():
    async with scene(reactions=False) as there:
        gate = there.discord.gate(TYPING)
        there.show(TurnStarted())
        await gate.reached()
        for _ in range(20):
            there.show(Waiting("your decision", math.inf), Resumed())
            await anyio.sleep(0.5)
        there.show(TextDelta("text\n\n"))
        await anyio.sleep(2)
        assert len(there.times(TYPING)) == 1
        assert len(there.discord.posts(there.question)) == 1
        gate.open()


async def test_typing_that_fails_is_told_once_and_goes_on(caplog):
    caplog.set_level(logging.INFO)
    async with scene(reactions=False) as there:
        there.discord.fail(TYPING, Cut(), RateLimited(1), Status(500), Cut())
        there.show(TurnStarted())
        await anyio.sleep(60)
        assert len(there.discord.typings) >= 3
    assert len([line for line in caplog.records if "typing" in line.getMessage()]) == 1


async def test_typing_that_is_refused_is_not_asked_for_again_in_that_turn():
    async with scene(reactions=False) as there:
        there.discord.fail(TYPING, Refused(403, 50013), forever=True)
        there.show(TurnStarted(), TextDelta("text\n\n"))
        await anyio.sleep(60)
        assert len(there.times(TYPING)) == 1
        assert len(there.discord.posts(there.question)) == 1


async def test_a_thread_that_cannot_be_opened_now_costs_no_sign_for_good():
    async with scene() as there:
        there.discord.fail(OPEN, Cut())
        there.show(Taken(), TurnStarted(), TextDelta("text\n\n"))
        await anyio.sleep(20)
        assert there.reactions() == [EYES]
        assert len(there.discord.posts(there.question)) == 1
        assert there.discord.typings


async def test_the_live_messages_of_a_thread_are_known_and_forgotten():
    async with scene() as there:
        there.show(TurnStarted(), TextDelta("text\n\n"))
        await anyio.sleep(3)
        [post] = there.discord.posts(there.question)
        assert there.presence.live_in(there.thread) == {post.id}
        assert there.presence.live_in(there.thread_of("1")) == frozenset()
        there.show(TurnSettled("stopped"))
        await anyio.sleep(3)
        assert there.presence.live_in(there.thread) == frozenset()
        [post] = there.discord.posts(there.question)
        assert post.content == "text\n-# stopped"


async def test_an_answer_that_was_handed_over_is_left_alone_by_its_settling():
    async with scene() as there:
        there.show(TurnStarted(), TextDelta("text\n\n"))
        await anyio.sleep(3)
        [message] = await there.presence.draft_of(there.thread, there.question).hand_over()
        await there.rest.edit(message.channel, message.id, "final")
        there.presence.posted(there.thread, there.question)
        calls = len(there.times(SEND, EDIT))
        there.show(TurnSettled("answered"))
        await anyio.sleep(30)
        assert len(there.times(SEND, EDIT)) == calls
        assert [post.content for post in there.discord.posts(there.question)] == ["final"]


async def test_many_running_turns_share_one_pace_and_leave_most_of_what_discord_takes_to_final_texts():
    async with scene() as there:
        for number in range(300):
            direct = there.discord.dm(there.discord.user(f"u{number}").id)
            thread = ThreadId("discord", "@me", direct, direct)
            there.show(Taken(), TurnStarted(), TextDelta("text\n\n"), id=there.asks(direct), thread=thread)
        await anyio.sleep(35)
        assert len(there.times(SEND)) == len(there.times(REACT)) == 300
        assert 10 < len(there.times(TYPING)) < 100
        await anyio.sleep(30)
        times = [call.at for call in there.discord.calls]
        assert max(sum(at <= other < at + 1 for other in times) for at in times[::20]) <= 21
        assert not there.discord.limited
