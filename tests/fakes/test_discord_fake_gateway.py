"""The fake Discord's gateway as the real discord.py meets it: sessions, resumes, refusals and dead links."""

import asyncio

import aiohttp
import discord as sdk
import pytest

from tests.fakes.discord import BOT, CHANNEL, U1, Cut, FakeDiscord, Status
from tests.fakes.discord.sdk import Seen, connected, pointed_at

pytestmark = pytest.mark.anyio


def texts(client):
    return [message.content for message in client.of("message")]


@pytest.fixture
def at_once(monkeypatch):
    """discord.py waits 5 s before it identifies again."""

    async def hook(*_, **__):
        pass

    monkeypatch.setattr(sdk.Client, "before_identify_hook", hook)


@pytest.fixture
def soon(monkeypatch):
    """discord.py waits a second or two before it connects again."""
    monkeypatch.setattr("discord.backoff.ExponentialBackoff.delay", lambda self: 0.01)


async def test_ready_brings_the_guild_with_its_channels_roles_and_the_bot():
    async with FakeDiscord() as fake:
        client = Seen()
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
    assert fake.identified[0]["intents"] == client.intents.value


async def test_permissions_that_are_denied_are_told():
    async with FakeDiscord() as fake:
        client = Seen()
        fake.deny(CHANNEL, "CREATE_PUBLIC_THREADS")
        async with connected(client, fake):
            [guild] = client.guilds
            mine = guild.get_channel(int(CHANNEL)).permissions_for(guild.me)
    assert (mine.create_public_threads, mine.send_messages) == (False, True)


@pytest.mark.parametrize("how", ["abort", "reconnect", 1000, 1012, 4000, 4009])
async def test_a_link_that_ends_is_resumed_and_what_was_missed_comes(fake, client, how):
    fake.say(U1, CHANNEL, "before")
    await fake.until(lambda: client.of("message"))
    gate = fake.gate("GET /gateway")
    [link] = fake.links
    if isinstance(how, int):
        await link.close(how)
    else:
        getattr(link, how)()
    await gate.reached()
    await fake.until(lambda: link not in fake.links)
    fake.say(U1, CHANNEL, "missed")
    gate.open()
    await fake.until(lambda: client.of("resumed"))
    fake.say(U1, CHANNEL, "after")
    await fake.until(lambda: "after" in texts(client))
    assert (fake.identifies, fake.resumes) == (1, 1)
    assert texts(client) == ["before", "missed", "after"]
    assert len(client.of("ready")) == 1


@pytest.mark.parametrize("how", ["invalidate", "forget"])
async def test_an_invalid_session_is_begun_anew_and_what_was_missed_is_lost(fake, client, how, at_once):
    gate = fake.gate("GET /gateway")
    [link] = fake.links
    if how == "forget":
        fake.forget_sessions()
        link.abort()
    else:
        link.invalidate(resumable=False)
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


async def test_a_resumable_invalid_session_is_resumed(fake, client):
    fake.links[0].invalidate(resumable=True)
    await fake.until(lambda: client.of("resumed"))
    assert (fake.identifies, fake.resumes) == (1, 1)


async def test_a_zombie_says_nothing_and_is_left_after_the_heartbeat_timeout():
    async with FakeDiscord(heartbeat=0.2) as fake:
        client = Seen(heartbeat_timeout=0.5)
        async with connected(client, fake):
            [link] = fake.links
            await fake.until(lambda: link.heartbeats >= 2)
            link.freeze()
            fake.say(U1, CHANNEL, "kept")
            gate = fake.gate("GET /gateway")
            await gate.reached()
            assert texts(client) == []
            gate.open()
            await fake.until(lambda: client.of("resumed"))
            await fake.until(lambda: texts(client) == ["kept"])
    assert fake.opened == 2


@pytest.mark.parametrize("case", ["token", "intent"])
async def test_wrong_tokens_and_intents_that_are_not_ticked_are_fatal(case):
    async with FakeDiscord(message_content=case != "intent") as fake:
        client = Seen()
        with pointed_at(fake):
            if case == "token":
                with pytest.raises(sdk.LoginFailure):
                    await client.start("wrong")
            else:
                with pytest.raises(sdk.PrivilegedIntentsRequired):
                    await client.start(fake.token)
            await client.close()


async def test_a_token_that_is_revoked_closes_the_link_with_4004():
    async with FakeDiscord() as fake:
        client = Seen()
        client.fake = fake
        with pointed_at(fake):
            running = asyncio.ensure_future(client.start(fake.token))
            await fake.until(lambda: client.is_ready())
            fake.revoke()
            with pytest.raises(sdk.ConnectionClosed) as info:
                await running
            await client.close()
    assert info.value.code == 4004


async def test_without_the_content_intent_only_mentions_and_direct_messages_have_text():
    async with FakeDiscord(message_content=False) as fake:
        client = Seen(message_content=False)
        async with connected(client, fake):
            fake.say(U1, CHANNEL, "secret")
            fake.say(U1, CHANNEL, f"<@{BOT}> told")
            fake.say(U1, fake.dm(U1), "direct")
            own = await client.get_channel(int(CHANNEL)).send("own")
            await fake.until(lambda: len(client.of("message")) == 4)
            read = [one.content async for one in client.get_channel(int(CHANNEL)).history()]
    assert texts(client) == ["", f"<@{BOT}> told", "direct", own.content]
    assert read == ["own", f"<@{BOT}> told", ""]


async def test_duplicates_and_a_wrong_order(fake, client):
    said = await fake.say(U1, CHANNEL, "one")
    await fake.redeliver(said)
    fake.reorder = True
    fake.say(U1, CHANNEL, "two")
    fake.say(U1, CHANNEL, "three")
    fake.say(U1, CHANNEL, "four")
    await fake.until(lambda: len(client.of("message")) == 5)
    assert texts(client) == ["one", "one", "three", "two", "four"]


@pytest.mark.parametrize("fault", [Status(503), Cut()])
async def test_the_first_connection_can_fail(fault, soon):
    async with FakeDiscord() as fake:
        fake.fail("GET /gateway", fault, fault)  # aiohttp itself tries a cut GET twice
        client = Seen()
        with pytest.raises((AttributeError, aiohttp.ClientError)):
            async with connected(client, fake):
                pass
    assert fake.opened == 0


async def test_a_dead_gateway_comes_back(fake, client, soon):
    fake.dead = True
    fake.links[0].abort()
    await fake.until(lambda: not fake.links)
    await fake.until(lambda: fake.refused >= 2)
    fake.dead = False
    await fake.until(lambda: client.of("resumed"))


async def test_a_late_guild_leaves_its_channels_unknown_at_first():
    async with FakeDiscord() as fake:
        fake.late_guilds = 0.05
        client = Seen()
        async with connected(client, fake):
            assert client.get_channel(int(CHANNEL)) is None
            fake.say(U1, CHANNEL, "early")
            await fake.until(lambda: client.of("message"))
            await fake.until(lambda: client.get_channel(int(CHANNEL)))
            assert client.of("message")[0].channel.type is None


async def test_a_guild_that_is_unavailable_never_comes():
    async with FakeDiscord() as fake:
        fake.unavailable = True
        client = Seen()
        async with connected(client, fake):
            assert [guild.unavailable for guild in client.guilds] == [True]
            fake.say(U1, fake.dm(U1), "direct")
            await fake.until(lambda: client.of("message"))


async def test_a_link_that_did_not_identify_and_nonsense_are_closed():
    async with FakeDiscord() as fake, aiohttp.ClientSession() as http:
        for text, code in (("{}", 4001), ("?", 4002), ('{"op": 8, "d": {}}', 4003)):
            async with http.ws_connect(fake.gateway_url) as socket:
                await socket.receive()
                await socket.send_str(text)
                await socket.receive()
                assert socket.close_code == code


@pytest.mark.parametrize("compress", ["", "zlib-stream"])
async def test_frames_are_packed_as_the_address_asks(compress):
    async with FakeDiscord() as fake, aiohttp.ClientSession() as http:
        query = {"compress": compress} if compress else {}
        async with http.ws_connect(fake.gateway_url.replace("ws", "http", 1), params=query) as socket:
            frame = await socket.receive()
    assert frame.type is (aiohttp.WSMsgType.BINARY if compress else aiohttp.WSMsgType.TEXT)


async def test_two_clients_are_both_told_everything():
    async with FakeDiscord() as fake:
        one, two = Seen(), Seen()
        async with connected(one, fake), connected(two, fake):
            fake.say(U1, CHANNEL, "x")
            await fake.until(lambda: one.of("message") and two.of("message"))
    assert fake.identifies == 2
