"""A message that no person typed, and that Discord has no id of, is answered in its thread like any other."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

import anyio
import pytest

from tests.fakes.discord import BOT, CHANNEL, GUILD, U1, FakeDiscord
from tests.transports.bot import bot_over
from tests.transports.discord.bot import answers, transport
from tests.transports.discord.posting_case import PostingCase, discord_and_rest
from tests.world import Scripted, calls, says
from threads.model import Author, Incoming, ThreadId
from threads.scheduled_messages import scheduled_id
from transports.discord.post.nonces import question_of, since_of

pytestmark = pytest.mark.anyio

ANN = Author(U1, "ann")


@pytest.mark.parametrize("where", ["thread", "direct", "in place"])
async def test_its_answer_comes_in_the_conversation_and_nothing_is_asked_of_discord_about_its_id(
    tmp_path, caplog, where
):
    model = Scripted(says("one"), calls("list_files", path="."), says("two"))
    async with FakeDiscord() as discord:
        options = {"in_place": frozenset({CHANNEL})} if where == "in place" else {}
        edge, sinks = transport(discord, tmp_path, **options), []
        serve = edge.serve

        async def serving(sink):
            sinks.append(sink)
            await serve(sink)

        edge.serve = serving
        async with bot_over(edge, tmp_path, model):
            if where == "direct":
                shown = discord.dm(U1)
                await discord.say(U1, shown, "hi")
                thread = ThreadId("discord", "@me", shown, shown)
            else:
                said = await discord.say(U1, CHANNEL, f"<@{BOT}> hi")
                shown = said.id if where == "thread" else CHANNEL
                thread = ThreadId("discord", GUILD, CHANNEL, said.id)
            await discord.until(lambda: answers(discord, shown) == ["one"])
            due = datetime.now(UTC)
            caplog.clear()
            for _ in range(2):
                await sinks[0](
                    Incoming(scheduled_id("s1234", due), thread, ANN, "do it @everyone", due.isoformat())
                )
            await discord.until(lambda: answers(discord, shown)[-1].endswith("two"))
            await anyio.sleep(0.3)
            said = answers(discord, shown)
            assert said[0] == "one"
            assert said[1].startswith("⏰ Scheduled by ann: do it ")
            assert len(said) == 2
            assert discord.pings == []
            assert [one.message for one in caplog.records if one.levelno >= logging.WARNING] == []


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
