"""Where a conversation is held: threads are opened once, when they are due, and never stood in for lightly."""

from __future__ import annotations

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.discord import BOT, CHANNEL, CHANNEL2, FORUM, GUILD, U1, VOICE, Cut, Refused, Status
from tests.transports.discord.posting_case import PostingCase, discord_and_rest
from threads.errors import PostFailed, TransportUnavailable
from threads.model import ThreadId
from transports.discord.markdown.render import utf16_size
from transports.discord.post import thread_opening as module
from transports.discord.post.nonces import MAX_NONCE, nonce_of, question_of
from transports.discord.post.thread_opening import (
    REFUSED_PAUSE_S,
    UNTITLED,
    Destination,
    Destinations,
    title_of,
)

OPEN = "POST /channels/{}/messages/{}/threads"
LOOK = "GET /channels/{}"


@pytest.fixture
async def world():
    async with discord_and_rest() as (discord, rest):
        yield discord, rest


@pytest.fixture
async def case(world):
    return await PostingCase.start(*world)


async def test_a_thread_is_opened_when_it_is_due_and_named_after_the_question(case):
    assert case.discord.threads(CHANNEL) == []

    assert await case.destinations.open(case.thread) == Destination(case.question)

    [thread] = case.discord.threads(CHANNEL)
    assert (thread.id, thread.name) == (case.question, "how?")


async def test_many_who_need_the_thread_open_it_once(case):
    destinations = []

    async def enter():
        destinations.append(await case.destinations.open(case.thread))

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(enter)

    assert destinations == [Destination(case.question)] * 20
    assert len(case.discord.calls_to(OPEN)) == 1


async def test_a_thread_that_is_slow_to_open_holds_up_no_other(world):
    case, other = await PostingCase.start(*world), await PostingCase.start(*world, channel=CHANNEL2)
    other.destinations = case.destinations
    other.destinations.note_question(other.thread, "other")
    gate = case.discord.gate(OPEN, when=lambda call: call.path["message"] == case.question)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(case.destinations.open, case.thread)
        await gate.reached()
        assert await case.destinations.open(other.thread) == Destination(other.question)
        gate.open()


async def test_a_thread_that_somebody_else_opened_is_the_one(case):
    """Discord refuses to open it again (160004)."""
    case.discord.thread(U1, case.question, "mine")

    await case.post("because")

    assert case.visible() == ["because"]
    assert case.posts(CHANNEL) == []


@pytest.mark.parametrize("fault", [Cut(applied=True), Cut(), Status(503), Status(503, applied=True)])
async def test_a_thread_whose_opening_got_no_answer_is_opened_with_the_next_try(case, fault):
    case.discord.fail(OPEN, fault)
    with pytest.raises(TransportUnavailable):
        await case.post("because")

    await case.post("because")

    assert case.visible() == ["because"]
    assert case.posts(CHANNEL) == []


async def test_after_a_restart_a_thread_is_there_and_a_later_one_is_opened(world):
    case, other = (
        await PostingCase.start(*world),
        await PostingCase.start(*world, text=f"<@{BOT}> **why**\nand how"),
    )
    await case.post("first")
    case.restart()
    other.restart()

    assert await case.destinations.open(case.thread) == Destination(case.question)
    assert await other.destinations.open(other.thread) == Destination(other.question)
    assert [thread.name for thread in case.discord.threads(CHANNEL)] == ["how?", "**why**"]
    assert len(case.discord.calls_to(OPEN)) == 2


async def test_a_thread_that_is_known_to_stand_costs_no_call(world):
    discord, rest = world
    thread = ThreadId("discord", GUILD, CHANNEL, "123456789")
    destinations = Destinations(rest)

    destinations.note_thread(thread)
    before = len(discord.calls)

    assert await destinations.open(thread) == destinations.known(thread) == Destination("123456789")
    assert len(discord.calls) == before


async def test_a_question_that_is_gone_gets_a_friendly_refusal(case):
    case.restart()
    case.discord.delete(case.question)

    with pytest.raises(PostFailed) as failed:
        await case.post("because")

    assert failed.value.friendly == module.QUESTION_GONE
    assert not failed.value.retryable


async def test_a_conversation_that_goes_on_by_replies_outlives_its_first_message_and_a_restart(case):
    case.restart()
    case.discord.delete(case.question)
    case.destinations.note_answers(case.question, ["1"])

    assert await case.destinations.open(case.thread) == Destination(CHANNEL, case.question)


@pytest.mark.parametrize("fault", [Status(503), Refused(403, 50001)])
async def test_when_discord_does_not_say_whether_the_thread_is_there_nothing_is_opened(case, fault):
    case.restart()
    case.discord.fail(LOOK, fault)

    with pytest.raises(PostFailed):
        await case.destinations.open(case.thread)

    assert case.discord.calls_to(OPEN) == []


NO_THREADS = {
    "no permission": Refused(403, 50013, "Missing Permissions"),
    "no access": Refused(403, 50001),
    "a kind of channel without threads": Refused(400, 50024),
    "as many threads as can be": Refused(400, 160006),
    "something Discord has not said before": Refused(400, 999_999),
}


@pytest.mark.parametrize("fault", NO_THREADS.values(), ids=NO_THREADS)
async def test_where_no_thread_can_be_had_the_answer_is_a_reply_in_the_channel(case, fault):
    case.discord.fail(OPEN, fault)

    await case.post("one two " * 400)

    posts = case.posts(CHANNEL)
    assert len(posts) == 2
    assert [post.reply_to for post in posts] == [case.question] * 2
    assert case.destinations.known(case.thread) == Destination(CHANNEL, case.question)


async def test_in_a_voice_channel_the_answer_is_a_reply(world):
    case = await PostingCase.start(*world, channel=VOICE)

    await case.post("because")

    [post] = case.posts(VOICE)
    assert post.reply_to == case.question


async def test_in_place_each_answer_replies_to_its_own_question(world):
    case = await PostingCase.start(*world, in_place=[CHANNEL])
    await case.post("first")
    question = await case.discord.say(U1, CHANNEL, "and then?", reply_to=case.posts(CHANNEL)[0])
    other = PostingCase(case.discord, case.rest, question, case.thread, [CHANNEL])

    await other.post("second")

    assert [post.reply_to for post in case.posts(CHANNEL)] == [case.question, other.question]
    assert case.discord.calls_to(OPEN) == []


async def test_in_place_the_same_words_to_another_question_are_another_answer(world):
    case = await PostingCase.start(*world, in_place=[CHANNEL])
    other = await PostingCase.start(*world, in_place=[CHANNEL])
    await case.post("no")
    case.discord.later(400)

    await other.find()
    await other.post("no")

    assert [post.reply_to for post in case.posts(CHANNEL)] == [case.question, other.question]


async def test_a_thread_in_a_channel_without_new_ones_is_still_where_it_is(world):
    discord, rest = world
    thread = await discord.loose_thread(U1, CHANNEL, "ours")
    question = await discord.say(U1, thread.id, f"<@{BOT}> how?")
    case = PostingCase(discord, rest, question, ThreadId("discord", GUILD, CHANNEL, thread.id), [CHANNEL])

    await case.post("because")

    assert case.visible() == ["because"]


async def test_a_channel_without_threads_is_asked_again_after_a_while_and_told_of_once(
    world, caplog, monkeypatch
):
    discord, rest = world
    now = 0.0
    monkeypatch.setattr(module.anyio, "current_time", lambda: now)
    discord.deny(CHANNEL, "CREATE_PUBLIC_THREADS")
    case = await PostingCase.start(discord, rest)

    async def asked(channel=CHANNEL):
        said = await discord.say(U1, channel, "how?")
        thread = ThreadId("discord", GUILD, channel, said.id)
        case.destinations.note_question(thread, "how?")
        return (await case.destinations.open(thread)).channel == said.id

    assert [await asked() for _ in range(5)] == [False] * 5
    assert await asked(CHANNEL2)
    assert len(discord.calls_to(OPEN)) == 2
    now += REFUSED_PAUSE_S
    assert not await asked()
    discord.allow(CHANNEL, "CREATE_PUBLIC_THREADS")
    now += REFUSED_PAUSE_S
    assert await asked()
    assert [record.getMessage().count("Create Public Threads") for record in caplog.records] == [1]


async def test_what_is_out_in_place_stays_there_after_a_restart(case):
    case.discord.deny(CHANNEL, "CREATE_PUBLIC_THREADS")
    text = "one two " * 400
    case.discord.fail("POST /channels/{}/messages", Cut(), when=lambda call: len(case.posts(CHANNEL)) == 1)
    with pytest.raises(TransportUnavailable):
        await case.post(text)
    case.restart()
    case.discord.allow(CHANNEL, "CREATE_PUBLIC_THREADS")
    case.discord.later(400)

    await case.find()
    await case.post(text)

    assert len(case.posts(CHANNEL)) == 2
    assert case.discord.threads(CHANNEL) == []


async def test_a_direct_message_is_answered_where_it_was_said(world):
    case = await PostingCase.in_dm(*world)

    await case.post("because")

    [post] = case.posts(case.thread.channel)
    assert post.reply_to == case.question


async def test_a_post_to_a_channel_itself_begins_no_thread(world):
    discord, rest = world
    case = await PostingCase.start(discord, rest)

    await case.post(
        "look here", thread=ThreadId("discord", GUILD, CHANNEL2, ""), key="escalation", reply_to=""
    )

    assert case.visible(CHANNEL2) == ["look here"]


async def test_a_forum_post_is_answered_in_its_thread(world):
    discord, rest = world
    starter = await discord.post(U1, FORUM, "why", f"<@{BOT}> why?")
    thread = ThreadId("discord", GUILD, FORUM, starter.id)
    case = PostingCase(discord, rest, starter, thread)

    await case.post("because")

    assert case.visible(starter.id) == ["because"]


async def test_a_stranger_is_refused_in_place_and_gets_no_thread(case):
    await case.post("You may not.", kind="refusal")
    await case.post("You may not.", kind="refusal")

    [post] = case.posts(CHANNEL)
    assert (post.reply_to, post.content) == (case.question, "You may not.")
    assert case.discord.threads(CHANNEL) == []


async def test_a_stranger_in_a_thread_is_refused_there(case):
    await case.post("first")
    other = await case.follow_up()
    other.restart()

    await other.post("You may not.", kind="refusal")

    assert case.posts()[-1].reply_to == other.question


async def test_how_many_conversations_are_remembered_is_bounded(world, monkeypatch):
    monkeypatch.setattr(module, "REMEMBERED", 3)
    destinations = Destinations(world[1])
    threads = [ThreadId("discord", GUILD, CHANNEL, str(number)) for number in range(1, 10)]

    for thread in threads:
        destinations.note_thread(thread)

    assert [thread for thread in threads if destinations.known(thread)] == threads[-3:]


TITLES = {
    f"<@{BOT}> how?": "how?",
    "\n\n  first   line\t\nsecond": "first line",
    f"<@!{BOT}>\n<#12>\nwhat is it": "what is it",
    "<:party:123> time": ":party: time",
    "a" * 300: "a" * 99 + "…",
    "": UNTITLED,
    f"<@{BOT}>": UNTITLED,
    "\u200b\u200d \x07": UNTITLED,
}


@pytest.mark.parametrize(("text", "title"), TITLES.items())
def test_a_title_is_the_first_line_in_words(text, title):
    assert title_of(text) == title


@given(st.text(max_size=400))
def test_a_title_always_fits_and_is_never_blank(text):
    title = title_of(text)

    assert 0 < utf16_size(title) <= 100
    assert title.strip() == title
    assert "\n" not in title


@given(st.text(), st.integers(0, 199))
def test_a_nonce_fits_and_is_the_same_each_time(key, part):
    assert len(nonce_of(key, part)) <= MAX_NONCE
    assert nonce_of(key, part) == nonce_of(key, part)


def test_parts_and_posts_have_nonces_of_their_own():
    assert len({nonce_of(f"key{key}", part) for key in range(50) for part in range(200)}) == 10_000


@pytest.mark.parametrize(
    ("key", "question"),
    {
        "discord:1:2:345": "345",
        "discord:1:2:345?q1": "345",
        "discord:1:2:345+call:1": "345",
        "discord:1:2:press-ab12": "",
        "discord:1:2:slash-12": "",
        "escalation-7": "",
    }.items(),
)
def test_a_key_names_the_message_that_it_answers(key, question):
    assert question_of(key) == question
