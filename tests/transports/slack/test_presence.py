"""The signs of work: there in a second, true while it goes on, gone when it ends."""

from __future__ import annotations

import math
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import pairwise

import anyio
import pytest

from tests.fakes.slack import ApiError, Cut, FakeSlack, Message
from tests.sim.loop import virtual_time
from tests.transports.settling import beside
from tests.transports.slack.virtual import VirtualWeb, count_calls, virtual_slack
from threads.model import (
    Outgoing,
    Resumed,
    StagesChanged,
    StageShown,
    Taken,
    TextDelta,
    ThreadId,
    ToolFinished,
    ToolStarted,
    TurnSettled,
    TurnStarted,
    Waiting,
    message_key,
)
from transports.slack.api.web_api import Identity, open_web
from transports.slack.live import latest_wins
from transports.slack.live.draft import STREAMS
from transports.slack.live.presence import OUTCOMES, Presence
from transports.slack.live.thread_status import LOADING, THINKING, title_of
from transports.slack.post.posting import Posting

ME = Identity("T1", "UBOT", "threadfast", "BBOT", frozenset())


anyio_backend = virtual_time


class Chat:
    def __init__(self, channel="D1", **more):
        self.slack = virtual_slack(**more)
        self.web = VirtualWeb(self.slack)
        self.presence = Presence(
            self.web, team="T1", allowed=frozenset({"ok.example"}), prompts=[("Hi", "Say hi")]
        )
        self.posting = Posting(self.web, ME)
        self.channel = channel
        self.root = self.asks()
        self.thread = ThreadId("slack", "T1", channel, self.root)

    def asks(self, channel="", root=None):
        """Put a question into the channel, or into the thread of *root*."""
        ts = self.slack.next_ts()
        return self.slack.put(Message(channel or self.channel, ts, "how?", user="U1", thread_ts=root)).ts

    def show(self, *events, ts="", thread=None):
        for event in events:
            self.presence.show(thread or self.thread, ts or self.root, event)

    async def watch(self, *events, seconds, **where):
        """Show events, and let so many seconds go by."""
        self.show(*events, **where)
        await anyio.sleep(seconds)

    async def answer(self, thread, ts, text):
        draft = self.presence.draft_of(thread, ts)
        live = await draft.hand_over() if draft else ()
        self.presence.answering(thread, ts)
        key = f"{message_key(thread, ts)}{len(self.slack.calls)}"  # a message of its own each time
        outgoing = Outgoing(thread, key, text, reply_to=ts)
        await self.posting.post(outgoing, self.presence.links_for(thread, ts, live=True), live)
        self.presence.posted(thread, ts)
        self.presence.show(thread, ts, TurnSettled("answered"))

    def reactions(self, ts=""):
        return sorted(self.slack.message(ts or self.root).reactions)

    @property
    def status(self):
        return self.slack.status(self.channel, self.root)

    @property
    def session(self):
        return self.slack.session(self.channel, self.root)


@asynccontextmanager
async def presence(channel="D1", **more):
    """A chat while its signs are kept."""
    chat = Chat(channel, **more)
    async with beside(chat.presence.run):
        yield chat


def signs(chat, ts=""):
    """What people see of the bot's work on a message."""
    session = chat.session.status if chat.session else ""
    shown = [*chat.reactions(ts), chat.status, session.replace("active", "")]
    return list(filter(None, shown))


@pytest.mark.parametrize("waits", [True, False], ids=["wait", "are on their way"])
async def test_words_do_not_stay_that_would_reach_slack_after_the_answer(waits):
    async with presence("C1") as chat:
        ts = chat.asks(root=chat.root)
        words = chat.slack.gate("assistant.threads.setStatus")
        post = chat.slack.gate("chat.postMessage", applied=True)
        await chat.watch(
            Taken("what is up?", "U1"), TurnStarted("what is up?", "U1"), ts=ts, seconds=0 if waits else 1
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(chat.answer, chat.thread, ts, "All is well.")
            await anyio.sleep(1)  # Slack has the answer; ours to it is still on its way
            words.open()
            await anyio.sleep(1)
            post.open()
        await anyio.sleep(5)
        assert signs(chat, ts) == []


MOST_CALLS = 4
"""Of a short answer, its sign included. Three signs made seven of them."""


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("channel", "is_reply", "is_agent", "sign"),
    [
        ("C1", False, True, "eyes"),
        ("C1", True, True, THINKING),
        ("D1", False, True, "processing"),
        ("D1", True, True, "processing"),
        ("D1", False, False, THINKING),
    ],
    ids=["channel", "thread", "agent view", "thread of the agent view", "direct message"],
)
async def test_a_message_has_one_sign_within_a_second_and_none_after_a_short_answer(
    channel, is_reply, is_agent, sign, streamed
):
    async with presence(channel, agent=is_agent) as chat:
        ts = chat.asks(root=chat.root) if is_reply else chat.root
        for _ in range(2):
            before = len(chat.slack.calls)
            await chat.watch(Taken("what is up?", "U1"), TurnStarted("what is up?", "U1"), ts=ts, seconds=0.9)
            assert signs(chat, ts) == [sign]
            if streamed:
                await chat.watch(TextDelta("All is "), ts=ts, seconds=2)
            await chat.answer(chat.thread, ts, "All is well.")
            await anyio.sleep(5)
            assert signs(chat, ts) == []
            assert len(chat.slack.calls) - before <= MOST_CALLS
            assert chat.presence.quiet_in(chat.thread)
        calls = len(chat.slack.calls)
        await anyio.sleep(300)
        assert len(chat.slack.calls) == calls  # no status is repeated


async def test_a_stream_begins_at_once_in_a_direct_message_and_after_a_moment_in_a_channel():
    async with presence("C1") as chat:
        direct = chat.asks("D1")
        chat.show(TurnStarted("x", "U1"), TextDelta("word "))
        chat.show(TextDelta("word "), ts=direct, thread=ThreadId("slack", "T1", "D1", direct))
        for streams in (1, 2):
            await anyio.sleep(1)
            assert len(chat.slack.calls_to("chat.startStream")) == streams


async def test_a_draft_for_which_the_line_has_no_room_leaves_the_others_their_places(monkeypatch):
    async with presence("C1") as chat:
        monkeypatch.setattr("transports.slack.live.presence.MOST_JOBS", 1)
        other = chat.asks()
        began = TurnStarted("x", "U1"), TextDelta("word ")
        chat.show(*began)
        chat.show(*began, ts=other, thread=ThreadId("slack", "T1", "C1", other))
        await anyio.sleep(5)
        assert [call.args["thread_ts"] for call in chat.slack.calls_to("chat.startStream")] == [chat.root]


@pytest.mark.parametrize("is_reply", [False, True])
async def test_an_answer_that_comes_at_once_needs_no_sign_and_takes_one_call(is_reply):
    async with presence("C1") as chat:
        ts = chat.asks(root=chat.root) if is_reply else chat.root
        await anyio.sleep(1)  # it has begun
        await chat.watch(Taken("what is up?", "U1"), TurnStarted("what is up?", "U1"), ts=ts, seconds=0.1)
        await chat.answer(chat.thread, ts, "All is well.")
        await anyio.sleep(5)
        assert [call.method for call in chat.slack.calls] == ["chat.postMessage"]
        assert signs(chat, ts) == []


async def test_a_message_behind_another_turn_gets_eyes_in_a_direct_message_too():
    chat = Chat()
    later = chat.asks()
    async with beside(chat.presence.run):
        chat.show(Taken(), TurnStarted("one"))
        await chat.watch(Taken(), ts=later, seconds=1)
        assert (signs(chat), chat.reactions(later)) == (["processing"], ["eyes"])
        await chat.watch(TurnSettled("merged"), ts=later, seconds=5)
        assert chat.reactions(later) == ["heavy_plus_sign"]
        assert chat.session.status == "processing"


async def test_where_a_sign_would_be_late_the_next_one_is_given(monkeypatch):
    monkeypatch.setattr(latest_wins, "MOST_LATE", 1)
    async with presence("C1") as chat:
        await chat.watch(Taken(), TurnStarted("one"), seconds=1)
        gate = chat.slack.gate("reactions.remove")
        chat.show(TurnSettled("answered"))
        await gate.reached()
        late, waits, after = chat.asks(), chat.asks(), chat.asks()
        # Its eyes are not even on, but those of an earlier process may be.
        chat.show(
            Taken(),
            TurnStarted(),
            TurnSettled("answered", again=True),
            ts=waits,
            thread=replace(chat.thread, root=waits),
        )
        thread = replace(chat.thread, root=late)
        chat.show(Taken(), TurnStarted("two"), ts=late, thread=thread)
        await chat.watch(Taken(), ts=after, thread=thread, seconds=1)
        assert (chat.reactions(late), chat.reactions(after)) == ([], ["eyes"])
        assert chat.slack.status("C1", late) == THINKING
        gate.open()


async def test_eyes_that_are_not_wanted_any_more_do_not_stay_behind():
    chat = Chat("C1")
    gate = chat.slack.gate("reactions.add")
    async with beside(chat.presence.run):
        chat.show(Taken())
        await gate.reached()
        chat.show(TurnSettled("withdrawn"))
        gate.open()
        await anyio.sleep(5)
        assert chat.reactions() == []
        await chat.watch(Taken(), TurnSettled("withdrawn"), seconds=5)
    assert len(chat.slack.calls_to("reactions.add")) == 1


@pytest.mark.parametrize("outcome", sorted(OUTCOMES))
async def test_an_outcome_without_a_post_of_its_own_is_told_by_a_reaction(outcome):
    async with presence("C1") as chat:
        await chat.watch(Taken(), TurnStarted(), TurnSettled(outcome), seconds=10)
        assert signs(chat) == [OUTCOMES[outcome]]
        other = chat.asks()
        chat.show(Taken(), ts=other)
        chat.presence.posted(chat.thread, other)
        await chat.watch(TurnSettled(outcome), ts=other, seconds=10)
        assert chat.reactions(other) == []


async def test_presses_and_slash_commands_get_no_reaction():
    async with presence("C1") as chat:
        for outcome in (None, "stopped"):
            chat.show(Taken() if outcome is None else TurnSettled(outcome), ts="press-17")
        chat.presence.show(ThreadId("slack", "T1", "C1", ""), "slash-1", TurnStarted("/status"))
        chat.presence.show(ThreadId("slack", "T1", "C1", ""), "slash-1", TextDelta("text\n\n"))
        chat.presence.show(ThreadId("slack", "T1", "C1", ""), "slash-1", TurnSettled("answered"))
        await anyio.sleep(10)
    assert not chat.slack.calls_to("reactions.add", "reactions.remove")


async def test_a_wait_is_told_in_words_whatever_the_sign_is():
    for channel, is_reply, is_agent in (("D1", False, True), ("C1", False, True), ("C1", True, True)):
        async with presence(channel, agent=is_agent) as chat:
            ts = chat.asks(root=chat.root) if is_reply else chat.root
            await chat.watch(Taken(), TurnStarted("go"), Waiting("rate limited", 20, 2, 6), ts=ts, seconds=3)
            told = "is waiting: rate limited, trying again in 20 s, 2 of 6"
            assert chat.status == told
            await chat.watch(Resumed(), ts=ts, seconds=3)
            assert chat.status == (THINKING if is_reply else "")
            await chat.watch(Waiting("your decision", math.inf), ts=ts, seconds=5)
            assert chat.status == "is waiting: your decision"
            assert not chat.session or chat.session.status == "suspended"
            chat.slack.put(
                Message(channel, chat.slack.next_ts(), "Shall I?", user="UBOT", thread_ts=chat.root)
            )
            await chat.watch(TurnSettled("stopped"), ts=ts, seconds=5)
            assert signs(chat, ts) == ["octagonal_sign"]


async def test_words_stay_until_a_message_of_ours_shows_that_the_bot_is_at_work():
    async with presence("C1") as chat:
        ts = chat.asks(root=chat.root)
        await chat.watch(Taken(), TurnStarted("go", "U1"), ts=ts, seconds=3)
        for _ in range(60):
            await anyio.sleep(9)
            assert chat.status == THINKING
        await chat.watch(TextDelta("One, two.\n\n"), ts=ts, seconds=300)
        assert chat.status == ""
        await chat.watch(Waiting("rate limited", 20), ts=ts, seconds=3)
        assert chat.status
        await chat.answer(chat.thread, ts, "One, two, three.")
        await anyio.sleep(3)
        assert chat.status == ""
    loading = [
        call.args.get("loading_messages") for call in chat.slack.calls_to("assistant.threads.setStatus")
    ]
    assert loading[0] == [*LOADING]


async def test_words_that_come_after_the_message_that_takes_them_away_are_cleared():
    async with presence("C1") as chat:
        ts = chat.asks(root=chat.root)
        gate = chat.slack.gate("assistant.threads.setStatus")
        chat.show(Taken(), TurnStarted("go", "U1"), ts=ts)
        await gate.reached()
        await chat.watch(TextDelta("One, two.\n\n"), ts=ts, seconds=3)
        assert chat.slack.posts("C1")
        gate.open()
        await anyio.sleep(3)
        assert chat.status == ""


def refuse_streams(chat, code):
    chat.slack.fail("chat.startStream", ApiError(code), forever=True)


async def take_all_slots(chat):
    for _ in range(STREAMS):
        await chat.presence._drafts.slots.acquire()


HIDDEN = {
    "no streams in the workspace": ("U1", 1, lambda chat: refuse_streams(chat, "unknown_method")),
    "no right to them": ("U1", 1, lambda chat: refuse_streams(chat, "missing_scope")),
    "none in such a channel": (
        "U1",
        1,
        lambda chat: refuse_streams(chat, "method_not_supported_for_channel_type"),
    ),
    "an error": ("U1", 2, lambda chat: refuse_streams(chat, "fatal_problem")),
    "no recipient": ("B1", 1, lambda chat: refuse_streams(chat, "missing_recipient_user_id")),
}


@pytest.mark.parametrize("channel", ["C1", "D1"])
@pytest.mark.parametrize(("author", "tries", "fault"), HIDDEN.values(), ids=HIDDEN)
async def test_a_turn_that_no_stream_can_show_has_a_status_that_is_alive_and_a_stop_button(
    channel, author, tries, fault
):
    async with presence(channel) as chat:
        fault(chat)
        for ts in (chat.root, chat.asks(root=chat.root)):
            chat.show(Taken("go", author), TurnStarted("go", author), ts=ts)
            await chat.watch(TextDelta("Let me look."), ts=ts, seconds=4)
            assert (chat.status, chat.session.status) == (THINKING, "processing")
            tool = ToolStarted("read_file", "notes.md", "c1", "reading <notes.md>")
            await chat.watch(tool, ts=ts, seconds=200)
            assert chat.status == "is working: reading (notes.md)…"
            await chat.watch(ToolFinished("read_file", True, "c1"), ts=ts, seconds=3)
            await chat.watch(triage("running"), ts=ts, seconds=3)
            assert chat.status == "is working: look…"
            await chat.watch(triage("passed"), ts=ts, seconds=3)
            assert chat.status == THINKING
            before = len(chat.slack.posts(channel))
            await chat.answer(chat.thread, ts, "All is well.")
            await anyio.sleep(5)
            assert signs(chat, ts) == []
            assert len(chat.slack.posts(channel)) == before + 1
    assert len(chat.slack.calls_to("chat.startStream")) == (0 if (author, channel) == ("B1", "C1") else tries)


def triage(state):
    return StagesChanged("triage", (StageShown("look", state),))


async def test_where_all_streams_are_taken_the_status_tells_of_the_turn_until_one_is_free():
    async with presence("C1") as chat:
        await take_all_slots(chat)
        chat.show(Taken("go", "U1"), TurnStarted("go", "U1"))
        await chat.watch(ToolStarted("shell", "ls", "c1"), seconds=5)
        assert chat.status == "is working: shell…"
        chat.presence._drafts.slots.release()
        await anyio.sleep(5)
        assert chat.status == ""
        assert chat.slack.posts("C1")[0].stream.chunks[0]["id"] == "c1"


async def test_a_workspace_that_offers_none_of_it_is_asked_once():
    for channel in ("D1", "C1"):
        chat = Chat(channel)
        for method in ("agents.sessions.setStatus", "assistant.threads.setStatus", "reactions.add"):
            chat.slack.fail(method, ApiError("not_authorized"), forever=True)
        async with beside(chat.presence.run):
            for _ in range(20):
                await chat.watch(Taken(), TurnStarted("x"), TurnSettled("withdrawn"), seconds=5)
                await chat.watch(Taken(), TurnStarted("x"), seconds=5)
                chat.show(TurnSettled("withdrawn"))
        assert set(count_calls(chat.slack).values()) == {1}


async def test_a_channel_that_refuses_a_sign_gets_the_next_one_and_is_not_asked_again():
    async with presence("C1") as chat:
        ts = chat.asks(root=chat.root)
        method = "assistant.threads.setStatus"
        chat.slack.fail(method, ApiError("channel_type_not_supported"))
        for _ in range(5):
            await chat.watch(Taken(), TurnStarted("x"), ts=ts, seconds=0.9)
            assert signs(chat, ts) == ["eyes"]
            await chat.watch(TurnSettled("withdrawn"), ts=ts, seconds=5)
        assert len(chat.slack.calls_to(method)) == 1
        elsewhere = ThreadId("slack", "T1", "C2", chat.asks("C2"))
        ts = chat.asks("C2", root=elsewhere.root)
        await chat.watch(Taken(), ts=ts, thread=elsewhere, seconds=1)
        assert chat.slack.status("C2", elsewhere.root) == THINKING


async def test_a_clear_that_fails_is_made_again():
    for channel, is_reply in (("D1", False), ("C1", True)):
        async with presence(channel) as chat:
            ts = chat.asks(root=chat.root) if is_reply else chat.root
            await chat.watch(Taken(), TurnStarted("x"), ts=ts, seconds=2)
            chat.slack.fail("agents.sessions.setStatus", Cut())
            chat.slack.fail("assistant.threads.setStatus", Cut(), Cut())
            await chat.watch(TurnSettled("withdrawn"), ts=ts, seconds=10)
            assert signs(chat, ts) == []


async def test_a_title_is_the_first_messages_and_not_given_over_a_persons():
    chat = Chat()
    later = chat.asks()
    async with beside(chat.presence.run):
        chat.presence.renamed(chat.thread)
        await chat.watch(Taken("mine"), TurnSettled("withdrawn"), seconds=5)
        await chat.watch(Taken("second"), ts=later, seconds=5)
        assert not any(call.args.get("title") for call in chat.slack.calls)
        named = ThreadId("slack", "T1", "D1", chat.asks())
        await chat.watch(Taken("the first"), ts=named.root, thread=named, seconds=5)
        assert chat.slack.session("D1", named.root).title == "the first"
    assert title_of("a\n b  c") == "a b c"
    assert len(title_of("word " * 100)) <= 81


async def test_what_a_killed_process_left_is_cleared_but_no_turn_that_runs():
    chat = Chat()
    other, left = (ThreadId("slack", "T1", channel, chat.asks(channel)) for channel in ("C1", "D1"))
    async with beside(chat.presence.run):
        chat.show(Taken("x"))
        chat.slack.say_status("C1", other.root, THINKING, [])
        chat.slack.set_session("D1", left.root, "processing")
        await chat.presence.clear([chat.thread, other, left, ThreadId("slack", "T1", "C1", "")])
        await anyio.sleep(5)
        assert chat.session.status == "processing"
        assert chat.slack.session("D1", left.root).status == "active"
        assert chat.slack.status("C1", other.root) == ""


async def test_a_session_that_a_killed_process_left_at_work_in_a_channel_ends_with_the_turn_that_goes_on():
    """A question had made it one. The turn that goes on shows words, so it has none of its own."""
    chat = Chat(channel="C1")
    async with beside(chat.presence.run):
        chat.slack.set_session("C1", chat.root, "processing")
        chat.show(Taken("x", again=True), TurnStarted("x", "U1"))
        await chat.presence.clear([chat.thread])
        await chat.watch(TurnSettled("answered"), seconds=20)
        assert chat.session.status == "active"


async def test_eyes_of_a_killed_process_go_whatever_the_sign_is_now():
    async with presence() as chat:
        chat.slack.message(chat.root).reactions["eyes"] = ["UBOT"]
        await chat.watch(Taken("x", again=True), seconds=1)
        assert chat.session.status == "processing"
        await chat.watch(TurnSettled("answered"), seconds=5)
        assert signs(chat) == []


async def test_only_the_persons_own_hosts_and_those_of_the_settings_are_linked():
    chat = Chat()
    other = chat.asks("C1")
    chat.show(Taken("see https://mine.example/x", "U1"))
    links = chat.presence.links_for(chat.thread, chat.root, live=False)
    assert links.allowed == {"ok.example", "mine.example"}
    elsewhere = ThreadId("slack", "T1", "C1", chat.root)
    assert chat.presence.links_for(elsewhere, chat.root, live=False).allowed == {"ok.example"}
    assert chat.presence.links_for(chat.thread, other, live=False).allowed == {"ok.example"}


async def test_a_turn_that_is_stopped_leaves_its_text_with_a_mark():
    async with presence() as chat:
        await chat.watch(TurnStarted("x", "U1"), TextDelta("one "), seconds=3)
        assert chat.presence.live_in(chat.thread) == {chat.slack.posts("D1")[0].ts}
        await chat.watch(TurnSettled("stopped"), seconds=10)
    [post] = chat.slack.posts("D1")
    assert post.text == "one \n\n_(stopped)_"


async def test_turns_that_never_end_are_forgotten_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr("transports.shared.live.presence.MOST_LIVE", 20)
    async with presence("C1") as chat:
        threads = [ThreadId("slack", "T1", "C1", f"{number + 1}.000100") for number in range(100)]
        for thread in threads:
            await chat.watch(Taken("x"), TurnStarted("x"), ts="200.000100", thread=thread, seconds=300)
        assert [thread for thread in threads if not chat.presence.quiet_in(thread)] == threads[-20:]
        chat.slack.calls.clear()
        await anyio.sleep(100)
        repeated = chat.slack.calls_to("assistant.threads.setStatus")
        assert {call.args["thread_ts"] for call in repeated} == {thread.root for thread in threads[-20:]}


async def _turn(chat, thread, ts, seconds, delays):
    """A turn that says a word every half second, then its answer."""
    said = ""
    chat.presence.show(thread, ts, Taken("x", "U1"))
    chat.presence.show(thread, ts, TurnStarted("x", "U1"))
    for number in range(int(seconds * 2)):
        said += (word := f"word{number} ")
        chat.presence.show(thread, ts, TextDelta(word))
        await anyio.sleep(0.5)
    began = anyio.current_time()
    await chat.answer(thread, ts, f"{said}end")
    delays.append(anyio.current_time() - began)


DIRECT, SHARED = [f"D{number}" for number in range(100)], [f"C{number}" for number in range(20)]


@pytest.mark.parametrize(
    "channels",
    [
        pytest.param(DIRECT, id="direct", marks=pytest.mark.slow),
        pytest.param(SHARED, id="channels", marks=pytest.mark.slow),
        pytest.param(DIRECT[:20] + SHARED, id="both"),
    ],
)
async def test_a_hundred_streamed_answers_at_once_keep_to_the_limits_and_starve_nobody(channels):
    chat = Chat()
    delays, threads = [], []
    for channel in channels:
        chat.slack.channel(channel, kind="im" if channel.startswith("D") else "public", user="U1")
    async with beside(chat.presence.run):
        async with anyio.create_task_group() as turns:
            for number in range(100):
                channel = channels[number % len(channels)]
                ts = chat.asks(channel)
                threads.append(ThreadId("slack", "T1", channel, ts))
                turns.start_soon(partial(_turn, chat, threads[-1], ts, 300, delays))
        await anyio.sleep(600)
    assert len(delays) == 100
    assert max(delays) < 25, "a final text has half a minute to get through"
    assert not chat.slack.limited
    for thread in threads:
        posts = chat.slack.thread(thread.channel, thread.root)[1:]
        assert any(_says(post, "end") for post in posts)
        assert not any(post.stream and post.stream.state == "streaming" for post in posts)
        session = chat.slack.session(thread.channel, thread.root)
        assert session is None or session.status == "active"
        assert chat.slack.status(thread.channel, thread.root) == ""
        assert chat.slack.message(thread.root).reactions == {}
        assert _longest_silence(chat.slack, thread) < 45, "a live draft was starved"
    assert sum(len(chat.slack.thread(thread.channel, thread.root)) > 2 for thread in threads) == 0
    live = {thread for thread in threads if len(_times(chat.slack, thread)) > 2}
    assert len(live) >= STREAMS


def _says(post, word):
    return word in post.text + "".join(b["text"] for b in post.blocks or [] if b["type"] == "markdown")


def _times(slack, thread):
    """When a thread's live answer was touched, from its first message on."""
    own = {
        post.ts for post in slack.channels[thread.channel].messages.values() if post.thread_ts == thread.root
    }
    made = [float(ts) - 1.7e9 for ts in own]
    live = ("chat.appendStream", "chat.update", "chat.stopStream", "chat.delete")
    return sorted(made + [call.at for call in slack.calls_to(*live) if call.args.get("ts") in own])


def _longest_silence(slack, thread):
    times = _times(slack, thread)
    return max((b - a for a, b in pairwise(times)), default=0)


class TestOverSockets:
    @pytest.fixture
    def anyio_backend(self):
        return "asyncio"

    async def test_the_same_over_the_real_sdk(self, monkeypatch):
        async with FakeSlack(echo=False) as slack, open_web(slack.api_base_url, slack.bot_token) as web:
            chat = Chat.__new__(Chat)
            chat.slack, chat.channel = slack, "D1"
            chat.presence, chat.posting = Presence(web, team="T1"), Posting(web, ME)
            chat.root = chat.asks()
            chat.thread = ThreadId("slack", "T1", "D1", chat.root)
            async with beside(chat.presence.run):
                chat.show(TurnStarted("hello", "U1"), ToolStarted("shell", "ls", "c1"))
                await slack.until(lambda: slack.posts("D1"))
                chat.show(ToolFinished("shell", True, "c1"), TextDelta("It says "))
                await slack.until(lambda: slack.posts("D1")[0].text == "It says ")
                await chat.answer(chat.thread, chat.root, "It says four.")
                await slack.until(lambda: chat.session.status == "active" and not chat.status)
            [post] = slack.posts("D1")
            assert _says(post, "It says four.")
            assert post.stream.state == "stopped"
            assert [chunk["status"] for chunk in post.stream.chunks] == ["in_progress", "complete"]
            assert not [call for call in slack.calls if call.error]
