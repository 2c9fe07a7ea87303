"""A live answer: what people see of it while it grows, and what is left of it."""

from __future__ import annotations

from itertools import pairwise

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.slack import ApiError, Cut, Message, RateLimited
from tests.transports.settling import beside
from tests.transports.slack.virtual import BACKEND, VirtualWeb, drained, virtual_slack
from threads.model import TextDelta, TextReset, ThreadId, ToolFinished, ToolStarted
from transports.slack.live.draft import Draft, Seats
from transports.slack.live.draft_content import Script, cut
from transports.slack.live.native_stream import ROTATE_BYTES
from transports.slack.markdown.escape import safe
from transports.slack.markdown.links import Links
from transports.slack.markdown.open_fences import TABLE_FOLLOWS, Fences, TableHold

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return BACKEND


class Scene:
    """A question in a channel, and the draft of its answer."""

    def __init__(self, channel="D1", **more):
        self.slack = virtual_slack(**more)
        self.channel = channel
        self.seats = Seats(VirtualWeb(self.slack))
        self.root = self.slack.put(Message(channel, self.slack.next_ts(), "how?", user="U1")).ts
        self.draft = self.new()

    def new(self):
        thread = ThreadId("slack", "T1", self.channel, self.root)
        return Draft(thread, self.seats, Links(frozenset({"ok.example"})), to="U1")

    def say(self, *deltas):
        for delta in deltas:
            self.draft.feed(TextDelta(delta))

    @property
    def posts(self):
        return self.slack.posts(self.channel)

    @property
    def texts(self):
        return [_text(post) for post in self.posts]

    def agrees(self):
        """Each message of the draft shows what the draft says it shows."""
        shown = {post.ts: _text(post) for post in self.posts}
        for message in self.draft.messages:
            if message.shown:
                assert shown[message.id] == message.shown


def _text(post):
    return (
        post.text if post.stream else "".join(b["text"] for b in post.blocks or [] if b["type"] == "markdown")
    )


async def test_a_direct_message_is_streamed_and_handed_over_open():
    scene = Scene()
    async with beside(scene.draft.run):
        for word in ("one", "two", "three", "four"):
            scene.say(word + " ")
            await anyio.sleep(1)
        messages = await scene.draft.hand_over()
        scene.say("never shown ")
        await anyio.sleep(60)
    [post] = scene.posts
    assert [message.kind for message in messages] == ["stream"]
    assert messages[0].shown == post.text
    assert post.text.startswith("one two three")
    assert post.stream.state == "streaming"
    assert post.stream.recipient == "U1"


async def test_after_the_hand_over_no_call_goes_out_and_the_one_on_its_way_is_waited_for():
    scene = Scene()
    gate = scene.slack.gate("chat.appendStream")
    async with beside(scene.draft.run) as tasks:
        scene.say("first ")
        await anyio.sleep(2)
        scene.say("second ")
        await gate.reached()
        handed = []

        async def hand_over():
            handed.append(await scene.draft.hand_over())

        tasks.start_soon(hand_over)
        await anyio.sleep(1)
        assert not handed
        gate.open()
        await anyio.sleep(1)
        calls = len(scene.slack.calls)
        scene.say("third ")
        await anyio.sleep(100)
        assert len(scene.slack.calls) == calls
    assert handed[0][0].shown == scene.posts[0].text == "first second "


async def test_a_call_that_never_ends_holds_the_final_text_up_for_ten_seconds_and_is_of_unknown_effect():
    scene = Scene()
    scene.slack.gate("chat.appendStream")
    async with beside(scene.draft.run):
        scene.say("first ")
        await anyio.sleep(2)
        scene.say("second ")
        await anyio.sleep(2)
        before = anyio.current_time()
        [message] = await scene.draft.hand_over()
        assert anyio.current_time() - before == pytest.approx(10)
    assert (message.kind, message.shown) == ("stream", "")


async def test_who_waits_in_line_is_handed_over_at_once():
    scene = Scene()
    for _ in range(5):
        await scene.seats.web.limits.take("chat.startStream")
    async with beside(scene.draft.run):
        scene.say("text ")
        await anyio.sleep(0.5)
        before = anyio.current_time()
        assert await scene.draft.hand_over() == ()
        assert anyio.current_time() == before


async def test_a_channel_gets_a_post_that_is_edited_no_faster_than_slack_likes():
    scene = Scene("C1")
    async with beside(scene.draft.run):
        for number in range(200):
            scene.say(f"w{number} ")
            await anyio.sleep(0.1)
        scene.agrees()
        messages = await scene.draft.hand_over()
    [post] = scene.posts
    assert [message.kind for message in messages] == ["post"]
    assert post.stream is None
    assert post.metadata["event_payload"]["draft"] is True
    times = [call.at for call in scene.slack.calls_to("chat.postMessage", "chat.update")]
    assert min(b - a for a, b in pairwise(times)) >= 1.5
    assert len(times) >= 10
    assert all(call.args["parse"] == "none" for call in scene.slack.calls_to("chat.update"))
    assert not scene.slack.limited


async def test_the_first_post_waits_for_a_paragraph_or_a_moment():
    scene = Scene("C1")
    async with beside(scene.draft.run):
        scene.say("Hm")
        await anyio.sleep(1.2)
        assert not scene.posts
        await anyio.sleep(0.5)
        assert scene.texts == ["Hm"]
    scene = Scene("C1")
    async with beside(scene.draft.run):
        scene.say("A paragraph.\n\nAnd more")
        await anyio.sleep(0.3)
        assert len(scene.posts) == 1


async def test_an_edited_draft_shows_the_step_at_hand_and_what_tools_do():
    scene = Scene("C1")
    async with beside(scene.draft.run):
        scene.say("Let me look.\n\n")
        await anyio.sleep(3)
        scene.draft.feed(ToolStarted("read_file", "notes.md", "c1", "reading notes.md"))
        await anyio.sleep(3)
        assert scene.texts == ["Let me look.\n\n_reading notes.md…_"]
        scene.draft.feed(ToolFinished("read_file", True, "c1"))
        scene.say("It says four.")
        await anyio.sleep(3)
        assert scene.texts == ["It says four."]
        scene.draft.feed(TextReset())
        await anyio.sleep(3)
        assert scene.texts == ["…"]
        scene.agrees()


async def test_a_stream_is_rotated_before_slack_ends_it():
    scene = Scene()
    said = ""
    async with beside(scene.draft.run):
        for number in range(400):
            scene.say(word := f"word{number} ")
            said += word
            await anyio.sleep(2)
        scene.agrees()
        await scene.draft.hand_over()
    assert len(scene.posts) == 4
    assert "".join(scene.texts).startswith(said[:-40])
    assert [post.stream.state for post in scene.posts] == ["stopped"] * 3 + ["streaming"]
    assert not [call for call in scene.slack.calls if call.error]


async def test_a_stream_is_rotated_before_it_is_full_and_its_code_block_goes_on():
    scene = Scene()
    async with beside(scene.draft.run):
        scene.say("Here:\n```python\n" + "print('line of code')\n" * 900)
        await anyio.sleep(20)
        scene.agrees()
        await scene.draft.hand_over()
    assert len(scene.posts) == 3
    for post in scene.posts:
        assert len(post.text.encode()) <= ROTATE_BYTES + 100
    for post in scene.posts[:2]:
        assert post.text.rstrip().endswith("```")
        assert post.text.count("```") == 2
    for post in scene.posts[1:]:
        assert post.text.startswith("```python\nprint(")


async def test_a_word_that_fills_a_message_is_not_cut():
    scene = Scene()
    async with beside(scene.draft.run):
        scene.say("x" * 30_000 + " and so on")
        await anyio.sleep(30)
        assert await scene.draft.hand_over() == ()


@pytest.mark.parametrize("code", ["message_not_in_streaming_state", "msg_too_long"])
async def test_a_stream_that_slack_ended_goes_on_in_another(code):
    scene = Scene()
    async with beside(scene.draft.run):
        scene.say("one ")
        await anyio.sleep(2)
        scene.slack.fail("chat.appendStream", ApiError(code))
        scene.say("two ")
        await anyio.sleep(10)
        scene.agrees()
        messages = await scene.draft.hand_over()
    assert [message.shown for message in messages] == ["one ", "two "]
    assert [message.kind for message in messages] == ["post", "stream"]


async def test_a_stream_that_a_person_stopped_is_left_alone():
    scene = Scene()
    async with beside(scene.draft.run):
        scene.say("one ")
        await anyio.sleep(2)
        scene.posts[0].stream.state = "stopped_by_user"
        scene.say("two ")
        await anyio.sleep(5)
        calls = len(scene.slack.calls)
        scene.say("three ")
        await anyio.sleep(50)
        assert len(scene.slack.calls) == calls
        assert [message.kind for message in await scene.draft.hand_over()] == ["post"]


@pytest.mark.parametrize(
    "code",
    ["unknown_method", "not_allowed_token_type", "missing_scope", "method_not_supported_for_channel_type"],
)
async def test_a_workspace_without_streams_gets_posts_from_then_on(code):
    scene = Scene()
    scene.slack.fail("chat.startStream", ApiError(code), forever=True)
    async with beside(scene.draft.run):
        scene.say("one two\n\n")
        await anyio.sleep(10)
    assert scene.texts == ["one two"]
    scene.draft = scene.new()
    async with beside(scene.draft.run):
        scene.say("three\n\n")
        await anyio.sleep(10)
    assert len(scene.posts) == 2
    assert len(scene.slack.calls_to("chat.startStream")) == 1


async def test_a_start_whose_answer_is_lost_is_not_made_again():
    scene = Scene()
    scene.slack.fail("chat.startStream", Cut(applied=True))
    async with beside(scene.draft.run):
        scene.say("one ")
        await anyio.sleep(5)
        scene.say("two ")
        await anyio.sleep(30)
        assert await scene.draft.hand_over() == ()
    assert drained(scene.slack) == {"chat.startStream": 1}


async def test_a_post_whose_answer_is_lost_is_not_made_again():
    scene = Scene("C1")
    scene.slack.fail("chat.postMessage", Cut(applied=True))
    async with beside(scene.draft.run):
        scene.say("one\n\n")
        await anyio.sleep(5)
        scene.say("two ")
        await anyio.sleep(30)
        assert await scene.draft.hand_over() == ()
    assert drained(scene.slack) == {"chat.postMessage": 1}


@pytest.mark.parametrize("applied", [True, False])
async def test_an_append_whose_answer_is_lost_is_not_made_again(applied):
    scene = Scene()
    async with beside(scene.draft.run):
        scene.say("one ")
        await anyio.sleep(2)
        scene.slack.fail("chat.appendStream", Cut(applied=applied))
        scene.say("two ")
        await anyio.sleep(5)
        scene.say("three ")
        await anyio.sleep(5)
        messages = await scene.draft.hand_over()
    assert "".join(scene.texts).count("two") == applied
    assert [(m.kind, m.shown) for m in messages] == [("post", ""), ("stream", "three ")]


async def test_a_rate_limit_loses_nothing():
    scene = Scene()
    scene.slack.fail("chat.startStream", RateLimited(5))
    async with beside(scene.draft.run):
        scene.say("one ")
        await anyio.sleep(2)
        scene.say("two ")
        await anyio.sleep(20)
    assert scene.texts == ["one two "]


async def test_text_that_is_taken_back_leaves_the_stream_as_one_to_be_written_over():
    scene = Scene()
    async with beside(scene.draft.run):
        scene.say("wrong ")
        await anyio.sleep(2)
        scene.draft.feed(TextReset())
        scene.say("right ")
        await anyio.sleep(5)
        messages = await scene.draft.hand_over()
    assert [(m.kind, m.shown) for m in messages] == [("post", "wrong "), ("stream", "right ")]


async def test_text_that_was_not_shown_yet_is_taken_back_without_a_trace():
    scene = Scene()
    async with beside(scene.draft.run):
        scene.say("wrong ")
        scene.draft.feed(TextReset())
        scene.say("right ")
        await anyio.sleep(5)
    assert scene.texts == ["right "]


async def test_tools_have_cards_that_end():
    scene = Scene()
    async with beside(scene.draft.run):
        scene.say("I read.")
        scene.draft.feed(ToolStarted("read_file", "", "c1", "reading https://evil.example/?q=1 <!channel>"))
        await anyio.sleep(3)
        scene.draft.feed(ToolStarted("shell", "ls", "c2"))
        scene.draft.feed(ToolFinished("read_file", True, "c1"))
        scene.draft.feed(ToolFinished("shell", False, "c2"))
        scene.say("Done. ")
        await anyio.sleep(3)
        await scene.draft.hand_over()
    [post] = scene.posts
    cards = [(chunk["id"], chunk["status"]) for chunk in post.stream.chunks]
    assert cards == [("c1", "in_progress"), ("c2", "error"), ("c1", "complete")]
    assert post.text == "I read.\n\nDone. "
    assert post.stream.chunks[0]["title"].startswith("reading `https://evil.example/")
    assert "<" not in post.stream.chunks[0]["title"]
    assert not scene.slack.pings
    assert not scene.slack.unfurls


async def test_cards_that_are_refused_cost_no_text():
    scene = Scene()
    scene.slack.fail("chat.startStream", ApiError("invalid_chunks"), when=lambda args: args.get("chunks"))
    async with beside(scene.draft.run):
        scene.draft.feed(ToolStarted("shell", "ls", "c1"))
        await anyio.sleep(3)
        scene.say("Done. ")
        await anyio.sleep(3)
    assert scene.texts == ["Done. "]


async def test_a_stopped_answer_stays_with_a_mark_that_spares_it_from_the_sweep():
    for channel in ("D1", "C1"):
        scene = Scene(channel)
        async with beside(scene.draft.run):
            scene.say("one two\n\n```\ncode ")
            await anyio.sleep(5)
            await scene.draft.close("stopped")
        [post] = scene.posts
        assert _text(post).endswith("\n```\n\n_(stopped)_")
        assert post.stream is None or post.stream.state == "stopped"
        assert post.metadata["event_payload"]["key"]
        assert not post.metadata["event_payload"].get("draft")


async def test_a_stream_that_the_stop_button_ended_gets_its_mark_too():
    scene = Scene()
    async with beside(scene.draft.run):
        scene.say("one ")
        await anyio.sleep(5)
        scene.posts[0].stream.state = "stopped_by_user"
        await scene.draft.close("stopped")
    assert _markdown(scene.posts[0]) == "one \n\n_(stopped)_"


def _markdown(post):
    return "".join(block["text"] for block in post.blocks or [])


async def test_a_draft_that_says_nothing_is_deleted():
    scene = Scene()
    async with beside(scene.draft.run):
        scene.draft.feed(ToolStarted("shell", "ls", "c1"))
        await anyio.sleep(5)
        assert len(scene.posts) == 1
        await scene.draft.close("undelivered")
    assert scene.posts == []


async def test_nothing_pings_and_no_host_is_fetched_that_nobody_named():
    for channel in ("D1", "C1"):
        scene = Scene(channel)
        async with beside(scene.draft.run):
            for (
                char
            ) in "Hi <!channel> <@U1> see https://evil.example/?q=SECRET and https://ok.example/a now\n\n":
                scene.say(char)
                await anyio.sleep(0.3)
            await anyio.sleep(60)
        assert scene.slack.pings == []
        assert not [url for url in scene.slack.unfurls if "evil" in url]
        assert "ok.example" in scene.texts[0]


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
def test_what_a_script_gives_out_is_the_safe_text(pieces, room):
    script, given_out = Script(Links()), ""
    for piece in pieces:
        script.say(piece)
        batch, _ = script.take(room)
        script.put_back(batch)
        batch, _ = script.take(room)
        given_out += batch.text
    script.pause()
    for _ in range(500):
        batch, whole = script.take(10_000)
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
