"""What people do in the fake Discord, as the real discord.py sees it."""

import discord as sdk
import pytest

from tests.fakes.discord import BOT, BOT_ROLE, CHANNEL, ROLE, U1, U2, FakeDiscord
from tests.fakes.discord.sdk import RecordingClient, connected, online


async def test_mentions_are_read_from_the_text_and_a_reply_pings():
    async with FakeDiscord() as fake:
        client = RecordingClient()
        fake.users[U1].roles = [ROLE]
        async with connected(client, fake):
            own = await client.get_channel(int(CHANNEL)).send("mine")
            fake.say(U1, CHANNEL, f"<@!{BOT}> <@&{BOT_ROLE}> @here `<@{U2}>`")
            fake.say(U1, CHANNEL, "why?", reply_to=str(own.id))
            fake.say(U1, CHANNEL, "still?", reply_to=str(own.id), ping=False)
            await fake.until(lambda: len(client.of("message")) == 4)
            first, second, third = client.of("message")[1:]
    assert client.user in first.mentions
    assert len(first.mentions) == 1
    assert [role.id for role in first.role_mentions] == [int(BOT_ROLE)]
    assert first.mention_everyone
    assert [role.id for role in first.author.roles][1:] == [int(ROLE)]
    assert second.type is sdk.MessageType.reply
    assert second.reference.resolved.content == "mine"
    assert client.user in second.mentions
    assert third.mentions == []


async def test_an_unfurled_message_that_nobody_edited_has_no_edited_timestamp():
    async with online() as (fake, client):
        fake.unfurl(fake.say(U1, CHANNEL, "https://a.example"))
        [update] = await fake.until(lambda: client.of("raw_message_edit"))
    assert (update.data["content"], update.data["edited_timestamp"]) == ("https://a.example", None)


async def test_a_message_of_an_archived_thread_comes_from_an_unknown_channel():
    async with FakeDiscord() as fake:
        client = RecordingClient()
        thread = fake.thread(U1, fake.say(U1, CHANNEL, "x"), "t")
        fake.archive(thread.id, quiet=True)
        fake.channels[thread.id].archived = True
        async with connected(client, fake):
            assert client.get_channel(int(thread.id)) is None
            fake.channels[thread.id].archived = False
            fake.say(U1, thread.id, "hello?")
            [seen] = await fake.until(lambda: client.of("message"))
    assert isinstance(seen.channel, sdk.PartialMessageable)


async def test_a_bug_of_the_fake_is_raised_when_it_is_left(monkeypatch):
    monkeypatch.setattr("tests.fakes.discord.posting.compose", lambda *_, **__: 1 / 0)
    with pytest.raises(AssertionError, match="the fake itself is broken"):
        async with FakeDiscord() as fake:
            client = RecordingClient()
            async with connected(client, fake):
                monkeypatch.setattr("asyncio.sleep", fake_sleep)
                with pytest.raises(sdk.DiscordServerError):
                    await client.get_channel(int(CHANNEL)).send("x")


async def fake_sleep(_seconds, result=None):
    return result
