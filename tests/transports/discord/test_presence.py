"""The signs of work: there in a second, true while it goes on, gone when it ends."""

from __future__ import annotations

import logging
import math
from contextlib import asynccontextmanager
from itertools import pairwise

import anyio
import pytest

from tests.fakes.discord import CHANNEL, CHANNEL2, FORUM, GUILD, U1, U2, Cut, RateLimited, Refused, Status
from tests.sim.loop import virtual_time
from tests.transports.discord.virtual import (
    EDIT,
    OPEN,
    REACT,
    SEND,
    TYPING,
    UNREACT,
    VirtualRest,
    virtual_discord,
)
from threads.background import background_tasks
from threads.model import Resumed, Taken, TextDelta, ThreadId, ToolStarted, TurnSettled, TurnStarted, Waiting
from transports.discord.api.options import Options
from transports.discord.live.presence import EYES, OUTCOMES, Presence
from transports.discord.post.thread_opening import Destinations

anyio_backend = virtual_time


class PresenceCase:
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
        self.presence = Presence(self.rest, self.destinations, Options("", **self.options))
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
async def presence_case(**options):
    async with background_tasks() as tasks:
        case = PresenceCase(tasks, **options)
        yield case


async def test_a_sign_is_there_within_a_second_and_gone_after_the_answer():
    async with presence_case() as case:
        case.show(Taken("how?", "U1"), TurnStarted("how?", "U1"))
        await anyio.sleep(0.9)
        assert case.reactions() == [EYES]
        assert case.discord.typings == [case.question]
        case.show(TurnSettled("answered"))
        await anyio.sleep(0.4)
        assert case.reactions() == [EYES, "✅"]
        await anyio.sleep(5)
        assert case.reactions() == ["✅"]
        await anyio.sleep(10)
        inside, waits = (case.asks(case.question) for _ in range(2))
        case.show(Taken("and this?", "U1"), TurnStarted("and this?", "U1"), id=inside)
        case.show(Taken(), id=waits)
        await anyio.sleep(0.9)
        assert case.discord.typings == [case.question] * 2
        assert (case.reactions(inside), case.reactions(waits)) == ([], [EYES])
        case.show(TurnSettled("answered"), id=inside)
        await anyio.sleep(50)
        assert len(case.discord.typings) == 2
        assert case.reactions(inside) == ["✅"]
        assert not case.discord.limited


async def test_eyes_of_a_killed_process_go_also_where_typing_is_the_sign_now():
    async with presence_case() as case:
        await case.destinations.open(case.thread)
        inside = case.asks(case.question)
        case.discord.message(inside).reactions[EYES] = [case.rest.me.id]
        case.show(Taken(again=True), id=inside)
        await anyio.sleep(2)
        case.show(TurnSettled("answered"), id=inside)
        await anyio.sleep(5)
        assert case.reactions(inside) == ["✅"]


@pytest.mark.parametrize("outcome", sorted(OUTCOMES))
async def test_every_outcome_is_told_by_a_reaction(outcome):
    async with presence_case() as case:
        case.show(Taken(), TurnStarted())
        await anyio.sleep(3)
        case.show(TurnSettled(outcome))
        await anyio.sleep(5)
        assert case.reactions() == [OUTCOMES[outcome]]


async def test_of_what_is_wanted_one_after_the_other_only_the_newest_is_asked_for():
    async with presence_case(typing=False) as case:
        case.show(Taken(), TurnStarted(), TurnSettled("answered"))
        await anyio.sleep(5)
        assert case.reactions() == ["✅"]
        assert len(case.times(REACT, UNREACT)) == 1
        gate = case.discord.gate(REACT)
        other = case.asks()
        case.show(Taken(), id=other)
        await gate.reached()
        case.show(TurnSettled("merged"), id=other)
        gate.open()
        await anyio.sleep(5)
        assert case.reactions(other) == ["➕"]


async def test_what_is_withdrawn_gets_no_sign_any_more():
    async with presence_case() as case:
        case.show(Taken())
        await anyio.sleep(3)
        case.show(TurnSettled("withdrawn"))
        await anyio.sleep(5)
        assert len(case.times(REACT, UNREACT)) == 1


async def test_reactions_typing_and_drafts_can_be_switched_off():
    async with presence_case(reactions=False, typing=False, streaming="off") as case:
        case.show(Taken(), TurnStarted(), TextDelta("text\n\n"), ToolStarted("shell", label="running ls"))
        await anyio.sleep(10)
        assert case.presence.draft_of(case.thread, case.question) is None
        case.show(TurnSettled("failed"))
        await anyio.sleep(10)
        assert case.discord.calls == []


async def test_progress_is_what_the_setting_says():
    async with presence_case(streaming="progress", typing=False) as case:
        case.show(TurnStarted(), TextDelta("text\n\n"), ToolStarted("shell", label="running ls"))
        await anyio.sleep(3)
        [post] = case.discord.posts(case.question)
        assert post.content == "-# running ls…"


async def test_presses_and_slash_commands_get_no_reaction_and_a_channel_itself_no_draft():
    async with presence_case() as case:
        case.show(Taken(), TurnSettled("stopped"), id="press-17")
        channel = ThreadId("discord", GUILD, CHANNEL, "")
        case.show(TurnStarted("/status"), TextDelta("text\n\n"), id="slash-1", thread=channel)
        case.show(TurnSettled("answered"), id="slash-1", thread=channel)
        await anyio.sleep(10)
        assert case.discord.calls == []


async def test_a_reaction_goes_where_the_message_is():
    async with presence_case(typing=False) as case:
        case.show(Taken(), TurnStarted())
        await anyio.sleep(2)
        await case.destinations.open(case.thread)
        inside = case.asks(case.question)
        case.show(Taken(), id=inside)
        await anyio.sleep(2)
        assert (case.reactions(), case.reactions(inside)) == ([EYES], [EYES])
        assert all(call.status in (0, 200, 204) for call in case.discord.calls)
        direct = case.discord.dm(U2)
        private = case.asks(direct)
        case.show(Taken(), id=private, thread=ThreadId("discord", "@me", direct, direct))
        post = case.discord.post(U1, FORUM, "a post", "how?")
        [starter] = case.discord.messages(post.id)
        case.show(Taken(), id=starter.id, thread=ThreadId("discord", GUILD, FORUM, post.id))
        await anyio.sleep(3)
        assert case.reactions(private) == case.reactions(starter.id) == [EYES]


async def test_after_a_restart_a_message_of_a_reply_chain_is_looked_for_in_both_places():
    async with presence_case(typing=False) as case:
        case.restart()
        later = case.asks(reply_to=case.question)
        case.show(Taken(), id=later)
        await anyio.sleep(3)
        assert case.reactions(later) == [EYES]
        case.show(TurnSettled("answered"), id=later)
        await anyio.sleep(3)
        assert case.reactions(later) == ["✅"]
        assert len(case.times(REACT)) == 3


async def test_a_message_that_is_gone_is_looked_for_once_in_each_place_it_may_be_in():
    async with presence_case(typing=False) as case:
        direct = case.discord.dm(U2)
        for thread, tries in (
            (ThreadId("discord", "@me", direct, direct), 1),
            (ThreadId("discord", GUILD, CHANNEL, ""), 1),
            (case.thread, 2),
        ):
            before_it = len(case.times(REACT))
            case.show(Taken(), id=case.discord.snowflake(), thread=thread)
            await anyio.sleep(5)
            assert len(case.times(REACT)) - before_it == tries


@pytest.mark.parametrize("refused", [Refused(403, 50013), Refused(403, 90001)])
async def test_a_channel_that_takes_no_reactions_is_asked_once_an_hour(refused, caplog):
    async with presence_case(typing=False) as case:
        case.discord.fail(REACT, refused, forever=True, when=lambda call: call.channel == CHANNEL)
        for _ in range(5):
            later = case.asks()
            case.show(Taken(), TurnStarted(), TurnSettled("answered"), id=later, thread=case.thread_of(later))
            await anyio.sleep(3)
        assert len(case.times(REACT, UNREACT)) == 1
        elsewhere = case.asks(CHANNEL2)
        case.show(Taken(), id=elsewhere, thread=ThreadId("discord", GUILD, CHANNEL2, elsewhere))
        await anyio.sleep(3)
        assert case.reactions(elsewhere) == [EYES]
        assert len([line for line in caplog.records if line.levelno >= logging.WARNING]) == 1
        case.discord.heal(REACT)
        await anyio.sleep(3600)
        case.show(Taken())
        await anyio.sleep(3)
        assert case.reactions() == [EYES]


async def test_a_reaction_that_is_not_answered_is_tried_three_times():
    async with presence_case() as case:
        case.discord.fail(REACT, Cut(), RateLimited(5))
        case.show(Taken())
        await anyio.sleep(15)
        assert case.reactions() == [EYES]
        case.discord.fail(REACT, Status(500), forever=True)
        case.show(TurnSettled("answered"))
        await anyio.sleep(100)
        assert len(case.times(REACT)) == 6


async def test_eyes_that_an_earlier_process_left_are_taken_off():
    async with presence_case() as case:
        case.discord.message(case.question).reactions[EYES] = [case.rest.me.id]
        case.show(TurnSettled("failed", again=True))
        await anyio.sleep(5)
        assert case.reactions() == ["❌"]


async def test_eyes_that_nobody_put_on_are_not_taken_off():
    async with presence_case() as case:
        case.show(Taken(), TurnSettled("answered"))
        await anyio.sleep(5)
        assert case.reactions() == ["✅"]
        assert not case.times(UNREACT)


async def test_a_storm_of_messages_is_marked_at_the_channels_pace_and_what_is_kept_is_bounded():
    async with presence_case(typing=False) as case:
        asked = [case.asks() for _ in range(5_000)]
        for message_id in asked:
            case.show(Taken(), id=message_id, thread=case.thread_of(message_id))
        await anyio.sleep(60)
        times = case.times(REACT)
        assert 100 < len(times) < 60 / 0.25
        assert not case.discord.limited
        assert (case.reactions(asked[2_999]), case.reactions(asked[3_000])) == ([], [EYES])


async def test_typing_goes_on_every_eight_seconds_while_the_turn_runs():
    async with presence_case(reactions=False) as case:
        case.show(Taken())
        await anyio.sleep(60)
        times = case.times(TYPING)
        assert all(8 <= b - a < 9 for a, b in pairwise(times))
        assert 7 <= len(times) <= 8
        case.presence.posted(case.thread, case.question)
        await anyio.sleep(60)
        assert case.times(TYPING) == times


async def test_nobody_types_while_a_person_must_decide():
    async with presence_case(reactions=False, streaming="off") as case:
        case.show(Taken())
        await anyio.sleep(1)
        case.show(Waiting("rate limited", 20))
        await anyio.sleep(20)
        assert len(case.times(TYPING)) == 3
        case.show(Resumed(), Waiting("your decision", math.inf))
        await anyio.sleep(60)
        assert len(case.times(TYPING)) == 3
        case.show(Resumed())
        await anyio.sleep(1)
        assert len(case.times(TYPING)) == 4


async def test_nobody_types_once_the_growing_text_shows_the_work():
    async with presence_case(reactions=False) as case:
        case.show(Taken(), TurnStarted())
        await anyio.sleep(7.5)
        gate = case.discord.gate(TYPING)
        await gate.reached()
        case.show(TextDelta("a paragraph\n\n"))
        await anyio.sleep(1)
        assert case.times(SEND) == [], "the sign that is on its way would be shown after the text"
        gate.open()
        for _ in range(20):
            case.show(TextDelta("more "), Waiting("your decision", math.inf), Resumed())
            await anyio.sleep(1)
        assert len(case.times(TYPING)) == 2
        assert case.times(SEND)[0] > case.times(TYPING)[-1]
        later = case.asks(case.question)
        case.show(TurnSettled("answered"))
        case.show(Taken(), TurnStarted(), id=later)
        await anyio.sleep(1)
        assert len(case.times(TYPING)) == 3


async def test_no_sign_follows_an_answer():
    async with presence_case(reactions=False, streaming="off") as case:
        case.show(Taken(), TurnStarted())
        gate = case.discord.gate(TYPING)
        await gate.reached()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(case.presence.before_post, case.thread, case.question)
            await anyio.sleep(0.5)
            gate.open()
        await anyio.sleep(20)
        assert len(case.times(TYPING)) == 1


async def test_a_turn_right_after_another_one_is_typed_at_once():
    async with presence_case(reactions=False) as case:
        case.show(Taken())
        await anyio.sleep(2)
        case.show(TurnSettled("answered"))
        later = case.asks(case.question)
        case.show(Taken(), id=later)
        await anyio.sleep(1)
        assert len(case.times(TYPING)) == 2


async def test_typing_that_is_not_answered_does_not_pile_up_and_holds_nothing_up():
    async with presence_case(reactions=False) as case:
        gate = case.discord.gate(TYPING)
        case.show(Taken())
        await gate.reached()
        for _ in range(20):
            case.show(Waiting("your decision", math.inf), Resumed())
            await anyio.sleep(0.5)
        case.show(TextDelta("text\n\n"))
        await anyio.sleep(2)
        assert len(case.times(TYPING)) == 1
        assert len(case.discord.posts(case.question)) == 1
        gate.open()


async def test_typing_that_fails_is_told_once_and_goes_on(caplog):
    caplog.set_level(logging.INFO)
    async with presence_case(reactions=False) as case:
        case.discord.fail(TYPING, Cut(), RateLimited(1), Status(500), Cut())
        case.show(Taken())
        await anyio.sleep(60)
        assert len(case.discord.typings) >= 3
    assert len([line for line in caplog.records if "typing" in line.getMessage()]) == 1


async def test_typing_that_is_refused_is_not_asked_for_again_in_that_turn():
    async with presence_case(reactions=False) as case:
        case.discord.fail(TYPING, Refused(403, 50013), forever=True)
        case.show(Taken())
        await anyio.sleep(60)
        case.show(TextDelta("text\n\n"))
        await anyio.sleep(1)
        assert len(case.times(TYPING)) == 1
        assert len(case.discord.posts(case.question)) == 1


async def test_a_thread_that_cannot_be_opened_now_costs_no_sign_for_good():
    async with presence_case(reactions=False) as case:
        case.discord.fail(OPEN, Cut())
        case.show(Taken(), TurnStarted(), TextDelta("text\n\n"))
        await anyio.sleep(20)
        assert len(case.discord.posts(case.question)) == 1
        assert case.discord.typings


async def test_the_live_messages_of_a_thread_are_known_and_forgotten():
    async with presence_case() as case:
        case.show(TurnStarted(), TextDelta("text\n\n"))
        await anyio.sleep(3)
        [post] = case.discord.posts(case.question)
        assert case.presence.live_in(case.thread) == {post.id}
        assert case.presence.live_in(case.thread_of("1")) == frozenset()
        case.show(TurnSettled("stopped"))
        await anyio.sleep(3)
        assert case.presence.live_in(case.thread) == frozenset()
        [post] = case.discord.posts(case.question)
        assert post.content == "text\n-# stopped"


async def test_an_answer_that_was_handed_over_is_left_alone_by_its_settling():
    async with presence_case() as case:
        case.show(TurnStarted(), TextDelta("text\n\n"))
        await anyio.sleep(3)
        [message] = await case.presence.draft_of(case.thread, case.question).hand_over()
        await case.rest.edit(message.channel, message.id, "final")
        case.presence.posted(case.thread, case.question)
        calls = len(case.times(SEND, EDIT))
        case.show(TurnSettled("answered"))
        await anyio.sleep(30)
        assert len(case.times(SEND, EDIT)) == calls
        assert [post.content for post in case.discord.posts(case.question)] == ["final"]


async def test_many_running_turns_share_one_pace_and_leave_most_of_what_discord_takes_to_final_texts():
    async with presence_case() as case:
        for number in range(300):
            direct = case.discord.dm(case.discord.user(f"u{number}").id)
            thread = ThreadId("discord", "@me", direct, direct)
            case.show(Taken(), TurnStarted(), TextDelta("text\n\n"), id=case.asks(direct), thread=thread)
        await anyio.sleep(35)
        assert (len(case.times(SEND)), len(case.times(REACT))) == (300, 0)
        assert 10 < len(case.times(TYPING)) < 300
        await anyio.sleep(30)
        times = [call.at for call in case.discord.calls]
        assert max(sum(at <= other < at + 1 for other in times) for at in times[::20]) <= 21
        assert not case.discord.limited
