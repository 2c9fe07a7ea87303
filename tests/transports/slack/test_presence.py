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
from tests.transports.settling import beside
from tests.transports.slack.virtual import BACKEND, VirtualWeb, count_calls, virtual_slack
from threads.model import (
    Outgoing,
    Resumed,
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
from transports.slack.live import reactions
from transports.slack.live.presence import OUTCOMES, Presence
from transports.slack.live.thread_status import LOADING, THINKING, title_of
from transports.slack.post.posting import Posting

pytestmark = pytest.mark.anyio

ME = Identity("T1", "UBOT", "threadfast", "BBOT", frozenset())


@pytest.fixture
def anyio_backend():
    return BACKEND


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

    def asks(self, channel=""):
        return self.slack.put(Message(channel or self.channel, self.slack.next_ts(), "how?", user="U1")).ts

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
        outgoing = Outgoing(thread, message_key(thread, ts), text, reply_to=ts)
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
async def presence(channel="D1"):
    """A chat while its signs are kept."""
    chat = Chat(channel)
    async with beside(chat.presence.run):
        yield chat


async def test_a_sign_is_there_within_a_second_and_gone_after_the_answer():
    for channel, sign in (("C1", ["eyes"]), ("D1", [])):
        chat = Chat(channel)
        async with beside(chat.presence.run):
            await chat.watch(
                Taken("what is https://x.example?", "U1"), TurnStarted("what is up?", "U1"), seconds=0.9
            )
            assert chat.reactions() == sign
            assert chat.status == THINKING
            assert chat.session.status == "processing"
            assert chat.session.title == "what is up?"
            await chat.answer(chat.thread, chat.root, "All is well.")
            await anyio.sleep(5)
            assert (chat.reactions(), chat.status, chat.session.status) == ([], "", "active")
            assert chat.presence.quiet_in(chat.thread)
            calls = len(chat.slack.calls)
            await anyio.sleep(300)
            assert len(chat.slack.calls) == calls  # no status is repeated


async def test_a_message_behind_another_turn_gets_eyes_in_a_direct_message_too():
    chat = Chat()
    later = chat.asks()
    async with beside(chat.presence.run):
        chat.show(Taken(), TurnStarted("one"))
        await chat.watch(Taken(), ts=later, seconds=1)
        assert (chat.reactions(), chat.reactions(later)) == ([], ["eyes"])
        await chat.watch(TurnSettled("merged"), ts=later, seconds=5)
        assert chat.reactions(later) == ["heavy_plus_sign"]
        assert chat.session.status == "processing"


async def test_where_eyes_come_off_late_the_status_is_the_sign(monkeypatch):
    monkeypatch.setattr(reactions, "MOST_LATE", 1)
    async with presence("C1") as chat:
        await chat.watch(Taken(), TurnStarted("one"), seconds=1)
        gate = chat.slack.gate("reactions.remove")
        chat.show(TurnSettled("answered"))
        await gate.reached()
        late, waits, after = chat.asks(), chat.asks(), chat.asks()
        # Its eyes are not even on, but those of an earlier process may be.
        chat.show(Taken(), TurnStarted(), TurnSettled("answered", again=True), ts=waits)
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
        assert chat.reactions() == [OUTCOMES[outcome]]
        assert (chat.status, chat.session.status) == ("", "active")
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
    assert chat.slack.calls == []


async def test_the_words_say_what_goes_on_and_stay_as_long_as_it_does():
    async with presence() as chat:
        await chat.watch(TurnStarted("go"), seconds=2)
        await chat.watch(ToolStarted("read_file", "notes.md", "c1", "reading notes.md"), seconds=3)
        assert chat.status == "is reading notes.md…"
        await chat.watch(ToolFinished("read_file", True, "c1"), Waiting("rate limited", 20, 2, 6), seconds=3)
        assert chat.status == "is waiting: rate limited, trying again in 20 s, 2 of 6"
        await chat.watch(Resumed(), seconds=3)
        assert chat.status == THINKING
        for _ in range(60):
            await anyio.sleep(9)
            assert chat.status == THINKING
        await chat.watch(Waiting("your decision", math.inf), seconds=5)
        assert (chat.status, chat.session.status) == ("is waiting: your decision", "suspended")
        await chat.watch(Resumed(), seconds=5)
        assert chat.session.status == "processing"
    loading = [call.args["loading_messages"] for call in chat.slack.calls_to("assistant.threads.setStatus")]
    assert loading[0] == [*LOADING]


async def test_a_workspace_that_offers_none_of_it_is_asked_once():
    chat = Chat("C1")
    for method in ("agents.sessions.setStatus", "assistant.threads.setStatus", "reactions.add"):
        chat.slack.fail(method, ApiError("not_authorized"), forever=True)
    async with beside(chat.presence.run):
        for _ in range(20):
            await chat.watch(Taken(), TurnStarted("x"), TurnSettled("withdrawn"), seconds=5)
    assert all(count == 1 for count in count_calls(chat.slack).values())


async def test_a_clear_that_fails_is_made_again():
    async with presence() as chat:
        await chat.watch(TurnStarted("x"), seconds=2)
        chat.slack.fail("agents.sessions.setStatus", Cut())
        chat.slack.fail("assistant.threads.setStatus", Cut(), Cut())
        await chat.watch(TurnSettled("withdrawn"), seconds=10)
        assert (chat.status, chat.session.status) == ("", "active")


async def test_a_title_is_the_first_messages_and_not_given_over_a_persons():
    chat = Chat()
    later = chat.asks()
    async with beside(chat.presence.run):
        chat.presence.renamed(chat.thread)
        await chat.watch(TurnStarted("mine"), seconds=5)
        await chat.watch(TurnSettled("withdrawn"), seconds=5)
        await chat.watch(TurnStarted("second"), ts=later, seconds=5)
        assert not any(call.args.get("title") for call in chat.slack.calls)
        named = ThreadId("slack", "T1", "C1", chat.asks("C1"))
        chat.presence.show(named, named.root, TurnStarted("the first"))
        chat.presence.show(named, named.root, Waiting("you", math.inf))
        await anyio.sleep(5)
        assert chat.slack.session("C1", named.root).title == "the first"
    assert title_of("a\n b  c") == "a b c"
    assert len(title_of("word " * 100)) <= 81


async def test_what_a_killed_process_left_is_cleared_but_no_turn_that_runs():
    chat = Chat()
    other = ThreadId("slack", "T1", "C1", chat.asks("C1"))
    async with beside(chat.presence.run):
        chat.show(TurnStarted("x"))
        await chat.presence.clear([chat.thread, other, ThreadId("slack", "T1", "C1", "")])
        await anyio.sleep(5)
        assert chat.session.status == "processing"
        assert chat.slack.session("C1", other.root).status == "active"


async def test_prompts_are_suggested_without_a_thread():
    async with presence() as chat:
        await chat.presence.home_opened("D1")
        await anyio.sleep(1)
    assert chat.slack.prompts[0]["prompts"] == [{"title": "Hi", "message": "Say hi"}]


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
    async with presence() as chat:
        threads = [ThreadId("slack", "T1", "D1", f"{number + 1}.000100") for number in range(100)]
        for thread in threads:
            await chat.watch(TurnStarted("x"), TextDelta("word "), ts=thread.root, thread=thread, seconds=300)
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
    "channels", [DIRECT, SHARED, DIRECT[:20] + SHARED], ids=["direct", "channels", "both"]
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
        assert chat.slack.session(thread.channel, thread.root).status == "active"
        assert chat.slack.status(thread.channel, thread.root) == ""
        assert chat.slack.message(thread.root).reactions == {}
        assert _longest_silence(chat.slack, thread) < 45, "a live draft was starved"
    assert sum(len(chat.slack.thread(thread.channel, thread.root)) > 2 for thread in threads) == 0
    live = {thread for thread in threads if len(_times(chat.slack, thread)) > 2}
    assert len(live) >= 8


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
