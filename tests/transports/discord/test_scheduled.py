"""A message that no person typed, and that Discord has no id of, is answered in its thread like any other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.fakes.discord import CHANNEL, GUILD, U1
from tests.transports.discord.posting_case import PostingCase, discord_and_rest
from threads.model import Author
from threads.scheduled_messages import scheduled_id
from transports.discord.post.nonces import question_of, since_of

ANN = Author(U1, "ann")


@pytest.fixture
async def case():
    async with discord_and_rest() as (discord, rest):
        yield await PostingCase.start(discord, rest)


def scheduled(case, ago=0):
    due = datetime.fromtimestamp(case.discord.wall(), UTC) - timedelta(seconds=ago)
    message_id = scheduled_id("s1", due)
    return {"key": f"discord:{GUILD}:{CHANNEL}:{message_id}", "reply_to": message_id}


async def test_long_after_a_crash_it_is_still_found_by_its_words(case):
    await case.post("before")
    fields = scheduled(case)
    posted = await case.post("⏰ the news", **fields)
    case.discord.later(400)  # Discord shows no nonce any more
    case.restart()
    assert await case.find(key=fields["key"]) is None
    await case.post("⏰ the news", **fields)
    assert [message.id for message in case.posts()][1:] == [posted]


async def test_the_same_words_of_an_earlier_day_are_another_answer(case):
    await case.post("before")
    await case.post("⏰ the news", **scheduled(case))
    case.discord.later(86_400)
    fields = scheduled(case)
    case.restart()
    assert await case.find(key=fields["key"]) is None
    await case.post("⏰ the news", **fields)
    assert case.visible() == ["before", "⏰ the news", "⏰ the news"]


async def test_what_a_killed_process_left_unfinished_of_its_answer_is_swept(case):
    await case.post("before")
    fields = scheduled(case)
    await case.draft("half an ans", key=fields["key"])
    case.restart()
    await case.posting.sweep(case.thread, fields["key"], live=())
    assert case.visible() == ["before"]


def test_it_names_no_message_but_a_time():
    key = f"discord:1:2:{scheduled_id('s1', datetime(2026, 11, 22, 11, tzinfo=UTC))}"
    assert question_of(key) == ""
    assert since_of(key) == since_of(f"{key}?q1") != ""
    assert since_of("discord:1:2:press-1") == ""
    assert since_of("discord:1:2:1234") == "1234"
