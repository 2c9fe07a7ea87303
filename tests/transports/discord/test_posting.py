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

from tests.fakes.discord import CHANNEL, U1, Cut, Refused, Slow, Status
from tests.transports.discord.posting_case import PostingCase, discord_and_rest
from threads.errors import PostFailed, TransportUnavailable
from threads.model import Choice
from transports.shared.delivery import outbox, rewrite

SEND = "POST /channels/{}/messages"
EDIT = "PATCH /channels/{}/messages/{}"
DELETE = "DELETE /channels/{}/messages/{}"


@pytest.fixture(autouse=True)
def impatient():
    with patience(0.0):
        yield


@pytest.fixture
async def case():
    async with discord_and_rest() as (discord, rest):
        yield await PostingCase.start(discord, rest)


async def test_an_answer_is_posted_in_the_thread_of_its_question(case):
    posted = await case.post("because")

    [message] = case.posts()
    assert (message.id, message.content) == (posted, "because")
    assert case.posts(CHANNEL) == []
    [call] = case.discord.calls_to(SEND)
    assert "message_reference" not in call.body  # the question is in another channel


async def test_what_a_model_writes_pings_nobody_and_shows_no_preview(case):
    await case.post(f"@everyone see https://example.com <@{U1}>")

    assert case.discord.pings == []
    assert case.discord.unfurls == []


async def test_a_follow_up_is_answered_as_a_reply_to_it(case):
    await case.post("first")
    other = await case.follow_up()

    await other.post("second")

    assert [message.reply_to for message in case.posts()] == ["", other.question]


async def test_a_long_answer_comes_in_parts_of_which_the_first_is_the_reply(case):
    await case.post("first")
    other = await case.follow_up()

    await other.post(long(3))

    parts = case.posts()[1:]
    assert together(part.content for part in parts) == together([long(3)])
    assert [bool(part.reply_to) for part in parts] == [True, False, False]
    assert len({part.nonce for part in parts}) == 3


@pytest.mark.parametrize("fault", [Cut(applied=True), Cut(), Status(503, applied=True), Status(503)])
@pytest.mark.parametrize("at", range(3))
async def test_a_part_that_is_lost_is_mended_and_no_other_is_doubled(case, fault, at):
    case.discord.fail(SEND, fault, when=lambda call: len(case.posts()) == at)

    await case.outbox().post(case.answer(long(3)))

    assert together(case.visible()) == together([long(3)])
    assert len(case.posts()) == 3


async def test_a_new_process_goes_on_where_the_killed_one_stopped(case):
    case.discord.fail(SEND, Cut(), when=lambda call: len(case.posts()) == 2)
    with pytest.raises(TransportUnavailable):
        await case.post(long(3))
    first = case.posts()[0].id
    case.restart()

    assert await case.find() is None
    assert await case.post(long(3)) == first
    assert together(case.visible()) == together([long(3)])
    assert len(case.posts()) == 3


@pytest.mark.parametrize("parts", [1, 3])
async def test_an_answer_is_known_by_its_words_when_discord_has_forgotten_its_nonce(case, parts):
    posted = await case.post(long(parts))
    case.restart()
    case.discord.later(400)

    assert await case.find() is None
    assert await case.post(long(parts)) == posted
    assert len(case.posts()) == parts


async def test_an_answer_that_was_cut_off_is_known_by_its_words_in_the_same_process(case):
    case.discord.fail(SEND, Cut(applied=True))
    with pytest.raises(PostFailed):
        await case.post("because")
    case.discord.later(400)

    assert await case.find() == case.posts()[0].id


async def test_what_is_found_needs_no_second_post(case):
    case.discord.fail(SEND, Cut(applied=True))
    await case.outbox().post(case.answer())

    assert len(case.discord.calls_to(SEND)) == 1


async def test_the_same_words_in_answer_to_another_question_are_another_answer(case):
    await case.post("no")
    other = await case.follow_up()
    await other.post("no")
    third = await case.follow_up()
    case.discord.later(400)
    third.restart()

    assert await third.find() is None
    await third.post("no")

    assert [message.reply_to for message in case.posts()] == ["", other.question, third.question]


async def test_words_of_a_person_or_of_before_the_question_are_no_answer(case):
    await case.post("no")
    other = await case.follow_up()
    await case.discord.say(U1, case.thread.root, "no")
    case.discord.later(400)
    other.restart()

    assert await other.find() is None
    await other.post("no")

    assert len(case.posts()) == 2


async def test_an_answer_goes_into_its_live_message(case):
    draft = await case.draft("beca")

    assert await case.post("because", [draft]) == draft.id

    [message] = case.posts()
    assert (message.content, message.buttons) == ("because", [])


async def test_an_answer_shorter_than_its_live_messages_takes_the_rest_away(case):
    drafts = [await case.draft("one"), await case.draft("two", 1), await case.draft("three", 2)]

    assert await case.post("because", drafts) == drafts[0].id

    assert case.visible() == ["because"]


async def test_an_answer_longer_than_its_live_messages_goes_on_below_them(case):
    drafts = [await case.draft("one"), await case.draft("two", 1)]

    await case.post(long(4), drafts)

    assert together(case.visible()) == together([long(4)])
    assert [message.id for message in case.posts()[:2]] == [draft.id for draft in drafts]


REFUSALS = {
    "deleted": (Refused(404, 10008), 1),
    "too old": (Refused(400, 30046), 1),
    "locked": (Refused(403, 50083), 1),
    "down for long": (Status(503), 9),
}


@pytest.mark.parametrize(("fault", "times"), REFUSALS.values(), ids=REFUSALS)
async def test_a_live_message_that_takes_no_text_is_replaced(case, fault, times):
    draft = await case.draft("beca")
    case.discord.fail(EDIT, *[fault] * times)

    posted = await case.post("because", [draft])

    assert [(message.id, message.content) for message in case.posts()] == [(posted, "because")]
    assert posted != draft.id


async def test_a_live_message_that_became_another_part_is_not_written_over_again(case):
    """The first one cannot be edited, so the second one, which has the nonce of the second part, becomes the first."""
    drafts = [await case.draft("one"), await case.draft("two", 1)]
    case.discord.fail(EDIT, Cut(), Cut())

    await case.post(long(2), drafts)

    assert together(case.visible()) == together([long(2)])


async def test_a_live_message_of_an_hour_ago_is_not_edited(case):
    """Discord would let the edit wait for minutes (30046)."""
    draft = await case.draft("beca")
    case.discord.later(3300)

    await case.post("because", [draft])

    assert case.visible() == ["because"]
    assert case.discord.calls_to(EDIT) == []


async def test_the_answer_waits_when_its_live_message_can_be_neither_edited_nor_deleted(case):
    """The edit may have been carried out: a second message would double the answer."""
    draft = await case.draft("beca")
    case.discord.fail(EDIT, Status(503, applied=True), forever=True)
    case.discord.fail(DELETE, Status(503), forever=True)

    with pytest.raises(TransportUnavailable):
        await case.post("because", [draft])
    case.discord.heal()
    await case.post("because", [draft])

    assert case.visible() == ["because"]


async def test_a_live_message_that_a_killed_process_left_becomes_the_answer(case):
    draft = await case.draft("beca")
    case.restart()
    case.discord.later(400)

    assert await case.find() is None
    assert await case.post("because") == draft.id

    [message] = case.posts()
    assert (message.content, message.buttons) == ("because", [])


async def test_a_live_message_of_which_nobody_knows_becomes_the_answer(case):
    """Its post was cut off: the answer has the same nonce."""
    draft = await case.draft("beca")

    assert await case.post("because") == draft.id
    assert case.visible() == ["because"]


async def test_a_live_message_of_this_process_is_not_taken_for_a_leftover(case):
    draft = await case.draft("beca")
    await case.find(live=[draft.id])

    await case.posting.sweep(case.thread, case.key, live=[draft.id])

    assert case.visible() == ["beca"]


async def test_what_was_left_of_an_answer_that_will_not_come_is_swept(case):
    await case.draft("beca")
    await case.draft("another's", key="discord:1:2:3")
    case.restart()

    await case.posting.sweep(case.thread, case.key, live=())

    assert case.visible() == ["another's"]


async def test_an_answer_that_is_out_is_not_swept_whatever_its_nonce_says(case):
    await case.post("because")
    case.restart()

    await case.posting.sweep(case.thread, case.key, live=())

    assert case.visible() == ["because"]


@pytest.mark.parametrize("alive", [False, True])
async def test_a_message_that_was_deleted_is_not_taken_for_the_answer(case, alive):
    """Discord does not say what it answers under the nonce of one that is gone; the answer must appear."""
    draft = await case.draft("beca")
    case.discord.delete(draft.id)
    ghost = replace(case.discord.message(draft.id), deleted=not alive)
    case.discord.nonces.recent = lambda nonce: ghost if nonce == ghost.nonce else None

    await case.post("because")

    assert case.visible() == ["because"]


async def test_an_archived_thread_is_opened_by_the_answer(case):
    draft = await case.draft("beca")
    case.discord.archive(case.thread.root)

    await case.post("because", [draft])

    assert case.visible() == ["because"]


async def test_a_thread_that_was_deleted_ends_the_matter(case):
    await case.post("first")
    case.discord.delete_channel(case.thread.root)

    with pytest.raises(PostFailed) as failed:
        await case.outbox().post(case.answer("second", key=f"{case.key}2"))

    assert not failed.value.retryable
    assert case.posts(CHANNEL) == []
    assert await case.find(key=f"{case.key}2") is None


async def test_a_permission_that_is_missing_is_said_and_not_tried_again(case):
    case.discord.deny(CHANNEL, "SEND_MESSAGES_IN_THREADS", "SEND_MESSAGES")

    with pytest.raises(PostFailed, match="Send Messages"):
        await case.outbox().post(case.answer())

    assert len(case.discord.calls_to(SEND)) == 2  # in the thread, and in place of it


async def test_an_answer_of_many_parts_is_not_given_up_while_parts_of_it_go_out(case):
    case.limit, turn, text = 0, itertools.cycle([False, True]), long(8)
    case.discord.fail(SEND, Cut(), forever=True, when=lambda _: next(turn))
    posted = await case.outbox().post(case.answer(text))
    assert "".join("".join(message.content for message in case.posts()).split()) == "".join(text.split())
    assert case.posts()[0].id == posted and len(case.posts()) == 8


@pytest.mark.parametrize("how", ["posted", "posted again after a restart", "found"])
async def test_what_stands_in_place_is_known_to_be_of_its_conversation(case, how):
    case = await PostingCase.start(case.discord, case.rest, in_place=[CHANNEL])
    text = long(3)
    if how == "found":  # the last part is out, and its answer is lost
        sends = itertools.count(1)
        case.discord.fail(SEND, Cut(applied=True), when=lambda _: next(sends) == 3)
    posted = await case.outbox().post(case.answer(text))
    if how == "posted again after a restart":
        case.restart()
        assert await case.find() is None
        assert await case.post(text) == posted
    parts = [message.id for message in case.posts(CHANNEL)]
    assert len(parts) == 3 and parts[0] == posted
    assert [case.destinations.root_of(part) for part in parts] == [case.question] * 3


THUMBS = ["👍", "👎"]


def labels(message):
    return [label for label, _ in message.buttons]


async def with_thumbs(case, *, on=True):
    """The next process posts with or without thumbs."""
    case.feedback = on
    case.restart()


async def test_thumbs_are_below_the_last_part_of_a_reply_beside_its_choices(case):
    await with_thumbs(case)
    await case.post(long(3), choices=(Choice("Try again", "/retry 1"),))

    assert [labels(message) for message in case.posts()] == [[], [], ["Try again", *THUMBS]]


async def test_an_answer_as_a_file_has_its_thumbs_below_the_beginning(case):
    await with_thumbs(case)
    await case.post(long(8))

    assert [labels(message) for message in case.posts()] == [THUMBS, []]


@pytest.mark.parametrize("kind", ["notice", "error"])
async def test_only_replies_are_judged(case, kind):
    await with_thumbs(case)
    await case.post(kind=kind)

    assert [labels(message) for message in case.posts()] == [[]]


async def test_a_draft_becomes_an_answer_with_thumbs_in_place_of_its_stop_button(case):
    await with_thumbs(case)
    drafts = [await case.draft("an")]
    await case.post("an answer", drafts)

    assert [(m.content, labels(m)) for m in case.posts()] == [("an answer", THUMBS)]


async def test_thumbs_are_no_question_that_is_open(case):
    await with_thumbs(case)
    posted = await case.post()

    assert not case.posting.questions.has_seen(posted)


@pytest.mark.parametrize("on", [True, False])
async def test_an_answer_is_found_when_a_restart_turned_thumbs_on_or_off(case, on):
    await with_thumbs(case, on=not on)
    await case.post()
    case.discord.later(3600)  # by then Discord shows no nonces
    await with_thumbs(case, on=on)
    await case.find()
    await case.post()

    assert len(case.posts()) == 1


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
            case = await PostingCase.start(discord, rest)
            drafts = [await case.draft(f"draft {part}", part) for part in range(live)]
            for route, faults in ((SEND, sends), (EDIT, edits), (DELETE, deletes)):
                discord.fail(route, *(fault or Slow(0) for fault in faults))
            with suppress(PostFailed):
                await case.outbox(drafts).post(case.answer(long(parts)))
            discord.heal()
            if late:
                discord.later(400)
            case.restart()
            await case.find()
            await case.post(long(parts))
            assert together(case.visible()) == together([long(parts)])
            assert all(not message.buttons for message in case.posts())

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
