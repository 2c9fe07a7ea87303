"""Buttons and slash commands in the fake Discord, through the real discord.py: deadlines, answers, commands."""

import aiohttp
import discord as sdk
import pytest

from tests.fakes.discord import CHANNEL, U1, Cut, FakeDiscord
from tests.fakes.discord.sdk import RecordingClient, connected, online, place, refused

CALLBACK = "POST /interactions/{}/{}/callback"


def buttons():
    view = sdk.ui.View()
    view.add_item(sdk.ui.Button(label="Stop", custom_id="stop:1"))
    view.stop()
    return view


async def interaction(fake, client, number=0):
    return (await fake.until(lambda: client.of("interaction")[number:]))[0]


async def test_whispers_are_no_part_of_the_history_and_can_be_pressed():
    async with online() as (fake, client):
        asked = fake.slash(U1, CHANNEL, "status")
        seen = await interaction(fake, client)
        await seen.response.send_message("fine", ephemeral=True, view=buttons())
        pressed = fake.press(U1, asked.answers[0], "stop:1")
        again = await interaction(fake, client, 1)
        await again.response.defer()
        assert (await pressed).kind == 6
        assert [one.content async for one in place(client, CHANNEL).history()] == []
        [told] = client.of("message")
        assert (told.flags.ephemeral, told.guild) == (True, None)
    assert (fake.messages(CHANNEL), fake.whispers[0].contents) == ([], ["fine"])
    assert asked.kind == 4


async def test_whispers_in_a_guild_are_told_as_direct_messages_are():
    async with FakeDiscord() as fake:
        client = RecordingClient(intents=sdk.Intents(guilds=True, guild_messages=True))
        async with connected(client, fake):
            fake.slash(U1, CHANNEL, "status")
            seen = await interaction(fake, client)
            await seen.response.send_message("fine", ephemeral=True)
            await place(client, CHANNEL).send("aloud")
            await fake.until(lambda: client.of("message"))
    assert [one.content for one in client.of("message")] == ["aloud"]


async def test_an_answer_that_comes_late_or_twice_is_refused():
    async with online() as (fake, client):
        late = fake.slash(U1, CHANNEL, "stop")
        seen = await interaction(fake, client)
        fake.later(3.1)
        assert await refused(seen.response.defer()) == (404, 10062)
        assert not late.acked
        fake.slash(U1, CHANNEL, "stop")
        second = await interaction(fake, client, 1)
        fake.fail(CALLBACK, Cut(applied=True))
        with pytest.raises((aiohttp.ClientOSError, aiohttp.ServerDisconnectedError)):
            await second.response.send_message("one")
        assert await refused(second.response.send_message("one")) == (400, 40060)
    assert [post.content for post in fake.posts()] == ["one"]


async def test_an_expired_token_answers_no_more():
    async with online() as (fake, client):
        fake.slash(U1, CHANNEL, "stop")
        seen = await interaction(fake, client)
        await seen.response.send_message("x")
        fake.later(901)
        assert await refused(seen.followup.send("y")) == (401, 50027)
        assert await refused(seen.edit_original_response(content="z")) == (401, 50027)
    assert [post.content for post in fake.posts()] == ["x"]
