"""What people do in the fake Discord, as the real discord.py sees it."""

import discord as sdk
import pytest

from tests.fakes.discord import BOT, BOT_ROLE, CHANNEL, CHANNEL2, ROLE, U1, U2, FakeDiscord
from tests.fakes.discord.sdk import Seen, connected

pytestmark = pytest.mark.anyio


async def test_mentions_are_read_from_the_text_and_a_reply_pings():
    async with FakeDiscord() as fake:
        client = Seen()
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


async def test_edits_previews_and_deletions(fake, client):
    said = fake.say(U1, CHANNEL, "one https://a.example")
    fake.edit(said, "two")
    fake.unfurl(said)
    others = [fake.say(U1, CHANNEL, text) for text in "ab"]
    fake.delete(said)
    fake.bulk_delete(*others)
    await fake.until(lambda: client.of("raw_bulk_message_delete"))
    fake.pin(U1, fake.say(U1, fake.dm(U1), "kept"))
    await fake.until(lambda: len(client.of("message")) == 5)
    edit, preview, pin = client.of("raw_message_edit")
    assert (edit.data["content"], edit.data["edited_timestamp"] is None) == ("two", False)
    assert preview.data["edited_timestamp"] == edit.data["edited_timestamp"]
    assert len(preview.data["embeds"]) == 1
    assert pin.data["pinned"]
    assert client.of("raw_message_delete")[0].message_id == int(said.id)
    assert client.of("message")[4].type is sdk.MessageType.pins_add
    assert said.contents == ["one https://a.example", "two"]


async def test_an_unfurled_message_that_nobody_edited_has_no_edited_timestamp(fake, client):
    fake.unfurl(fake.say(U1, CHANNEL, "https://a.example"))
    [update] = await fake.until(lambda: client.of("raw_message_edit"))
    assert (update.data["content"], update.data["edited_timestamp"]) == ("https://a.example", None)


async def test_forwards_have_their_text_in_a_snapshot(fake, client):
    said = fake.say(U2, CHANNEL2, "the story", files=[("a.png", b"x", "image/png")])
    fake.say(U1, CHANNEL, forward_of=said)
    seen = (await fake.until(lambda: client.of("message")[1:]))[0]
    [snapshot] = seen.message_snapshots
    assert (seen.content, snapshot.content, snapshot.attachments[0].filename) == ("", "the story", "a.png")
    assert (seen.reference.type, seen.reference.message_id) == (
        sdk.MessageReferenceType.forward,
        int(said.id),
    )


async def test_bots_webhooks_and_system_messages_can_be_told_from_people(fake, client):
    fake.bot_says(CHANNEL, "beep")
    fake.webhook_says(CHANNEL, "built")
    fake.system(CHANNEL, 7, user=U1)
    fake.loose_thread(U1, CHANNEL, "aside")
    await fake.until(lambda: len(client.of("message")) == 4)
    bot, hook, join, thread = client.of("message")
    assert (bot.author.bot, bot.webhook_id) == (True, None)
    assert hook.webhook_id == hook.author.id
    assert join.is_system()
    assert thread.type is sdk.MessageType.thread_created


async def test_a_message_of_an_archived_thread_comes_from_an_unknown_channel():
    async with FakeDiscord() as fake:
        client = Seen()
        thread = fake.thread(U1, fake.say(U1, CHANNEL, "x"), "t")
        fake.archive(thread.id, quiet=True)
        fake.channels[thread.id].archived = True
        async with connected(client, fake):
            assert client.get_channel(int(thread.id)) is None
            fake.channels[thread.id].archived = False
            fake.say(U1, thread.id, "hello?")
            [seen] = await fake.until(lambda: client.of("message"))
    assert isinstance(seen.channel, sdk.PartialMessageable)


async def test_what_is_said_quietly_or_out_of_sight_is_only_in_the_history(fake, client):
    fake.say(U1, CHANNEL, "lost", quiet=True)
    fake.deny(CHANNEL2, "VIEW_CHANNEL")
    fake.say(U1, CHANNEL2, "hidden")
    fake.say(U1, CHANNEL, "told")
    await fake.until(lambda: client.of("message"))
    history = [one.content async for one in client.get_channel(int(CHANNEL)).history()]
    assert [one.content for one in client.of("message")] == ["told"]
    assert history == ["told", "lost"]


async def test_the_bot_is_removed_and_invited_again(fake, client):
    fake.kick()
    await fake.until(lambda: client.of("guild_remove"))
    fake.say(U1, CHANNEL, "unheard")
    with pytest.raises(sdk.Forbidden):
        await client.fetch_channel(int(CHANNEL))
    fake.invite()
    await fake.until(lambda: client.of("guild_join"))
    fake.outage()
    await fake.until(lambda: client.of("guild_unavailable"))
    fake.invite()
    await fake.until(lambda: client.of("guild_available")[1:])
    assert client.of("message") == []


async def test_new_people_roles_and_channels_have_ids_of_their_own(fake, client):
    dana, role = fake.user("dana"), fake.role("night")
    fake.give_roles(dana.id, role.id)
    room = fake.channel("attic")
    await fake.until(lambda: client.of("guild_channel_create"))
    fake.typing(dana.id, room.id)
    fake.say(dana.id, room.id, "hi")
    fake.say(dana.id, fake.dm(dana.id), "psst")
    await fake.until(lambda: len(client.of("message")) == 2)
    first, second = client.of("message")
    assert (first.channel.name, first.author.name) == ("attic", "dana")
    assert isinstance(second.channel, sdk.DMChannel)
    assert len({dana.id, role.id, room.id, fake.dm(dana.id)}) == 4


async def test_a_bug_of_the_fake_is_raised_when_it_is_left(monkeypatch):
    monkeypatch.setattr("tests.fakes.discord.posting.compose", lambda *_, **__: 1 / 0)
    with pytest.raises(AssertionError, match="the fake itself is broken"):
        async with FakeDiscord() as fake:
            client = Seen()
            async with connected(client, fake):
                monkeypatch.setattr("asyncio.sleep", fake_sleep)
                with pytest.raises(sdk.DiscordServerError):
                    await client.get_channel(int(CHANNEL)).send("x")


async def fake_sleep(_seconds, result=None):
    return result
