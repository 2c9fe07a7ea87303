"""A live answer: what people see of it while it grows, and what is left of it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from itertools import pairwise

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.discord import CHANNEL, GUILD, U1, Cut, RateLimited, Refused
from tests.sim.loop import virtual_time
from tests.transports.discord.virtual import DELETE, EDIT, SEND, VirtualRest, virtual_discord
from tests.transports.settling import beside
from threads.background import background_tasks
from threads.model import (
    Resumed,
    StagesChanged,
    StageShown,
    TextDelta,
    TextReset,
    ThreadId,
    ToolFinished,
    ToolStarted,
    TurnStarted,
    Waiting,
    message_key,
)
from transports.discord.live.draft import LiveDraft
from transports.discord.live.draft_content import MOST_MESSAGES, DraftContent
from transports.discord.live.pacing import CHANNEL_S, EVERY_S, Pace
from transports.discord.markdown.buttons import stop_mark
from transports.discord.markdown.render import MAX_CONTENT, utf16_size
from transports.discord.post.nonces import nonce_of
from transports.discord.post.thread_opening import Destinations

anyio_backend = virtual_time


class DraftCase:
    """A question in a direct message or a channel, and the draft of its answer."""

    def __init__(self, tasks, discord, place, mode):
        self.discord, self.place, self.mode = discord, place, mode
        self.rest = VirtualRest(discord, tasks)
        self.destinations, self.pace = Destinations(self.rest), Pace()
        self.draft = self.new()

    def new(self):
        said = self.discord.say(U1, self.place, "how?").id
        direct = self.place != CHANNEL
        thread = ThreadId("discord", "@me" if direct else GUILD, self.place, self.place if direct else said)
        self.channel = self.place if direct else said
        self.destinations.note_question(thread, "how?")
        self.key = message_key(thread, said)
        begin = anyio.lowlevel.checkpoint
        return LiveDraft(thread, said, self.rest, self.destinations, self.pace, self.mode, before_first=begin)

    def say(self, *deltas):
        for delta in deltas:
            self.draft.feed(TextDelta(delta))

    @property
    def posts(self):
        return self.discord.posts(self.channel)

    @property
    def texts(self):
        return [post.content for post in self.posts]

    @property
    def live_calls(self):
        return self.discord.calls_to(SEND, EDIT, DELETE)

    def agrees(self):
        """Each message of the draft shows what the draft says it shows."""
        shown = {post.id: post.content for post in self.posts}
        for message in self.draft.messages:
            if message.shown:
                assert shown[message.id] == message.shown


@asynccontextmanager
async def draft_case(place=CHANNEL, mode="edits", **more):
    discord = virtual_discord(**more)
    async with background_tasks() as tasks:
        case = DraftCase(tasks, discord, discord.dm(U1) if place == "dm" else place, mode)
        tasks.start_soon(case.draft.run)
        yield case


async def test_a_draft_opens_the_thread_and_shows_the_newest_text_no_faster_than_discord_likes():
    async with draft_case() as case:
        for number in range(200):
            case.say(f"w{number} ")
            await anyio.sleep(0.1)
        case.agrees()
        [message] = await case.draft.hand_over()
        [post] = case.posts
        assert message.channel == post.channel == case.channel
        assert "w190" in post.content
        assert post.buttons
        times = [call.at for call in case.live_calls]
        assert len(times) >= 10
        assert min(b - a for a, b in pairwise(times)) >= 1.1
        assert not case.discord.limited


async def test_the_first_message_waits_for_a_paragraph_or_a_moment():
    async with draft_case("dm") as case:
        case.say("Hm")
        await anyio.sleep(1.3)
        assert not case.posts
        await anyio.sleep(0.4)
        assert case.texts == ["Hm"]
    async with draft_case("dm") as case:
        case.say("A paragraph.\n\nAnd more")
        await anyio.sleep(0.3)
        assert case.texts == ["A paragraph.\n\nAnd more"]


async def test_every_message_of_a_draft_can_be_stopped_and_names_its_post_and_the_nonce_of_its_part():
    async with draft_case("dm") as case:
        case.say("word " * 1000)
        await anyio.sleep(10)
        assert len(case.posts) == 3
        for part, post in enumerate(case.posts):
            [(label, custom_id)] = post.buttons
            assert (label, stop_mark([custom_id])) == ("Stop", nonce_of(case.key))
            assert post.nonce == nonce_of(case.key, part)
            assert post.suppressed
        assert [bool(post.reply_to) for post in case.posts] == [True, False, False]
        case.agrees()


async def test_a_long_text_is_shown_in_five_messages_and_the_rest_costs_no_call():
    async with draft_case("dm") as case:
        for _ in range(100):
            case.say("word " * 1000)
        await anyio.sleep(30)
        assert len(case.posts) == 5
        calls = len(case.live_calls)
        case.say("more ")
        await anyio.sleep(30)
        assert len(case.live_calls) == calls


async def test_it_shows_the_step_at_hand_and_what_tools_do():
    async with draft_case("dm") as case:
        case.say("Let me look.\n\n")
        await anyio.sleep(3)
        case.draft.feed(ToolStarted("read_file", "notes.md", "c1", "reading notes.md"))
        await anyio.sleep(3)
        assert case.texts == ["Let me look.\n-# reading notes.md…"]
        case.draft.feed(ToolFinished("read_file", True, "c1"))
        case.say("It says four.")
        await anyio.sleep(3)
        assert case.texts == ["It says four."]
        case.draft.feed(TextReset())
        await anyio.sleep(3)
        assert case.texts == ["-# thinking…"]
        case.agrees()


async def test_a_tool_that_is_over_at_once_leaves_something_to_be_stopped():
    async with draft_case("dm") as case:
        case.draft.feed(ToolStarted("shell", "ls", "c1"))
        case.draft.feed(ToolFinished("shell", True, "c1"))
        await anyio.sleep(1)
        [post] = case.posts
        assert (post.content, len(post.buttons)) == ("-# thinking…", 1)


async def test_a_tool_or_a_wait_is_shown_at_once_and_a_wait_for_a_person_begins_nothing():
    async with draft_case("dm") as case:
        case.draft.feed(Waiting("your decision", float("inf")))
        await anyio.sleep(5)
        assert not case.posts
        case.draft.feed(Waiting("rate limited", 20, 2, 6))
        await anyio.sleep(0.3)
        assert case.texts == ["-# waiting: rate limited, trying again in 20 s, 2 of 6"]
        case.draft.feed(Resumed())
        case.draft.feed(ToolStarted("shell", "", "c1", "running ls <@1> @everyone"))
        await anyio.sleep(3)
        assert case.texts[0].startswith("-# running ls")
        assert not case.discord.pings


async def test_progress_shows_the_last_eight_tools_and_no_text():
    async with draft_case("dm", "progress") as case:
        case.say("Secret thoughts.\n\n" * 5)
        await anyio.sleep(5)
        assert not case.posts
        for number in range(10):
            case.draft.feed(ToolStarted("shell", "", f"c{number}", f"running step {number}"))
            case.draft.feed(ToolFinished("shell", number % 2 == 0, f"c{number}"))
        case.draft.feed(ToolStarted("read_file", "", "c99", "reading notes.md"))
        await anyio.sleep(3)
        lines = case.texts[0].split("\n")
        assert len(lines) == 8
        assert lines[-3:] == ["-# running step 8 ✓", "-# running step 9 ✗", "-# reading notes.md…"]
        await case.draft.close("stopped")
        assert case.posts == []


@pytest.mark.parametrize("mode", ["edits", "progress"])
async def test_the_stages_of_a_playbook_are_one_message_with_the_tool_that_runs_below(mode):
    async with draft_case("dm", mode) as case:
        case.draft.feed(
            StagesChanged("triage", (StageShown("assess", "running"), StageShown("plan", "waiting")))
        )
        await anyio.sleep(3)
        assert case.texts == ["triage\n▸ assess\n○ plan"]
        case.draft.feed(
            StagesChanged("triage", (StageShown("assess", "passed"), StageShown("plan", "running")))
        )
        case.draft.feed(ToolStarted("read_file", "", "c1", "reading notes.md"))
        await anyio.sleep(3)
        assert case.texts == ["triage\n✓ assess\n▸ plan\n-# reading notes.md…"]


async def test_all_drafts_of_a_channel_share_its_pace_and_all_channels_one():
    async with draft_case() as case, beside() as tasks:
        drafts = [case.draft]
        for _ in range(30):
            draft = case.new()
            drafts.append(draft)
            tasks.start_soon(draft.run)
        for _ in range(100):
            for draft in drafts:
                draft.feed(TextDelta("word "))
            await anyio.sleep(0.1)
        times = [call.at for call in case.live_calls]
        assert min(b - a for a, b in pairwise(times)) >= EVERY_S - 1e-6
        assert len(times) > 100
        assert not case.discord.limited
    pace, turns = Pace(), []

    async def edit():
        async with pace.turn_in("1"):
            turns.append(anyio.current_time())

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(edit)
    assert min(b - a for a, b in pairwise(turns)) >= CHANNEL_S - 1e-6


async def test_after_the_hand_over_no_call_goes_out_and_an_edit_on_its_way_is_not_waited_for():
    async with draft_case("dm") as case:
        case.say("first\n\n")
        await anyio.sleep(3)
        gate = case.discord.gate(EDIT)
        case.say("second ")
        await gate.reached()
        before = anyio.current_time()
        [message] = await case.draft.hand_over()
        assert anyio.current_time() == before
        assert message.shown == ""
        final = []

        async def write_over():
            await case.rest.edit(message.channel, message.id, "final")
            final.append(1)

        async with beside(write_over):
            await anyio.sleep(1)
            assert not final
            gate.open()
            await anyio.sleep(1)
            assert final
        case.say("third ")
        await anyio.sleep(100)
        assert case.texts == ["final"]
        assert [call.content for call in case.live_calls] == ["first", "first\n\nsecond", "final"]


async def test_a_message_on_its_way_is_waited_for_and_its_id_is_known_then():
    async with draft_case("dm") as case:
        gate = case.discord.gate(SEND)
        case.say("first\n\n")
        await gate.reached()
        handed = []

        async def hand_over():
            handed.extend(await case.draft.hand_over())

        async with beside(hand_over):
            await anyio.sleep(1)
            assert not handed
            gate.open()
            await anyio.sleep(1)
        assert [message.shown for message in handed] == case.texts == ["first"]
        assert not case.draft.lost


async def test_a_message_that_is_never_answered_holds_the_final_text_up_for_ten_seconds_and_is_lost():
    async with draft_case("dm") as case:
        gate = case.discord.gate(SEND)
        case.say("first\n\n")
        await gate.reached()
        before = anyio.current_time()
        assert await case.draft.hand_over() == ()
        assert anyio.current_time() - before == pytest.approx(10)
        assert case.draft.lost
        gate.open()


async def test_who_waits_in_line_is_handed_over_at_once():
    async with draft_case("dm") as case, case.pace.turn_in(case.channel):
        case.say("text\n\n")
        await anyio.sleep(5)
        before = anyio.current_time()
        assert await case.draft.hand_over() == ()
        assert anyio.current_time() == before
        assert not case.live_calls


@pytest.mark.parametrize("applied", [True, False])
async def test_a_message_whose_answer_is_lost_is_sent_again_and_is_one(applied):
    async with draft_case("dm") as case:
        case.discord.fail(SEND, Cut(applied=applied))
        case.say("one\n\n")
        await anyio.sleep(0.5)
        assert case.draft.lost
        case.say("two ")
        await anyio.sleep(10)
        assert case.texts == ["one\n\ntwo"]
        case.agrees()
        assert not case.draft.lost
        assert len(await case.draft.hand_over()) == 1


@pytest.mark.parametrize("applied", [True, False])
async def test_an_edit_whose_answer_is_lost_is_not_sure_and_is_made_again(applied):
    async with draft_case("dm") as case:
        case.say("one\n\n")
        await anyio.sleep(3)
        case.discord.fail(EDIT, Cut(applied=applied))
        case.say("two")
        await anyio.sleep(1)
        assert [message.shown for message in case.draft.messages] == [""]
        await anyio.sleep(10)
        assert case.texts == [message.shown for message in case.draft.messages] == ["one\n\ntwo"]


async def test_a_rate_limit_is_respected_and_loses_nothing():
    async with draft_case("dm") as case:
        case.discord.fail(SEND, RateLimited(5))
        case.say("one ")
        await anyio.sleep(3)
        case.say("two ")
        await anyio.sleep(3)
        assert len(case.live_calls) == 1
        await anyio.sleep(10)
        assert case.texts == ["one two"]


@pytest.mark.parametrize(
    "refused",
    [Refused(403, 50013), Refused(403, 50083), Refused(404, 10003), Refused(400, 50035), Refused(403, 50007)],
)
async def test_a_refused_message_mutes_the_draft_and_nothing_else(refused):
    async with draft_case("dm") as case:
        case.discord.fail(SEND, refused)
        case.say("one\n\n")
        await anyio.sleep(5)
        case.say("two\n\n")
        await anyio.sleep(50)
        assert len(case.live_calls) == 1
        assert await case.draft.hand_over() == ()
        assert not case.draft.lost


async def test_a_refused_edit_leaves_what_is_there_to_the_final_text():
    async with draft_case("dm") as case:
        case.say("one\n\n")
        await anyio.sleep(3)
        case.discord.fail(EDIT, Refused(403, 50013))
        case.say("two\n\n")
        await anyio.sleep(50)
        assert len(case.live_calls) == 2
        assert [message.shown for message in await case.draft.hand_over()] == ["one"]


async def test_no_message_is_edited_that_is_almost_an_hour_old_a_fresh_one_takes_over():
    async with draft_case("dm", nonce_lasts=300) as case:
        case.say("word " * 500)
        await anyio.sleep(5)
        first = [post.id for post in case.posts]
        assert len(first) == 2
        case.draft.feed(ToolStarted("shell", "make", "c1"))
        await anyio.sleep(55 * 60)
        case.draft.feed(ToolFinished("shell", True, "c1"))
        case.say("All is made.\n\n")
        await anyio.sleep(10)
        [post] = case.posts
        assert post.id not in first
        assert case.texts == ["All is made."]
        assert [message.id for message in await case.draft.hand_over()] == [post.id]


async def test_a_message_that_is_called_too_old_is_given_up_for_a_fresh_one():
    async with draft_case("dm", nonce_lasts=1) as case:
        case.say("one\n\n")
        await anyio.sleep(3)
        [old] = case.posts
        case.discord.fail(EDIT, Refused(400, 30046))
        case.say("two")
        await anyio.sleep(10)
        [fresh] = case.posts
        assert fresh is not old
        case.say(" three")
        await anyio.sleep(10)
        assert case.texts == ["one\n\ntwo three"]
        assert case.posts == [fresh]


async def test_a_stopped_answer_stays_without_its_button_and_with_a_word():
    async with draft_case("dm") as case:
        case.say("one two\n\n```\ncode ")
        await anyio.sleep(5)
        case.draft.feed(ToolStarted("shell", "ls", "c1"))
        await anyio.sleep(5)
        await case.draft.close("stopped")
        [post] = case.posts
        assert post.content == "one two\n\n```\ncode \n```\n-# stopped"
        assert post.buttons == []
        calls = len(case.live_calls)
        case.say("three\n\n")
        await anyio.sleep(50)
        assert len(case.live_calls) == calls


async def test_of_several_messages_the_last_one_says_that_it_was_stopped():
    async with draft_case("dm") as case:
        case.say("word " * 500)
        await anyio.sleep(8)
        await case.draft.close("stopped")
        first, last = case.posts
        assert first.content.endswith("word")
        assert last.content.endswith("\n-# stopped")
        assert (first.buttons, last.buttons) == ([], [])


async def test_a_draft_that_says_nothing_is_deleted():
    async with draft_case("dm") as case:
        case.draft.feed(ToolStarted("shell", "ls", "c1"))
        await anyio.sleep(5)
        assert len(case.posts) == 1
        await case.draft.close("undelivered")
        assert case.posts == []


async def test_an_end_that_is_not_answered_is_made_again():
    async with draft_case("dm") as case:
        case.say("one\n\n")
        await anyio.sleep(5)
        case.discord.fail(EDIT, Cut(), RateLimited(3))
        await case.draft.close("failed")
        [post] = case.posts
        assert (post.content, post.buttons) == ("one\n-# not finished", [])


async def test_where_no_thread_can_be_opened_the_draft_replies_in_place():
    async with draft_case() as case:
        case.discord.deny(CHANNEL, "CREATE_PUBLIC_THREADS")
        question, case.channel = case.channel, CHANNEL
        case.say("word " * 500)
        await anyio.sleep(8)
        assert [post.reply_to for post in case.posts] == [question] * 2
        assert not case.discord.pings


# the pure part

EVENTS = st.one_of(
    st.text(alphabet="ab \n`|-#😀", max_size=300).map(lambda text: TextDelta(text * 20)),
    st.builds(
        ToolStarted, st.sampled_from(["shell", "x"]), st.text(max_size=200), st.sampled_from(["", "1", "2"])
    ),
    st.builds(ToolFinished, st.sampled_from(["shell", "x"]), st.booleans(), st.sampled_from(["", "1", "2"])),
    st.builds(Waiting, st.text(max_size=100), st.floats(0, 100)),
    st.sampled_from([TextReset(), TurnStarted(), Resumed()]),
)


def test_a_draft_takes_no_more_text_than_it_shows():
    content = DraftContent("edits")
    assert content.feed(TextDelta("word " * 4_000), 0.0)
    assert not content.feed(TextDelta("more"), 0.0)


@settings(max_examples=60, deadline=None)
@given(st.lists(EVENTS, max_size=20), st.sampled_from(["edits", "progress"]))
def test_whatever_goes_on_every_page_is_a_message_that_discord_takes(events, mode):
    content = DraftContent(mode)
    for now, event in enumerate(events):
        content.feed(event, float(now))
        assert len(content.pages) <= MOST_MESSAGES
        for page in content.pages:
            assert page.content.strip()
            assert utf16_size(page.content) <= MAX_CONTENT
