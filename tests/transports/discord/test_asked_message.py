"""Somebody asks about a message, from its menu or by a reaction, and this is what everybody sees."""

from contextlib import aclosing
from functools import partial

import pytest

from bot.config.settings import Access
from bot.routing.access import allowed
from tests.fakes.discord import BOT, CHANNEL, GUILD, U1, U2, U3, VOICE, FakeDiscord, Status
from tests.transports.discord.bot import answers, bot_in
from tests.world import Gate, Scripted, says
from threads.model import Text
from transports.discord.api.options import Options
from transports.discord.checks import check_discord
from transports.discord.events import asked_message
from transports.discord.events.slash_commands import ASK_NAME

ON = {"ask_shortcut": True, "ask_reaction": "🤖"}
PUT = "PUT /applications/{}/commands"


def outside(request):
    blocks = [block for message in request.messages for block in message.blocks if isinstance(block, Text)]
    return "\n".join(block.text for block in blocks if block.outside)


async def look(discord):
    options = Options(discord.token, discord.api_base_url, discord.gateway_url, ask_shortcut=True)
    async with aclosing(check_discord(options, running=True)) as findings:
        return {finding.name: finding async for finding in findings}["discord.shortcut"]


async def registered(discord):
    await discord.until(lambda: discord.commands)


async def all_is_settled(discord, thread):
    """Wait until a later message of the thread is answered: then those before it have their outcomes."""
    there = len(answers(discord, thread))
    await discord.say(U2, thread, "anything else?")
    await discord.until(lambda: len(answers(discord, thread)) > there)


async def test_a_chosen_message_is_answered_once_in_a_thread_that_is_opened_at_it(tmp_path):
    gate = Gate(says("It is about cake."))
    model = Scripted(gate)
    async with FakeDiscord() as discord, bot_in(discord, tmp_path, model, options=ON):
        await registered(discord)
        said = await discord.say(
            U2, CHANNEL, "who wants cake?", files=[("menu.txt", b"cheese cake", "text/plain")]
        )
        first = await discord.choose(U1, said, ASK_NAME)
        second = await discord.choose(U1, said, ASK_NAME)
        assert (first.kind, first.ephemeral, second.kind) == (5, True, 5)
        await discord.until(lambda: first.contents and second.contents)
        assert first.contents == second.contents
        assert f"/{said.id}>" in first.contents[0]
        await gate.began.wait()
        gate.open.set()
        await discord.until(lambda: answers(discord, said.id) == ["It is about cake."])
        await all_is_settled(discord, said.id)
        assert len(first.contents) == 1, "the answer is for all"
    assert len(model.requests) == 2, "two choices are one turn, and its thread is joined"
    assert model.requests[1].messages[-1].text.endswith("anything else?")
    told = outside(model.requests[0])
    name = discord.users[U2].name.title()
    assert f"> Message from {name}: https://discord.com/channels/{GUILD}/{CHANNEL}/{said.id}" in told
    assert "> who wants cake?" in told
    assert "cheese cake" in told
    assert discord.users[U1].name.title() in model.requests[0].messages[-1].text


async def test_a_mention_in_a_message_that_is_asked_about_is_answered_for_itself(tmp_path):
    model = Scripted(says("for U2"), says("for U1"))
    async with FakeDiscord() as discord, bot_in(discord, tmp_path, model, options=ON):
        await registered(discord)
        said = await discord.say(U2, CHANNEL, f"<@{BOT}> hi")
        await discord.until(lambda: answers(discord, said.id) == ["for U2"])
        await discord.choose(U1, said, ASK_NAME)
        await discord.until(lambda: answers(discord, said.id) == ["for U2", "for U1"])
        await all_is_settled(discord, said.id)
        again = await discord.choose(U1, said, ASK_NAME)
        await discord.until(lambda: again.contents)
        assert f"/{said.id}" in again.contents[0]
    assert len(model.requests) == 3


@pytest.mark.parametrize("place", ["thread", "direct", "voice"])
async def test_it_is_answered_where_the_message_is(tmp_path, place):
    model = Scripted()
    async with FakeDiscord() as discord, bot_in(discord, tmp_path, model, options=ON):
        await registered(discord)
        root = await discord.say(U2, CHANNEL, "lunch")
        discord.thread(U2, root, "Lunch")
        where = {"thread": root.id, "direct": discord.dm(U1), "voice": VOICE}[place]
        said = await discord.say(U2 if place != "direct" else U1, where, "at noon?", quiet=True)
        await discord.choose(U1, said, ASK_NAME)
        await discord.until(lambda: answers(discord, where))
    assert "> at noon?" in outside(model.requests[0])


async def test_where_the_bot_may_not_look_or_write_its_person_alone_is_told_so(tmp_path):
    model = Scripted()
    async with FakeDiscord() as discord, bot_in(discord, tmp_path, model, options=ON):
        await registered(discord)
        said = await discord.say(U2, CHANNEL, "psst")
        discord.deny(CHANNEL, "VIEW_CHANNEL")
        chosen = await discord.choose(U1, said, ASK_NAME)
        await discord.until(lambda: chosen.contents == [asked_message.NOT_A_MEMBER])
        assert all(message.ephemeral for message in chosen.answers)
    assert model.requests == []


async def test_a_stranger_who_asks_is_refused_alone_and_costs_nothing(tmp_path):
    served = partial(allowed, Access(users=(U2,), channels=("*",)))
    model = Scripted()
    async with FakeDiscord() as discord, bot_in(discord, tmp_path, model, options=ON, allowed=served):
        await registered(discord)
        said = await discord.say(U2, CHANNEL, "mine")
        chosen = await discord.choose(U1, said, ASK_NAME)
        await discord.until(lambda: len(chosen.contents) == 2)
        assert all(message.ephemeral for message in chosen.answers)
        assert discord.posts() == []
    assert model.requests == []


async def test_a_question_that_failed_can_be_asked_again(tmp_path):
    model = Scripted(ValueError("broken"), says("ok"), says("well"))
    async with FakeDiscord() as discord, bot_in(discord, tmp_path, model, options=ON):
        await registered(discord)
        said = await discord.say(U2, CHANNEL, "cake?")
        await discord.choose(U1, said, ASK_NAME)
        await discord.until(lambda: answers(discord, said.id))
        await all_is_settled(discord, said.id)
        await discord.choose(U1, said, ASK_NAME)
        await discord.until(lambda: answers(discord, said.id)[-1] == "well")


async def test_the_chosen_reaction_asks_once_for_each_person_and_others_ask_nothing(tmp_path):
    model = Scripted()
    async with FakeDiscord() as discord, bot_in(discord, tmp_path, model, options=ON):
        other = discord.user("other", bot=True)
        said = await discord.say(U2, CHANNEL, "cake?")
        for who, emoji in ((U1, "🎉"), (other.id, "🤖"), (BOT, "🤖"), (U1, "🤖"), (U1, "🤖"), (U3, "🤖")):
            discord.reacted(said, emoji, who, added=True)
        discord.reacted(said, "🤖", U2, added=False)
        await discord.until(lambda: len(answers(discord, said.id)) == 2)
        await all_is_settled(discord, said.id)
    assert len(model.requests) == 3
    assert "> cake?" in outside(model.requests[0])


async def test_a_message_that_cannot_be_read_at_once_is_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr(asked_message, "PAUSES_S", (0.0,))
    model = Scripted()
    async with FakeDiscord() as discord, bot_in(discord, tmp_path, model, options=ON):
        said = await discord.say(U2, CHANNEL, "cake?")
        discord.fail("GET /channels/{}/messages/{}", Status(502))
        discord.reacted(said, "🤖", U1, added=True)
        await discord.until(lambda: answers(discord, said.id))
    assert len(model.requests) == 1


async def test_while_it_is_off_there_is_no_entry_and_no_reaction_is_heard(tmp_path):
    model = Scripted()
    async with FakeDiscord() as discord, bot_in(discord, tmp_path, model):
        await registered(discord)
        said = await discord.say(U2, CHANNEL, "cake?")
        with pytest.raises(LookupError):
            discord.choose(U1, said, ASK_NAME)
        assert not discord.links[0].session.intents & (1 << 10 | 1 << 13)
        discord.reacted(said, "🤖", U1, added=True)
        await discord.say(U1, CHANNEL, f"<@{BOT}> hi")
        await discord.until(lambda: discord.posts())
    assert len(model.requests) == 1


async def test_the_entry_is_registered_once_and_the_doctor_says_whether_it_is(tmp_path):
    async with FakeDiscord() as discord:
        found = await look(discord)
        assert (found.state, found.found) == ("warn", "not registered yet")
        for _ in range(2):
            async with bot_in(discord, tmp_path, Scripted(), options=ON):
                await discord.until(lambda: discord.commands and discord.ready)
        assert len(discord.calls_to(PUT)) == 1
        assert (await look(discord)).state == "ok"
