"""What is said in a joined thread without the bot is there in its next turn, and costs one call; nothing new costs none.

Slack's and Discord's clocks are ahead of ours here: what was said just before the link came up may be missed.
"""

from __future__ import annotations

import time
from functools import partial

import pytest

from bot.agent.prompt.earlier_lines import MOST_LINES
from bot.extensions.files.fetch import FetchFile
from tests.fakes.discord import CHANNEL, FakeDiscord
from tests.fakes.slack import FakeSlack
from tests.tool_context import make_toolbox
from tests.transports.chats import InDiscord, InSlack, told
from tests.world import Scripted, says
from threads.background import background_tasks
from threads.model import Message, ToolCall
from transports.discord.api.rest import MAX_PAGE
from transports.slack.api.rate_limits import RateLimits

AHEAD_S = 60


def ahead():
    return time.time() + AHEAD_S


@pytest.fixture(params=[(FakeSlack, InSlack), (FakeDiscord, InDiscord)], ids=["slack", "discord"])
async def chat(request):
    fake, seen = request.param
    async with fake(wall=ahead) as server:
        yield seen(server)


@pytest.fixture
def bot(chat, tmp_path):
    return partial(chat.running, tmp_path)


def messages(chat, thread):
    return chat.fake.thread("C1", thread) if chat.name == "slack" else chat.fake.messages(thread)


def looks(chat):
    """Return how often the lines of a thread before a message were asked for."""
    if chat.name == "slack":
        return sum("latest" in call.args for call in chat.fake.calls_to("conversations.replies"))
    asked = (call.query for call in chat.fake.calls_to("GET /channels/{}/messages"))
    return sum("before" in query and query["limit"] == f"{MAX_PAGE}" for query in asked)


async def test_lines_that_are_not_for_the_bot_are_in_its_next_turn_and_are_asked_for_once(chat, bot):
    model = Scripted(*map(says, ("one", "two", "three", "four")))
    async with bot(model):
        thread = await chat.ask("hi")
        await told(chat, thread, "one")
        await chat.say(thread, "and now?")
        await told(chat, thread, "two")
        assert looks(chat) == 0, "nobody said anything before, or without the bot"
        await chat.bots_say(thread)
        await chat.say(thread, f"<@{chat.bob}> shall we roll back?")
        await chat.say(thread, f"{chat.mention} what do you think?")
        await told(chat, thread, "three")
        assert looks(chat) == 1
        await chat.say(thread, "thanks")
        await told(chat, thread, "four")
        assert looks(chat) == 1
    last = model.requests[-1].messages
    text = last[4].text
    assert "beep" in text
    assert "shall we roll back?" in text
    assert last[4].blocks[0].outside
    assert not any(words in text for words in ("] hi", "and now?", "> [you]"))
    assert str(last).count("beep") == 1


async def test_what_was_said_while_the_bot_was_away_is_asked_for_once(chat, bot):
    async with bot(Scripted(says("one"))):
        thread = await chat.ask("hi")
        await told(chat, thread, "one")
    async with background_tasks() as tasks:
        tasks.start_soon(chat.bots_say, thread)  # nobody takes the event
        await chat.fake.until(lambda: any("beep" in str(message) for message in messages(chat, thread)))
    async with bot(model := Scripted(says("two"), says("three"))):
        await chat.say(thread, "what is it?")
        await told(chat, thread, "two")
        assert looks(chat) == 1
        await chat.say(thread, "thanks")
        await told(chat, thread, "three")
        assert looks(chat) == 1
    assert "beep" in model.requests[0].messages[2].text


async def thread_with(chat, name, content):
    """Begin a thread that is not for the bot, with a file in its first message."""
    if chat.name == "slack":
        return (
            await chat.fake.say("U1", "C1", "look", files=[chat.fake.file(name, content, "text/plain")])
        ).ts
    said = await chat.fake.say(chat.ann, CHANNEL, "look", files=[(name, content, "text/plain")])
    return (await chat.fake.thread(chat.ann, said, "look")).id


async def send(chat, thread, name, content):
    """Send a file to a thread."""
    if chat.name == "slack":
        held = [chat.fake.file(name, content, "text/plain")]
        await chat.fake.say("U2", "C1", "", files=held, thread_ts=thread)
    else:
        await chat.fake.say(chat.bob, thread, "", files=[(name, content, "text/plain")])


async def test_a_file_of_the_root_comes_with_a_question_in_its_thread(chat, bot, tmp_path):
    async with bot(model := Scripted()):
        thread = await thread_with(chat, "app.log", b"no space left")
        await chat.say(thread, f"{chat.mention} what is wrong in that file?")
        await told(chat, thread, "ok")
    assert "app.log (text/plain, 13 bytes; its text is below)" in model.requests[0].messages[0].text
    [stored] = tmp_path.rglob("attachments/*-app.log")
    assert stored.read_bytes() == b"no space left"


async def test_an_older_file_is_got_by_its_name(chat, bot, tmp_path):
    fetch = Message("assistant", (ToolCall("c1", "fetch_file", {"name": "old.log"}),))
    async with bot(model := Scripted(fetch, says("read")), toolbox=make_toolbox([FetchFile()])):
        thread = await thread_with(chat, "app.log", b"no space left")
        await send(chat, thread, "old.log", b"older words")
        for _ in range(MOST_LINES):
            await chat.bots_say(thread)
        await chat.say(thread, f"{chat.mention} and the old one?")
        await told(chat, thread, "read")
    [stored] = tmp_path.rglob("attachments/*-old.log")
    assert stored.read_bytes() == b"older words"
    [result] = model.requests[1].messages[-1].results
    assert "old.log (text/plain, 11 bytes; its text is below)" in result.content


async def test_turns_ask_while_other_workers_hear_a_part_and_soon_after_no_more(tmp_path):
    turns = {"two": (2, 1, 1), "three": (2, 1, 2), "four": (1, 2, 3), "five": (1, 2, 4), "six": (1, 2, 4)}
    async with FakeSlack(wall=ahead) as fake:
        chat = InSlack(fake)
        async with chat.running(tmp_path, Scripted(*map(says, ("one", *turns)))) as edge:
            thread = await chat.ask("hi")
            await told(chat, thread, "one")
            for words, (workers, seen, looked) in turns.items():
                edge.limits = RateLimits(workers=partial(int, workers))
                edge.others_seen = partial(int, seen)
                await chat.say(thread, "and now?")
                await told(chat, thread, words)
                assert looks(chat) == looked
