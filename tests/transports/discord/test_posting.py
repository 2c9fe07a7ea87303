"""Posting to a Discord that fails at every point: nothing lost, nothing doubled, nothing left behind."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import contextmanager, suppress
from dataclasses import replace

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.discord import CHANNEL, U1, Cut, RateLimited, Refused, Slow, Status
from tests.transports.discord.desk import Desk, discord_and_rest
from threads.errors import PostFailed, TransportUnavailable
from transports.shared.delivery import outbox, rewrite

pytestmark = pytest.mark.anyio

SEND = "POST /channels/{}/messages"
EDIT = "PATCH /channels/{}/messages/{}"
DELETE = "DELETE /channels/{}/messages/{}"


@pytest.fixture(autouse=True)
def impatient():
    with patience(0.0):
        yield


@pytest.fixture
async def desk():
    async with discord_and_rest() as (discord, rest):
        yield await Desk.asked(discord, rest)


async def test_an_answer_is_posted_in_the_thread_of_its_question(desk):
    posted = await desk.post("because")

    [message] = desk.posts()
    assert (message.id, message.content) == (posted, "because")
    assert desk.posts(CHANNEL) == []
    [call] = desk.discord.calls_to(SEND)
    assert "message_reference" not in call.body  # the question is in another channel


async def test_what_a_model_writes_pings_nobody_and_shows_no_preview(desk):
    await desk.post(f"@everyone see https://example.com <@{U1}>")

    assert desk.discord.pings == []
    assert desk.discord.unfurls == []


async def test_a_follow_up_is_answered_as_a_reply_to_it(desk):
    await desk.post("first")
    other = await desk.follow_up()

    await other.post("second")

    assert [message.reply_to for message in desk.posts()] == ["", other.question]


async def test_a_long_answer_comes_in_parts_of_which_the_first_is_the_reply(desk):
    await desk.post("first")
    other = await desk.follow_up()

    await other.post(long(3))

    parts = desk.posts()[1:]
    assert together(part.content for part in parts) == together([long(3)])
    assert [bool(part.reply_to) for part in parts] == [True, False, False]
    assert len({part.nonce for part in parts}) == 3


CRASHES = {
    "a 503": (Status(503), 1),
    "a 503 after it was stored": (Status(503, applied=True), 1),
    "a cut before it was stored": (Cut(), 1),
    "a cut after it was stored": (Cut(applied=True), 1),
    "a page of some box on the way": (Status(502, applied=True), 1),
    "a 500 after it was stored, which the library tries again": (Status(500, applied=True), 1),
    "a rate limit, which the library waits for": (RateLimited(0.01), 1),
    "several": (Cut(applied=True), 3),
}


@pytest.mark.parametrize(("fault", "times"), CRASHES.values(), ids=CRASHES)
async def test_whatever_happens_to_the_call_there_is_one_answer(desk, fault, times):
    desk.discord.fail(SEND, *[fault] * times)

    posted = await desk.outbox().post(desk.answer("because"))

    assert [(message.id, message.content) for message in desk.posts()] == [(posted, "because")]


@pytest.mark.parametrize("fault", [Cut(applied=True), Cut(), Status(503, applied=True), Status(503)])
@pytest.mark.parametrize("at", range(3))
async def test_a_part_that_is_lost_is_mended_and_no_other_is_doubled(desk, fault, at):
    desk.discord.fail(SEND, fault, when=lambda call: len(desk.posts()) == at)

    await desk.outbox().post(desk.answer(long(3)))

    assert together(desk.shown()) == together([long(3)])
    assert len(desk.posts()) == 3


async def test_a_new_process_goes_on_where_the_killed_one_stopped(desk):
    desk.discord.fail(SEND, Cut(), when=lambda call: len(desk.posts()) == 2)
    with pytest.raises(TransportUnavailable):
        await desk.post(long(3))
    first = desk.posts()[0].id
    desk.restart()

    assert await desk.find() is None
    assert await desk.post(long(3)) == first
    assert together(desk.shown()) == together([long(3)])
    assert len(desk.posts()) == 3


@pytest.mark.parametrize("parts", [1, 3])
async def test_an_answer_is_known_by_its_words_when_discord_has_forgotten_its_nonce(desk, parts):
    posted = await desk.post(long(parts))
    desk.restart()
    desk.discord.later(400)

    assert await desk.find() is None
    assert await desk.post(long(parts)) == posted
    assert len(desk.posts()) == parts


async def test_an_answer_that_was_cut_off_is_known_by_its_words_in_the_same_process(desk):
    desk.discord.fail(SEND, Cut(applied=True))
    with pytest.raises(PostFailed):
        await desk.post("because")
    desk.discord.later(400)

    assert await desk.find() == desk.posts()[0].id


async def test_what_is_found_needs_no_second_post(desk):
    desk.discord.fail(SEND, Cut(applied=True))
    await desk.outbox().post(desk.answer())

    assert len(desk.discord.calls_to(SEND)) == 1


async def test_the_same_words_in_answer_to_another_question_are_another_answer(desk):
    await desk.post("no")
    other = await desk.follow_up()
    await other.post("no")
    third = await desk.follow_up()
    desk.discord.later(400)
    third.restart()

    assert await third.find() is None
    await third.post("no")

    assert [message.reply_to for message in desk.posts()] == ["", other.question, third.question]


async def test_words_of_a_person_or_of_before_the_question_are_no_answer(desk):
    await desk.post("no")
    other = await desk.follow_up()
    await desk.discord.say(U1, desk.thread.root, "no")
    desk.discord.later(400)
    other.restart()

    assert await other.find() is None
    await other.post("no")

    assert len(desk.posts()) == 2


async def test_an_answer_goes_into_its_live_message(desk):
    draft = await desk.draft("beca")

    assert await desk.post("because", [draft]) == draft.id

    [message] = desk.posts()
    assert (message.content, message.buttons) == ("because", [])


async def test_an_answer_shorter_than_its_live_messages_takes_the_rest_away(desk):
    drafts = [await desk.draft("one"), await desk.draft("two", 1), await desk.draft("three", 2)]

    assert await desk.post("because", drafts) == drafts[0].id

    assert desk.shown() == ["because"]


async def test_an_answer_longer_than_its_live_messages_goes_on_below_them(desk):
    drafts = [await desk.draft("one"), await desk.draft("two", 1)]

    await desk.post(long(4), drafts)

    assert together(desk.shown()) == together([long(4)])
    assert [message.id for message in desk.posts()[:2]] == [draft.id for draft in drafts]


REFUSALS = {
    "deleted": (Refused(404, 10008), 1),
    "too old": (Refused(400, 30046), 1),
    "locked": (Refused(403, 50083), 1),
    "down for long": (Status(503), 9),
}


@pytest.mark.parametrize(("fault", "times"), REFUSALS.values(), ids=REFUSALS)
async def test_a_live_message_that_takes_no_text_is_replaced(desk, fault, times):
    draft = await desk.draft("beca")
    desk.discord.fail(EDIT, *[fault] * times)

    posted = await desk.post("because", [draft])

    assert [(message.id, message.content) for message in desk.posts()] == [(posted, "because")]
    assert posted != draft.id


async def test_a_live_message_that_became_another_part_is_not_written_over_again(desk):
    """The first one cannot be edited, so the second one, which has the nonce of the second part, becomes the first."""
    drafts = [await desk.draft("one"), await desk.draft("two", 1)]
    desk.discord.fail(EDIT, Cut(), Cut())

    await desk.post(long(2), drafts)

    assert together(desk.shown()) == together([long(2)])


async def test_a_live_message_of_an_hour_ago_is_not_edited(desk):
    """Discord would let the edit wait for minutes (30046)."""
    draft = await desk.draft("beca")
    desk.discord.later(3300)

    await desk.post("because", [draft])

    assert desk.shown() == ["because"]
    assert desk.discord.calls_to(EDIT) == []


async def test_the_answer_waits_when_its_live_message_can_be_neither_edited_nor_deleted(desk):
    """The edit may have been carried out: a second message would double the answer."""
    draft = await desk.draft("beca")
    desk.discord.fail(EDIT, Status(503, applied=True), forever=True)
    desk.discord.fail(DELETE, Status(503), forever=True)

    with pytest.raises(TransportUnavailable):
        await desk.post("because", [draft])
    desk.discord.heal()
    await desk.post("because", [draft])

    assert desk.shown() == ["because"]


async def test_a_live_message_that_a_killed_process_left_becomes_the_answer(desk):
    draft = await desk.draft("beca")
    desk.restart()
    desk.discord.later(400)

    assert await desk.find() is None
    assert await desk.post("because") == draft.id

    [message] = desk.posts()
    assert (message.content, message.buttons) == ("because", [])


async def test_a_live_message_of_which_nobody_knows_becomes_the_answer(desk):
    """Its post was cut off: the answer has the same nonce."""
    draft = await desk.draft("beca")

    assert await desk.post("because") == draft.id
    assert desk.shown() == ["because"]


async def test_a_live_message_of_this_process_is_not_taken_for_a_leftover(desk):
    draft = await desk.draft("beca")
    await desk.find(live=[draft.id])

    await desk.posting.sweep(desk.thread, desk.key, live=[draft.id])

    assert desk.shown() == ["beca"]


async def test_what_was_left_of_an_answer_that_will_not_come_is_swept(desk):
    await desk.draft("beca")
    await desk.draft("another's", key="discord:1:2:3")
    desk.restart()

    await desk.posting.sweep(desk.thread, desk.key, live=())

    assert desk.shown() == ["another's"]


async def test_an_answer_that_is_out_is_not_swept_whatever_its_nonce_says(desk):
    await desk.post("because")
    desk.restart()

    await desk.posting.sweep(desk.thread, desk.key, live=())

    assert desk.shown() == ["because"]


@pytest.mark.parametrize("alive", [False, True])
async def test_a_message_that_was_deleted_is_not_taken_for_the_answer(desk, alive):
    """Discord does not say what it answers under the nonce of one that is gone; the answer must appear."""
    draft = await desk.draft("beca")
    desk.discord.delete(draft.id)
    ghost = replace(desk.discord.message(draft.id), deleted=not alive)
    desk.discord.nonces.recent = lambda nonce: ghost if nonce == ghost.nonce else None

    await desk.post("because")

    assert desk.shown() == ["because"]


async def test_a_thread_that_is_locked_is_told_of_once_in_its_channel(desk):
    await desk.post("first")
    desk.discord.lock(desk.thread.root)
    other = await desk.follow_up()

    for text in ("second", "third"):
        desk.discord.later(400)
        with pytest.raises(PostFailed) as failed:
            await other.post(text, key=f"{desk.key}{text}")
        assert not failed.value.retryable

    assert desk.shown() == ["first"]
    [notice] = desk.posts(CHANNEL)
    assert (notice.reply_to, f"<#{desk.thread.root}> is locked" in notice.content) == (desk.question, True)


async def test_an_archived_thread_is_opened_by_the_answer(desk):
    draft = await desk.draft("beca")
    desk.discord.archive(desk.thread.root)

    await desk.post("because", [draft])

    assert desk.shown() == ["because"]


async def test_a_thread_that_was_deleted_ends_the_matter(desk):
    await desk.post("first")
    desk.discord.delete_channel(desk.thread.root)

    with pytest.raises(PostFailed) as failed:
        await desk.outbox().post(desk.answer("second", key=f"{desk.key}2"))

    assert not failed.value.retryable
    assert desk.posts(CHANNEL) == []
    assert await desk.find(key=f"{desk.key}2") is None


async def test_a_permission_that_is_missing_is_said_and_not_tried_again(desk):
    desk.discord.deny(CHANNEL, "SEND_MESSAGES_IN_THREADS", "SEND_MESSAGES")

    with pytest.raises(PostFailed, match="Send Messages"):
        await desk.outbox().post(desk.answer())

    assert len(desk.discord.calls_to(SEND)) == 2  # in the thread, and in place of it


async def test_an_answer_of_many_parts_is_not_given_up_while_parts_of_it_go_out(desk):
    desk.limit, turn, text = 0, itertools.cycle([False, True]), long(8)
    desk.discord.fail(SEND, Cut(), forever=True, when=lambda _: next(turn))
    posted = await desk.outbox().post(desk.answer(text))
    assert "".join("".join(message.content for message in desk.posts()).split()) == "".join(text.split())
    assert desk.posts()[0].id == posted and len(desk.posts()) == 8


@pytest.mark.parametrize("how", ["posted", "posted again after a restart", "found"])
async def test_what_stands_in_place_is_known_to_be_of_its_conversation(desk, how):
    desk = await Desk.asked(desk.discord, desk.rest, in_place=[CHANNEL])
    text = long(3)
    if how == "found":  # the last part is out, and its answer is lost
        sends = itertools.count(1)
        desk.discord.fail(SEND, Cut(applied=True), when=lambda _: next(sends) == 3)
    posted = await desk.outbox().post(desk.answer(text))
    if how == "posted again after a restart":
        desk.restart()
        assert await desk.find() is None
        assert await desk.post(text) == posted
    parts = [message.id for message in desk.posts(CHANNEL)]
    assert len(parts) == 3 and parts[0] == posted
    assert [desk.destinations.root_of(part) for part in parts] == [desk.question] * 3


def long(parts):
    """A text that falls into so many parts."""
    lines = [f"Line {number}: all work and no play makes Jack a dull boy." for number in range(parts * 40)]
    kept, size = [], (parts - 1) * 1_950 + 500
    for line in lines:
        if len("\n\n".join([*kept, line])) > size:
            break
        kept.append(line)
    return "\n\n".join(kept)


def together(texts):
    return "".join("".join(texts).split())


def faulty(fault, most=8):
    return st.lists(st.none() | st.sampled_from(fault), max_size=most)


@settings(max_examples=40, deadline=None)
@given(
    sends=faulty([Cut(), Cut(applied=True), Status(503), Status(503, applied=True)]),
    edits=faulty(
        [Cut(), Cut(applied=True), Status(503, applied=True), Refused(404, 10008), Refused(403, 50083)]
    ),
    deletes=faulty([Cut(), Cut(applied=True), Status(503)], most=2),  # at the third, a dash is left
    parts=st.integers(1, 3),
    live=st.integers(0, 3),
    late=st.booleans(),
)
def test_across_faults_and_a_kill_there_is_one_answer(sends, edits, deletes, parts, live, late):
    """A post that was given up is finished by the next process: looked for, then posted."""

    async def play():
        async with discord_and_rest() as (discord, rest):
            desk = await Desk.asked(discord, rest)
            drafts = [await desk.draft(f"draft {part}", part) for part in range(live)]
            for route, faults in ((SEND, sends), (EDIT, edits), (DELETE, deletes)):
                discord.fail(route, *(fault or Slow(0) for fault in faults))
            with suppress(PostFailed):
                await desk.outbox(drafts).post(desk.answer(long(parts)))
            discord.heal()
            if late:
                discord.later(400)
            desk.restart()
            await desk.find()
            await desk.post(long(parts))
            assert together(desk.shown()) == together([long(parts)])
            assert all(not message.buttons for message in desk.posts())

    with patience(0.0):
        anyio.run(play)


@contextmanager
def patience(seconds):
    """Waits of ours, and those of discord.py before it tries again, are as short as that."""
    asleep = asyncio.sleep
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outbox, "PAUSES_S", (seconds,) * 3)
        patch.setattr(rewrite, "PAUSES_S", (seconds,) * 2)
        patch.setattr(asyncio, "sleep", lambda delay, *more: asleep(min(delay, 0.01), *more))
        yield
