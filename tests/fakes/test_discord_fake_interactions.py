"""Buttons and slash commands in the fake Discord, through the real discord.py: deadlines, answers, commands."""

import aiohttp
import discord as sdk
import pytest

from tests.fakes.discord import CHANNEL, GUILD, U1, Cut, FakeDiscord, Status
from tests.fakes.discord.sdk import Seen, connected, gateway, place, refused

pytestmark = pytest.mark.anyio

CALLBACK = "POST /interactions/{}/{}/callback"


def buttons():
    view = sdk.ui.View()
    view.add_item(sdk.ui.Button(label="Stop", custom_id="stop:1"))
    view.stop()
    return view


async def interaction(fake, client, number=0):
    return (await fake.until(lambda: client.of("interaction")[number:]))[0]


async def test_a_press_carries_its_message_its_thread_and_who_pressed(fake, client):
    thread = fake.thread(U1, fake.say(U1, CHANNEL, "x"), "t")
    sent = await place(client, thread.id).send("working", view=buttons())
    pressed = fake.press(U1, str(sent.id), "stop:1")
    seen = await interaction(fake, client)
    assert (seen.channel.id, seen.channel.parent_id) == (int(thread.id), int(CHANNEL))
    assert (seen.user.id, seen.message.id, seen.guild_id) == (int(U1), sent.id, int(GUILD))
    assert seen.data["custom_id"] == "stop:1"
    assert not pressed.acked
    await seen.response.defer()
    assert (await pressed).kind == 6
    await seen.followup.send("done", ephemeral=True)
    await seen.edit_original_response(content="stopped", view=None)
    assert pressed.after_s < 1
    assert (pressed.contents, [one.content for one in fake.whispers]) == (["done"], ["done"])
    assert fake.posts()[0].contents == ["working", "stopped"]
    assert fake.posts()[0].buttons == []


async def test_a_button_that_is_not_shown_cannot_be_pressed_unless_the_view_is_stale(fake, client):
    sent = await place(client, CHANNEL).send("x", view=buttons())
    with pytest.raises(LookupError):
        fake.press(U1, str(sent.id), "other")
    fake.press(U1, str(sent.id), "other", stale=True)
    await interaction(fake, client)


async def test_whispers_are_no_part_of_the_history_and_can_be_pressed(fake, client):
    asked = fake.slash(U1, CHANNEL, "status")
    seen = await interaction(fake, client)
    await seen.response.send_message("fine", ephemeral=True, view=buttons())
    assert (await seen.original_response()).content == "fine"
    pressed = fake.press(U1, asked.answers[0], "stop:1")
    again = await interaction(fake, client, 1)
    await again.response.edit_message(content="changed", view=None)
    assert (await pressed).kind == 7
    assert [one.content async for one in place(client, CHANNEL).history()] == []
    [told] = client.of("message")
    assert (told.flags.ephemeral, told.guild) == (True, None)
    assert (fake.messages(CHANNEL), fake.whispers[0].contents) == ([], ["fine", "changed"])
    assert asked.kind == 4


async def test_whispers_in_a_guild_are_told_as_direct_messages_are():
    async with FakeDiscord() as fake:
        client = Seen(intents=sdk.Intents(guilds=True, guild_messages=True))
        async with connected(client, fake):
            fake.slash(U1, CHANNEL, "status")
            seen = await interaction(fake, client)
            await seen.response.send_message("fine", ephemeral=True)
            await place(client, CHANNEL).send("aloud")
            await fake.until(lambda: client.of("message"))
    assert [one.content for one in client.of("message")] == ["aloud"]


async def test_thinking_is_filled_by_the_first_answer(fake, client):
    asked = fake.slash(U1, fake.dm(U1), "usage", {"days": 3, "all": True, "of": "me"})
    seen = await interaction(fake, client)
    assert (seen.guild_id, seen.channel.type, seen.user.id) == (
        None,
        sdk.ChannelType.private,
        int(U1),
    )
    assert {one["name"]: (one["type"], one["value"]) for one in seen.data["options"]} == {
        "days": (4, 3),
        "all": (5, True),
        "of": (3, "me"),
    }
    await seen.response.defer(ephemeral=True, thinking=True)
    await seen.followup.send("first")
    await seen.followup.send("second", ephemeral=True)
    assert (asked.kind, asked.contents, fake.messages(fake.dm(U1))) == (5, ["first", "second"], [])
    assert all(one.ephemeral for one in fake.whispers)
    assert len(fake.whispers) == 2


async def test_an_answer_that_comes_late_or_twice_is_refused(fake, client):
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


async def test_nobody_answers_in_time():
    async with gateway(deadline=0.05) as (fake, client):
        asked = await fake.slash(U1, CHANNEL, "stop")
        seen = await interaction(fake, client)
        assert asked.failed
        assert await refused(seen.response.defer()) == (404, 10062)


async def test_an_expired_token_answers_no_more(fake, client):
    fake.slash(U1, CHANNEL, "stop")
    seen = await interaction(fake, client)
    await seen.response.send_message("x")
    fake.later(901)
    assert await refused(seen.followup.send("y")) == (401, 50027)
    assert await refused(seen.edit_original_response(content="z")) == (401, 50027)
    assert [post.content for post in fake.posts()] == ["x"]


async def test_commands_are_overwritten_at_once_and_answered_by_name():
    async with FakeDiscord() as fake:
        client = Seen()
        tree = sdk.app_commands.CommandTree(client)

        @tree.command(description="Choose a model")
        async def model(seen, name: str):
            await seen.response.send_message(name, ephemeral=True)

        @model.autocomplete("name")
        async def names(seen, typed):
            return [sdk.app_commands.Choice(name=typed + "!", value=typed)]

        async with connected(client, fake):
            await tree.sync()
            assert [one["name"] for one in fake.commands] == ["model"]
            first = fake.commands[0]["id"]
            await tree.sync()
            assert (fake.syncs, fake.creates, fake.commands[0]["id"]) == (2, 1, first)
            asked = await fake.slash(U1, CHANNEL, "model", {"name": "big"})
            typed = await fake.autocomplete(U1, CHANNEL, "model", "name", "bi")
            fake.creates = 200
            fake.commands = []
            assert await refused(tree.sync()) == (400, 30034)
    assert asked.contents == ["big"]
    assert typed.choices == [{"name": "bi!", "value": "bi"}]


async def test_an_answer_that_was_stored_and_then_failed_is_acknowledged(fake, client):
    asked = fake.slash(U1, CHANNEL, "stop")
    seen = await interaction(fake, client)
    fake.fail(CALLBACK, Status(400, applied=True, html=False))
    with pytest.raises(sdk.HTTPException):
        await seen.response.send_message("x", ephemeral=True)
    assert asked.acked
    assert asked.contents == ["x"]
