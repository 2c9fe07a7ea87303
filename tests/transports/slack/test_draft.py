"""A live answer: what people see of it while it grows, and what is left of it."""

from __future__ import annotations

from contextlib import asynccontextmanager

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.slack import ApiError, Cut, Message, RateLimited
from tests.sim.loop import virtual_time
from tests.transports.settling import beside
from tests.transports.slack.virtual import VirtualWeb, count_calls, virtual_slack
from threads.model import StagesChanged, StageShown, TextDelta, TextReset, ThreadId, ToolFinished, ToolStarted
from transports.slack.live.draft import LiveDraft, LiveDrafts
from transports.slack.live.draft_content import UnsentContent, cut
from transports.slack.live.native_stream import ROTATE_BYTES
from transports.slack.markdown.escape import safe
from transports.slack.markdown.links import Links
from transports.slack.markdown.open_fences import TABLE_FOLLOWS, Fences, TableHold

anyio_backend = virtual_time


class Chat:
    """A question in a channel, and the draft of its answer."""

    def __init__(self, channel="D1", **more):
        self.slack = virtual_slack(**more)
        self.channel = channel
        self.shared = LiveDrafts(VirtualWeb(self.slack))
        self.root = self.slack.put(Message(channel, self.slack.next_ts(), "how?", user="U1")).ts
        self.draft = self.new()

    def new(self):
        thread = ThreadId("slack", "T1", self.channel, self.root)
        return LiveDraft(thread, self.shared, Links(frozenset({"ok.example"})), to="U1")

    def say(self, *deltas):
        for delta in deltas:
            self.draft.feed(TextDelta(delta))

    async def write(self, delta, *, seconds):
        """Let the model write, and so many seconds go by."""
        await self.feed(TextDelta(delta), seconds=seconds)

    async def feed(self, event, *, seconds):
        self.draft.feed(event)
        await anyio.sleep(seconds)

    @property
    def posts(self):
        return self.slack.posts(self.channel)

    @property
    def texts(self):
        return [post.text for post in self.posts]

    def agrees(self):
        """Each message of the draft shows what the draft says it shows."""
        shown = {post.ts: post.text for post in self.posts}
        for message in self.draft.messages:
            if message.shown:
                assert shown[message.id] == message.shown


@asynccontextmanager
async def drafting(channel="D1"):
    """A chat while its draft runs."""
    chat = Chat(channel)
    async with beside(chat.draft.run):
        yield chat


async def test_a_direct_message_is_streamed_and_handed_over_open():
    async with drafting() as chat:
        for word in ("one", "two", "three", "four"):
            await chat.write(word + " ", seconds=1)
        messages = await chat.draft.hand_over()
        await chat.write("never shown ", seconds=60)
    [post] = chat.posts
    assert [message.open for message in messages] == [True]
    assert messages[0].shown == post.text
    assert post.text.startswith("one two three")
    assert post.stream.state == "streaming"
    assert post.stream.recipient == "U1"


async def test_after_the_hand_over_no_call_goes_out_and_the_one_on_its_way_is_waited_for():
    chat = Chat()
    gate = chat.slack.gate("chat.appendStream")
    async with beside(chat.draft.run) as tasks:
        await chat.write("first ", seconds=2)
        chat.say("second ")
        await gate.reached()
        handed = []

        async def hand_over():
            handed.append(await chat.draft.hand_over())

        tasks.start_soon(hand_over)
        await anyio.sleep(1)
        assert not handed
        gate.open()
        await anyio.sleep(1)
        calls = len(chat.slack.calls)
        await chat.write("third ", seconds=100)
        assert len(chat.slack.calls) == calls
    assert handed[0][0].shown == chat.posts[0].text == "first second "


async def test_a_call_that_never_ends_holds_the_final_text_up_for_ten_seconds_and_is_of_unknown_effect():
    chat = Chat()
    chat.slack.gate("chat.appendStream")
    async with beside(chat.draft.run):
        await chat.write("first ", seconds=2)
        await chat.write("second ", seconds=2)
        before = anyio.current_time()
        [message] = await chat.draft.hand_over()
        assert anyio.current_time() - before == pytest.approx(10)
    assert (message.open, message.shown) == (True, "")


async def test_who_waits_in_line_is_handed_over_at_once():
    chat = Chat()
    for _ in range(5):
        await chat.shared.web.limits.take("chat.startStream")
    async with beside(chat.draft.run):
        await chat.write("text ", seconds=0.5)
        before = anyio.current_time()
        assert await chat.draft.hand_over() == ()
        assert anyio.current_time() == before


async def test_a_stream_is_rotated_before_slack_ends_it():
    chat = Chat()
    said = ""
    async with beside(chat.draft.run):
        for number in range(400):
            chat.say(word := f"word{number} ")
            said += word
            await anyio.sleep(2)
        chat.agrees()
        await chat.draft.hand_over()
    assert len(chat.posts) == 4
    assert "".join(chat.texts).startswith(said[:-40])
    assert [post.stream.state for post in chat.posts] == ["stopped"] * 3 + ["streaming"]
    assert not [call for call in chat.slack.calls if call.error]


async def test_a_stream_is_rotated_before_it_is_full_and_its_code_block_goes_on():
    async with drafting() as chat:
        await chat.write("Here:\n```python\n" + "print('line of code')\n" * 900, seconds=20)
        chat.agrees()
        await chat.draft.hand_over()
    assert len(chat.posts) == 3
    for post in chat.posts:
        assert len(post.text.encode()) <= ROTATE_BYTES + 100
    for post in chat.posts[:2]:
        assert post.text.rstrip().endswith("```")
        assert post.text.count("```") == 2
    for post in chat.posts[1:]:
        assert post.text.startswith("```python\nprint(")


async def test_a_word_that_fills_a_message_is_not_cut():
    async with drafting() as chat:
        await chat.write("x" * 30_000 + " and so on", seconds=30)
        assert await chat.draft.hand_over() == ()


@pytest.mark.parametrize("code", ["message_not_in_streaming_state", "msg_too_long"])
async def test_a_stream_that_slack_ended_goes_on_in_another(code):
    async with drafting() as chat:
        await chat.write("one ", seconds=2)
        chat.slack.fail("chat.appendStream", ApiError(code))
        await chat.write("two ", seconds=10)
        chat.agrees()
        messages = await chat.draft.hand_over()
    assert [message.shown for message in messages] == ["one ", "two "]
    assert [message.open for message in messages] == [False, True]


async def test_a_stream_that_a_person_stopped_is_left_alone():
    async with drafting() as chat:
        await chat.write("one ", seconds=2)
        chat.posts[0].stream.state = "stopped_by_user"
        await chat.write("two ", seconds=5)
        calls = len(chat.slack.calls)
        await chat.write("three ", seconds=50)
        assert len(chat.slack.calls) == calls
        assert [message.open for message in await chat.draft.hand_over()] == [False]


async def test_a_first_message_whose_answer_is_lost_is_not_sent_again():
    async with drafting() as chat:
        chat.slack.fail("chat.startStream", Cut(applied=True))
        await chat.write("one\n\n", seconds=5)
        await chat.write("two ", seconds=30)
        assert await chat.draft.hand_over() == ()
        assert chat.draft.lost
    assert count_calls(chat.slack) == {"chat.startStream": 1}


@pytest.mark.parametrize("applied", [True, False])
async def test_an_append_whose_answer_is_lost_is_not_made_again(applied):
    async with drafting() as chat:
        await chat.write("one ", seconds=2)
        chat.slack.fail("chat.appendStream", Cut(applied=applied))
        await chat.write("two ", seconds=5)
        await chat.write("three ", seconds=5)
        messages = await chat.draft.hand_over()
    assert "".join(chat.texts).count("two") == applied
    assert [(m.open, m.shown) for m in messages] == [(False, ""), (True, "three ")]


async def test_a_rate_limit_loses_nothing():
    chat = Chat()
    chat.slack.fail("chat.startStream", RateLimited(5))
    async with beside(chat.draft.run):
        await chat.write("one ", seconds=2)
        await chat.write("two ", seconds=20)
    assert chat.texts == ["one two "]


async def test_text_that_is_taken_back_leaves_the_stream_as_one_to_be_written_over():
    async with drafting() as chat:
        await chat.write("wrong ", seconds=2)
        chat.draft.feed(TextReset())
        await chat.write("right ", seconds=5)
        messages = await chat.draft.hand_over()
    assert [(m.open, m.shown) for m in messages] == [(False, "wrong "), (True, "right ")]


async def test_text_that_was_not_shown_yet_is_taken_back_without_a_trace():
    async with drafting() as chat:
        chat.say("wrong ")
        chat.draft.feed(TextReset())
        await chat.write("right ", seconds=5)
    assert chat.texts == ["right "]


async def test_tools_have_cards_that_end():
    async with drafting() as chat:
        chat.say("I read.")
        await chat.feed(
            ToolStarted("read_file", "", "c1", "reading https://evil.example/?q=1 <!channel>"), seconds=3
        )
        chat.draft.feed(ToolStarted("shell", "ls", "c2"))
        chat.draft.feed(ToolFinished("read_file", True, "c1"))
        chat.draft.feed(ToolFinished("shell", False, "c2"))
        await chat.write("Done. ", seconds=3)
        await chat.draft.hand_over()
    [post] = chat.posts
    cards = [(chunk["id"], chunk["status"]) for chunk in post.stream.chunks]
    assert cards == [("c1", "in_progress"), ("c2", "error"), ("c1", "complete")]
    assert post.text == "I read.\n\nDone. "
    assert post.stream.chunks[0]["title"].startswith("reading `https://evil.example/")
    assert "<" not in post.stream.chunks[0]["title"]
    assert not chat.slack.pings
    assert not chat.slack.unfurls


def stages(*states):
    return StagesChanged("triage", tuple(StageShown(f"s{n}", state) for n, state in enumerate(states)))


async def test_the_stages_of_a_playbook_have_cards_and_one_that_runs_again_another():
    async with drafting() as chat:
        await chat.feed(stages("running", "waiting"), seconds=5)
        await chat.feed(stages("failed", "running"), seconds=5)
        await chat.feed(stages("running", "passed"), seconds=5)
        [post] = chat.posts
    cards = [(chunk["id"], chunk["status"]) for chunk in post.stream.chunks]
    assert cards == [
        ("stage-s0-1", "in_progress"), ("stage-s0-1", "error"), ("stage-s1-1", "in_progress"),
        ("stage-s0-2", "in_progress"), ("stage-s1-1", "complete"),
    ]  # fmt: skip


async def test_cards_that_are_refused_cost_no_text():
    chat = Chat()
    chat.slack.fail("chat.startStream", ApiError("invalid_chunks"), when=lambda args: args.get("chunks"))
    async with beside(chat.draft.run):
        await chat.feed(ToolStarted("shell", "ls", "c1"), seconds=3)
        await chat.write("Done. ", seconds=3)
    assert chat.texts == ["Done. "]


async def test_a_stopped_answer_stays_with_a_mark_that_spares_it_from_the_sweep():
    async with drafting() as chat:
        await chat.write("one two\n\n```\ncode ", seconds=5)
        await chat.draft.close("stopped")
    [post] = chat.posts
    assert post.text.endswith("\n```\n\n_(stopped)_")
    assert post.stream.state == "stopped"
    assert post.metadata["event_payload"]["key"]
    assert not post.metadata["event_payload"].get("draft")


async def test_a_stream_that_the_stop_button_ended_gets_its_mark_too():
    async with drafting() as chat:
        await chat.write("one ", seconds=5)
        chat.posts[0].stream.state = "stopped_by_user"
        await chat.draft.close("stopped")
    assert _markdown(chat.posts[0]) == "one \n\n_(stopped)_"


def _markdown(post):
    return "".join(block["text"] for block in post.blocks or [])


async def test_a_draft_that_says_nothing_is_deleted():
    async with drafting() as chat:
        await chat.feed(ToolStarted("shell", "ls", "c1"), seconds=5)
        assert len(chat.posts) == 1
        await chat.draft.close("undelivered")
    assert chat.posts == []


async def test_nothing_pings_and_no_host_is_fetched_that_nobody_named():
    async with drafting() as chat:
        said = "Hi <!channel> <@U1> see https://evil.example/?q=SECRET and https://ok.example/a now\n\n"
        for char in said:
            await chat.write(char, seconds=0.3)
        await anyio.sleep(60)
    assert chat.slack.pings == []
    assert not [url for url in chat.slack.unfurls if "evil" in url]
    assert "ok.example" in chat.texts[0]


# the pure parts

PIECES = st.lists(st.text(alphabet="a |\n-`:x", max_size=6), max_size=40)


@given(PIECES)
def test_the_same_is_held_back_however_text_is_cut(pieces):
    whole, cut_up = TableHold(), TableHold()
    text = "".join(pieces)
    assert whole.feed(text) + whole.end() == "".join(map(cut_up.feed, pieces)) + cut_up.end()


@given(PIECES)
def test_without_a_table_every_character_comes_through(pieces):
    hold = TableHold()
    text = "".join(map(hold.feed, pieces)) + hold.end()
    assert TABLE_FOLLOWS in text or text == "".join(pieces)


def test_a_table_is_kept_out_of_a_stream_and_announced():
    hold = TableHold()
    text = "Look:\n| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n\nThat is all, a|b.\n"
    assert "".join(map(hold.feed, text)) == f"Look:\n{TABLE_FOLLOWS}\nThat is all, a"
    assert hold.end() == "|b.\n"


def test_pipes_in_code_are_no_table():
    hold = TableHold()
    text = "```\n| a |\n|---|\n```\n"
    assert "".join(map(hold.feed, text)) == text


@given(st.text(alphabet="ab \n\u3002\u4e2d", max_size=300), st.integers(1, 200))
def test_a_cut_keeps_to_its_room_and_to_borders(text, room):
    at = cut(text, room)
    assert len(text[:at].encode()) <= room
    assert at in (0, len(text)) or text[at - 1] in " \n\u3002"


@given(st.lists(st.text(alphabet="ab <>`\n!@|", max_size=5), max_size=30), st.integers(30, 200))
def test_what_is_taken_is_the_safe_text(pieces, room):
    unsent, given_out = UnsentContent(Links()), ""
    for piece in pieces:
        unsent.add_text(piece)
        batch, _ = unsent.take(room)
        unsent.put_back(batch)
        batch, _ = unsent.take(room)
        given_out += batch.text
    unsent.end_step()
    for _ in range(500):
        batch, whole = unsent.take(10_000)
        given_out += batch.text
        if whole:
            break
    if TABLE_FOLLOWS not in given_out:
        assert given_out == safe("".join(pieces), Links())


def test_a_fence_is_closed_and_opened_again_in_its_quote():
    fences = Fences()
    fences.feed("> ```py\n> x")
    assert fences.seam == ("\n> ```", "> ```py\n")
    fences.feed(" = 1\nout of it\n")
    assert fences.seam == ("", "")
