"""The fake Discord's gateway as the real discord.py meets it: sessions, resumes, refusals and dead links."""

import aiohttp
import discord as sdk
import pytest

from tests.fakes.discord import BOT, CHANNEL, U1, FakeDiscord
from tests.fakes.discord.sdk import RecordingClient, connected, online

pytestmark = pytest.mark.anyio


def texts(client):
    return [message.content for message in client.of("message")]


@pytest.fixture
def at_once(monkeypatch):
    """discord.py waits 5 s before it identifies again."""

    async def hook(*_, **__):
        pass

    monkeypatch.setattr(sdk.Client, "before_identify_hook", hook)


async def test_ready_brings_the_guild_with_its_channels_roles_and_the_bot():
    async with FakeDiscord() as fake:
        client = RecordingClient()
        last = fake.say(U1, CHANNEL, "before")
        async with connected(client, fake):
            [guild] = client.guilds
            assert {str(channel) for channel in guild.channels} == {
                "general",
                "random",
                "questions",
                "lounge",
            }
            assert guild.get_channel(int(CHANNEL)).last_message_id == int(last.id)
            assert guild.self_role.name == "threadfast"
            assert guild.get_channel(int(CHANNEL)).permissions_for(guild.me).send_messages
            assert (fake.ready, fake.identifies, len(fake.links)) == (1, 1, 1)
        await fake.until(lambda: not fake.links)


@pytest.mark.parametrize("how", ["invalidate", "forget"])
async def test_an_invalid_session_is_begun_anew_and_what_was_missed_is_lost(how, at_once):
    async with online() as (fake, client):
        gate = fake.gate("GET /gateway")
        [link] = fake.links
        if how == "forget":
            fake.forget_sessions()
            link.abort()
        else:
            link.invalidate()
        await gate.reached()
        await fake.until(lambda: link not in fake.links)
        fake.say(U1, CHANNEL, "lost")
        gate.open()
        await fake.until(lambda: len(client.of("ready")) == 2)
        fake.say(U1, CHANNEL, "after")
        await fake.until(lambda: client.of("message"))
        history = [message.content async for message in client.get_channel(int(CHANNEL)).history()]
    assert (texts(client), history) == (["after"], ["after", "lost"])
    assert (fake.identifies, fake.resumes) == (2, 0)


async def test_without_the_content_intent_only_mentions_and_direct_messages_have_text():
    async with FakeDiscord(message_content=False) as fake:
        client = RecordingClient(message_content=False)
        async with connected(client, fake):
            fake.say(U1, CHANNEL, "secret")
            fake.say(U1, CHANNEL, f"<@{BOT}> told")
            fake.say(U1, fake.dm(U1), "direct")
            own = await client.get_channel(int(CHANNEL)).send("own")
            await fake.until(lambda: len(client.of("message")) == 4)
            read = [one.content async for one in client.get_channel(int(CHANNEL)).history()]
    assert texts(client) == ["", f"<@{BOT}> told", "direct", own.content]
    assert read == ["own", f"<@{BOT}> told", ""]


async def test_duplicates_and_a_wrong_order():
    async with online() as (fake, client):
        said = await fake.say(U1, CHANNEL, "one")
        await fake.redeliver(said)
        fake.reorder = True
        fake.say(U1, CHANNEL, "two")
        fake.say(U1, CHANNEL, "three")
        fake.say(U1, CHANNEL, "four")
        await fake.until(lambda: len(client.of("message")) == 5)
    assert texts(client) == ["one", "one", "three", "two", "four"]


@pytest.mark.parametrize("compress", ["", "zlib-stream"])
async def test_frames_are_packed_as_the_address_asks(compress):
    async with FakeDiscord() as fake, aiohttp.ClientSession() as http:
        query = {"compress": compress} if compress else {}
        async with http.ws_connect(fake.gateway_url.replace("ws", "http", 1), params=query) as socket:
            frame = await socket.receive()
    assert frame.type is (aiohttp.WSMsgType.BINARY if compress else aiohttp.WSMsgType.TEXT)


async def test_two_clients_are_both_told_everything():
    async with FakeDiscord() as fake:
        one, two = RecordingClient(), RecordingClient()
        async with connected(one, fake), connected(two, fake):
            fake.say(U1, CHANNEL, "x")
            await fake.until(lambda: one.of("message") and two.of("message"))
    assert fake.identifies == 2
