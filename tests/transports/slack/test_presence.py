"""The signs of work: there in a second, true while it goes on, gone when it ends."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from itertools import pairwise

import anyio
import pytest

from tests.fakes.slack import ApiError, Cut, FakeSlack, Message
from tests.transports.settling import beside
from tests.transports.slack.virtual import BACKEND, VirtualWeb, drained, virtual_slack
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


class Scene:
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


async def test_a_sign_is_there_within_a_second_and_gone_after_the_answer():
    for channel, sign in (("C1", ["eyes"]), ("D1", [])):
        scene = Scene(channel)
        async with beside(scene.presence.run):
            scene.show(Taken("what is https://x.example?", "U1"), TurnStarted("what is up?", "U1"))
            await anyio.sleep(0.9)
            assert scene.reactions() == sign
            assert scene.status == THINKING
            assert scene.session.status == "processing"
            assert scene.session.title == "what is up?"
            await scene.answer(scene.thread, scene.root, "All is well.")
            await anyio.sleep(5)
            assert (scene.reactions(), scene.status, scene.session.status) == ([], "", "active")
        assert not scene.presence._messages
        assert not scene.presence._running
        assert not scene.presence._beats


async def test_a_message_behind_another_turn_gets_eyes_in_a_direct_message_too():
    scene = Scene()
    later = scene.asks()
    async with beside(scene.presence.run):
        scene.show(Taken(), TurnStarted("one"))
        scene.show(Taken(), ts=later)
        await anyio.sleep(1)
        assert (scene.reactions(), scene.reactions(later)) == ([], ["eyes"])
        scene.show(TurnSettled("merged"), ts=later)
        await anyio.sleep(5)
        assert scene.reactions(later) == ["heavy_plus_sign"]
        assert scene.session.status == "processing"


async def test_where_eyes_come_off_late_the_status_is_the_sign(monkeypatch):
    monkeypatch.setattr(reactions, "MOST_LATE", 1)
    scene = Scene("C1")
    async with beside(scene.presence.run):
        scene.show(Taken(), TurnStarted("one"))
        await anyio.sleep(1)
        gate = scene.slack.gate("reactions.remove")
        scene.show(TurnSettled("answered"))
        await gate.reached()
        late, waits, after = scene.asks(), scene.asks(), scene.asks()
        scene.show(Taken(), TurnStarted(), TurnSettled("answered"), ts=waits)  # its eyes are not even on
        scene.presence._reactions.remove("C1", waits, "eyes", maybe=True)
        thread = replace(scene.thread, root=late)
        scene.show(Taken(), TurnStarted("two"), ts=late, thread=thread)
        scene.show(Taken(), ts=after, thread=thread)
        await anyio.sleep(1)
        assert (scene.reactions(late), scene.reactions(after)) == ([], ["eyes"])
        assert scene.slack.status("C1", late) == THINKING
        gate.open()


async def test_eyes_that_are_not_wanted_any_more_do_not_stay_behind():
    scene = Scene("C1")
    gate = scene.slack.gate("reactions.add")
    async with beside(scene.presence.run):
        scene.show(Taken())
        await gate.reached()
        scene.show(TurnSettled("withdrawn"))
        gate.open()
        await anyio.sleep(5)
        assert scene.reactions() == []
        scene.show(Taken(), TurnSettled("withdrawn"))
        await anyio.sleep(5)
    assert len(scene.slack.calls_to("reactions.add")) == 1


@pytest.mark.parametrize("outcome", sorted(OUTCOMES))
async def test_an_outcome_without_a_post_of_its_own_is_told_by_a_reaction(outcome):
    scene = Scene("C1")
    async with beside(scene.presence.run):
        scene.show(Taken(), TurnStarted(), TurnSettled(outcome))
        await anyio.sleep(10)
        assert scene.reactions() == [OUTCOMES[outcome]]
        assert (scene.status, scene.session.status) == ("", "active")
        other = scene.asks()
        scene.show(Taken(), ts=other)
        scene.presence.posted(scene.thread, other)
        scene.show(TurnSettled(outcome), ts=other)
        await anyio.sleep(10)
        assert scene.reactions(other) == []


async def test_presses_and_slash_commands_get_no_reaction():
    scene = Scene("C1")
    async with beside(scene.presence.run):
        for outcome in (None, "stopped"):
            scene.show(Taken() if outcome is None else TurnSettled(outcome), ts="press-17")
        scene.presence.show(ThreadId("slack", "T1", "C1", ""), "slash-1", TurnStarted("/status"))
        scene.presence.show(ThreadId("slack", "T1", "C1", ""), "slash-1", TextDelta("text\n\n"))
        scene.presence.show(ThreadId("slack", "T1", "C1", ""), "slash-1", TurnSettled("answered"))
        await anyio.sleep(10)
    assert scene.slack.calls == []


async def test_the_words_say_what_goes_on_and_stay_as_long_as_it_does():
    scene = Scene()
    async with beside(scene.presence.run):
        scene.show(TurnStarted("go"))
        await anyio.sleep(2)
        scene.show(ToolStarted("read_file", "notes.md", "c1", "reading notes.md"))
        await anyio.sleep(3)
        assert scene.status == "is reading notes.md…"
        scene.show(ToolFinished("read_file", True, "c1"), Waiting("rate limited", 20, 2, 6))
        await anyio.sleep(3)
        assert scene.status == "is waiting: rate limited, trying again in 20 s, 2 of 6"
        scene.show(Resumed())
        await anyio.sleep(3)
        assert scene.status == THINKING
        for _ in range(60):
            await anyio.sleep(9)
            assert scene.status == THINKING
        scene.show(Waiting("your decision", math.inf))
        await anyio.sleep(5)
        assert (scene.status, scene.session.status) == ("is waiting: your decision", "suspended")
        scene.show(Resumed())
        await anyio.sleep(5)
        assert scene.session.status == "processing"
    loading = [call.args["loading_messages"] for call in scene.slack.calls_to("assistant.threads.setStatus")]
    assert loading[0] == [*LOADING]


async def test_a_workspace_that_offers_none_of_it_is_asked_once():
    scene = Scene("C1")
    for method in ("agents.sessions.setStatus", "assistant.threads.setStatus", "reactions.add"):
        scene.slack.fail(method, ApiError("not_authorized"), forever=True)
    async with beside(scene.presence.run):
        for _ in range(20):
            scene.show(Taken(), TurnStarted("x"), TurnSettled("withdrawn"))
            await anyio.sleep(5)
    assert all(count == 1 for count in drained(scene.slack).values())


async def test_a_clear_that_fails_is_made_again():
    scene = Scene()
    async with beside(scene.presence.run):
        scene.show(TurnStarted("x"))
        await anyio.sleep(2)
        scene.slack.fail("agents.sessions.setStatus", Cut())
        scene.slack.fail("assistant.threads.setStatus", Cut(), Cut())
        scene.show(TurnSettled("withdrawn"))
        await anyio.sleep(10)
        assert (scene.status, scene.session.status) == ("", "active")


async def test_a_title_is_the_first_messages_and_not_given_over_a_persons():
    scene = Scene()
    later = scene.asks()
    async with beside(scene.presence.run):
        scene.presence.renamed(scene.thread)
        scene.show(TurnStarted("mine"))
        await anyio.sleep(5)
        scene.show(TurnSettled("withdrawn"))
        await anyio.sleep(5)
        scene.show(TurnStarted("second"), ts=later)
        await anyio.sleep(5)
        assert not any(call.args.get("title") for call in scene.slack.calls)
        named = ThreadId("slack", "T1", "C1", scene.asks("C1"))
        scene.presence.show(named, named.root, TurnStarted("the first"))
        scene.presence.show(named, named.root, Waiting("you", math.inf))
        await anyio.sleep(5)
        assert scene.slack.session("C1", named.root).title == "the first"
    assert title_of("a\n b  c") == "a b c"
    assert len(title_of("word " * 100)) <= 81


async def test_what_a_killed_process_left_is_cleared_but_no_turn_that_runs():
    scene = Scene()
    other = ThreadId("slack", "T1", "C1", scene.asks("C1"))
    async with beside(scene.presence.run):
        scene.show(TurnStarted("x"))
        await scene.presence.clear([scene.thread, other, ThreadId("slack", "T1", "C1", "")])
        await anyio.sleep(5)
        assert scene.session.status == "processing"
        assert scene.slack.session("C1", other.root).status == "active"


async def test_prompts_are_suggested_without_a_thread():
    scene = Scene()
    async with beside(scene.presence.run):
        await scene.presence.home_opened("D1")
        await anyio.sleep(1)
    assert scene.slack.prompts[0]["prompts"] == [{"title": "Hi", "message": "Say hi"}]


async def test_only_the_persons_own_hosts_and_those_of_the_settings_are_linked():
    scene = Scene()
    other = scene.asks("C1")
    scene.show(Taken("see https://mine.example/x", "U1"))
    links = scene.presence.links_for(scene.thread, scene.root, live=False)
    assert links.allowed == {"ok.example", "mine.example"}
    elsewhere = ThreadId("slack", "T1", "C1", scene.root)
    assert scene.presence.links_for(elsewhere, scene.root, live=False).allowed == {"ok.example"}
    assert scene.presence.links_for(scene.thread, other, live=False).allowed == {"ok.example"}


async def test_a_turn_that_is_stopped_leaves_its_text_with_a_mark():
    scene = Scene()
    async with beside(scene.presence.run):
        scene.show(TurnStarted("x", "U1"), TextDelta("one "))
        await anyio.sleep(3)
        assert scene.presence.live_in(scene.thread) == {scene.slack.posts("D1")[0].ts}
        scene.show(TurnSettled("stopped"))
        await anyio.sleep(10)
    [post] = scene.slack.posts("D1")
    assert post.text == "one \n\n_(stopped)_"


async def test_turns_that_never_end_are_forgotten_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr("transports.shared.live.presence.MOST_LIVE", 20)
    scene = Scene()
    async with beside(scene.presence.run):
        for number in range(100):
            thread = ThreadId("slack", "T1", "D1", f"{number + 1}.000100")
            scene.presence.show(thread, thread.root, TurnStarted("x"))
            scene.presence.show(thread, thread.root, TextDelta("word "))
        await anyio.sleep(1)
        assert (
            len(scene.presence._messages) == len(scene.presence._running) == len(scene.presence._beats) == 20
        )


async def _turn(scene, thread, ts, seconds, told):
    """A turn that says a word every half second, then its answer."""
    said = ""
    scene.presence.show(thread, ts, Taken("x", "U1"))
    scene.presence.show(thread, ts, TurnStarted("x", "U1"))
    for number in range(int(seconds * 2)):
        said += (word := f"word{number} ")
        scene.presence.show(thread, ts, TextDelta(word))
        await anyio.sleep(0.5)
    began = anyio.current_time()
    await scene.answer(thread, ts, f"{said}end")
    told.append(anyio.current_time() - began)


DIRECT, SHARED = [f"D{number}" for number in range(100)], [f"C{number}" for number in range(20)]


@pytest.mark.parametrize(
    "channels", [DIRECT, SHARED, DIRECT[:20] + SHARED], ids=["direct", "channels", "both"]
)
async def test_a_hundred_streamed_answers_at_once_keep_to_the_limits_and_starve_nobody(channels):
    scene = Scene()
    told, threads = [], []
    for channel in channels:
        scene.slack.channel(channel, kind="im" if channel.startswith("D") else "public", user="U1")
    async with beside(scene.presence.run):
        async with anyio.create_task_group() as turns:
            for number in range(100):
                channel = channels[number % len(channels)]
                ts = scene.asks(channel)
                threads.append(ThreadId("slack", "T1", channel, ts))
                turns.start_soon(partial(_turn, scene, threads[-1], ts, 300, told))
        await anyio.sleep(600)
    assert len(told) == 100
    assert max(told) < 25, "a final text has half a minute to get through"
    assert not scene.slack.limited
    for thread in threads:
        posts = scene.slack.thread(thread.channel, thread.root)[1:]
        assert any(_says(post, "end") for post in posts)
        assert not any(post.stream and post.stream.state == "streaming" for post in posts)
        assert scene.slack.session(thread.channel, thread.root).status == "active"
        assert scene.slack.status(thread.channel, thread.root) == ""
        assert scene.slack.message(thread.root).reactions == {}
        assert _longest_silence(scene.slack, thread) < 45, "a live draft was starved"
    assert sum(len(scene.slack.thread(thread.channel, thread.root)) > 2 for thread in threads) == 0
    live = {thread for thread in threads if len(_times(scene.slack, thread)) > 2}
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
            scene = Scene.__new__(Scene)
            scene.slack, scene.channel = slack, "D1"
            scene.presence, scene.posting = Presence(web, team="T1"), Posting(web, ME)
            scene.root = scene.asks()
            scene.thread = ThreadId("slack", "T1", "D1", scene.root)
            async with beside(scene.presence.run):
                scene.show(TurnStarted("hello", "U1"), ToolStarted("shell", "ls", "c1"))
                await slack.until(lambda: slack.posts("D1"))
                scene.show(ToolFinished("shell", True, "c1"), TextDelta("It says "))
                await slack.until(lambda: slack.posts("D1")[0].text == "It says ")
                await scene.answer(scene.thread, scene.root, "It says four.")
                await slack.until(lambda: scene.session.status == "active" and not scene.status)
            [post] = slack.posts("D1")
            assert _says(post, "It says four.")
            assert post.stream.state == "stopped"
            assert [chunk["status"] for chunk in post.stream.chunks] == ["in_progress", "complete"]
            assert not [call for call in slack.calls if call.error]
