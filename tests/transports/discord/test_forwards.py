"""A forward and what is said about it are one message for the model, live and after a restart."""

from __future__ import annotations

import pytest

from tests.fakes.discord import BOT, CHANNEL, CHANNEL2, U1, U2, FakeDiscord
from tests.transports.discord.bot import answers, bot_in
from tests.transports.settling import until_received, until_settled
from tests.world import Scripted, says
from transports.discord.events import forwards

NAMED = f"<@{BOT}>"


@pytest.fixture
async def discord():
    async with FakeDiscord() as made:
        yield made


@pytest.fixture
def plan(discord):
    """A message to forward, with a file."""
    return discord.say(U2, CHANNEL2, "deploy on friday", files=[("plan.txt", b"at noon", "text/plain")])


@pytest.fixture
def no_wait(monkeypatch):
    monkeypatch.setattr(forwards, "WAIT_S", 0.05)


def has_both(text):
    """Return whether a message for the model has the forward, and what is said about it."""
    return "> > Forwarded message:\n> > deploy on friday" in text and text.endswith("can we do this?")


def asked(model):
    return [message.text for message in model.requests[-1].messages if message.role == "user"]


async def test_in_a_direct_message_both_are_one_turn_with_one_answer(discord, plan, tmp_path):
    model = Scripted(says("Yes."))
    async with bot_in(discord, tmp_path, model):
        dm = discord.dm(U1)
        forward = await discord.say(U1, dm, forward_of=plan)
        words = await discord.say(U1, dm, "can we do this?")
        await discord.redeliver(forward)
        await discord.redeliver(words)
        found = await until_settled(tmp_path, words.id)
        last = await discord.say(U1, dm, "and now?")
        found = await until_settled(tmp_path, last.id)
    assert found == {words.id: "answered", last.id: "answered"}
    first, second = asked(model)
    assert has_both(first)
    assert "plan.txt" in first
    assert "friday" not in second


async def test_in_a_channel_a_forward_comes_with_the_words_that_name_the_bot(discord, plan, tmp_path):
    model = Scripted()
    async with bot_in(discord, tmp_path, model):
        await discord.say(U1, CHANNEL, forward_of=plan)
        await discord.say(U2, CHANNEL, "interesting")
        words = await discord.say(U1, CHANNEL, f"{NAMED} can we do this?")
        await until_settled(tmp_path, words.id)
        [first] = asked(model)
        assert has_both(first)
        words = await discord.say(U1, CHANNEL, f"{NAMED} something else")
        await until_settled(tmp_path, words.id)
        assert "friday" not in asked(model)[-1]
        edited = discord.say(U1, CHANNEL, forward_of=plan) and discord.say(U1, CHANNEL, "can we do this?")
        discord.edit(edited, f"{NAMED} can we do this?")
        await until_settled(tmp_path, edited.id)
        assert has_both(asked(model)[-1])


async def test_in_a_thread_both_are_one_turn_and_a_forward_to_others_is_none(discord, plan, tmp_path):
    model = Scripted()
    async with bot_in(discord, tmp_path, model):
        begun = await discord.say(U1, CHANNEL, f"{NAMED} hi")
        await discord.until(lambda: answers(discord, begun.id))
        await discord.say(U1, begun.id, forward_of=plan)
        await discord.say(U1, begun.id, f"<@{U2}> is that yours?")
        await discord.say(U1, begun.id, forward_of=plan)
        words = await discord.say(U1, begun.id, "can we do this?")
        found = await until_settled(tmp_path, words.id)
    assert found == {begun.id: "answered", words.id: "answered"}
    assert has_both(asked(model)[-1])


async def test_a_forward_alone_is_answered_after_a_short_wait(discord, plan, tmp_path, no_wait):
    model = Scripted()
    async with bot_in(discord, tmp_path, model):
        forward = await discord.say(U1, discord.dm(U1), forward_of=plan)
        await until_settled(tmp_path, forward.id)
        assert "> deploy on friday" in asked(model)[0]
        words = await discord.say(U1, discord.dm(U1), "can we do this?")
        await until_settled(tmp_path, words.id)
    assert "friday" not in asked(model)[1], "it is in the conversation"


@pytest.mark.parametrize("words", ["can we do this?", ""])
async def test_what_was_missed_is_one_turn_too(discord, plan, tmp_path, words):
    model = Scripted()
    async with bot_in(discord, tmp_path, model):
        begun = await discord.say(U1, discord.dm(U1), "hi")
        await until_settled(tmp_path, begun.id)
    said = discord.say(U1, discord.dm(U1), forward_of=plan, quiet=True)
    if words:
        said = discord.say(U1, discord.dm(U1), words, quiet=True)
    named = discord.say(U1, CHANNEL, forward_of=plan, quiet=True)
    named = discord.say(U1, CHANNEL, f"{NAMED} can we do this?", quiet=True)
    async with bot_in(discord, tmp_path, model):
        found = await until_settled(tmp_path, said.id, named.id)
    assert len(found) == 3
    texts = [message.text for request in model.requests[1:] for message in request.messages[-1:]]
    assert sum(map(has_both, texts)) == (2 if words else 1)
    assert all("> deploy on friday" in text for text in texts)


async def test_a_forward_is_not_lost_by_a_stop_while_it_waits(discord, plan, tmp_path):
    model = Scripted()
    async with bot_in(discord, tmp_path, model):
        begun = await discord.say(U1, discord.dm(U1), "hi")
        await until_received(tmp_path, begun.id)
        await until_settled(tmp_path, begun.id)
        await discord.say(U1, discord.dm(U1), forward_of=plan)
    words = discord.say(U1, discord.dm(U1), "can we do this?", quiet=True)
    async with bot_in(discord, tmp_path, model):
        found = await until_settled(tmp_path, words.id)
    assert found == {begun.id: "answered", words.id: "answered"}
    assert has_both(asked(model)[-1])
