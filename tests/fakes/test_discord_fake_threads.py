"""Threads, forum posts, reactions and typing in the fake Discord, through the real discord.py."""

import discord as sdk
import pytest

from tests.fakes.discord import BOT, CHANNEL, FORUM, U1, U2, FakeDiscord
from tests.fakes.discord.sdk import Seen, connected, place, refused

pytestmark = pytest.mark.anyio


async def test_a_thread_has_the_id_of_its_message_and_begins_with_a_line_that_refers_to_it(fake, client):
    said = await fake.say(U1, CHANNEL, f"<@{BOT}> hello")
    [event] = await fake.until(lambda: client.of("message"))
    thread = await event.create_thread(name="hello")
    await thread.send("hi")
    await fake.until(lambda: len(client.of("message")) == 3)
    [told] = client.of("thread_create")
    read = await client.get_channel(int(CHANNEL)).fetch_message(int(said.id))
    assert thread.id == told.id == event.id == read.thread.id
    assert read.flags.has_thread
    first, answer = client.of("message")[1:]
    assert (first.type, first.reference.message_id) == (sdk.MessageType.thread_starter_message, event.id)
    assert (answer.content, answer.channel.parent_id) == ("hi", int(CHANNEL))
    assert [post.content for post in fake.posts()] == ["hi"]


async def test_a_second_thread_of_a_message_and_threads_in_threads_and_dms_are_refused(fake, api):
    http, said = api.http, fake.say(U1, CHANNEL, "x")
    open_ = lambda channel, message, name="n": http.start_thread_with_message(  # noqa: E731
        int(channel), int(message), name=name, auto_archive_duration=1440
    )
    await open_(CHANNEL, said.id)
    assert await refused(open_(CHANNEL, said.id)) == (400, 160004)
    inside = fake.say(U1, said.id, "y")
    assert await refused(open_(said.id, inside.id)) == (400, 50024)
    direct = fake.say(U1, fake.dm(U1), "z")
    assert await refused(open_(fake.dm(U1), direct.id)) == (400, 50024)
    other = fake.say(U1, CHANNEL, "w")
    assert await refused(open_(CHANNEL, other.id, "n" * 101)) == (400, 50035)
    assert await refused(open_(CHANNEL, 5)) == (404, 10008)
    fake.deny(CHANNEL, "CREATE_PUBLIC_THREADS")
    assert await refused(open_(CHANNEL, other.id)) == (403, 50013)
    fake.deny(CHANNEL, "SEND_MESSAGES_IN_THREADS")
    assert await refused(place(api, said.id).send("x")) == (403, 50013)
    await place(api, CHANNEL).send("the channel itself is open")


async def test_a_send_wakes_an_archived_thread_but_not_a_locked_one(fake, client):
    said = fake.say(U1, CHANNEL, "x")
    fake.thread(U1, said, "t")
    post = await place(client, said.id).send("one")
    fake.archive(said.id)
    assert await refused(place(client, said.id).get_partial_message(post.id).edit(content="y")) == (
        400,
        50083,
    )
    await place(client, said.id).send("two")
    assert not fake.channels[said.id].archived
    fake.archive(said.id, locked=True)
    assert await refused(place(client, said.id).send("three")) == (403, 50083)
    await fake.until(lambda: len(client.of("raw_thread_update")) == 3)
    assert [post.content for post in fake.posts()] == ["one", "two"]


async def test_active_threads_leave_out_archived_ones_and_a_fetched_thread_tells_its_parent():
    async with FakeDiscord() as fake:
        client = Seen()
        one, two = (fake.thread(U1, fake.say(U1, CHANNEL, text), text) for text in ("a", "b"))
        fake.archive(two.id)
        async with connected(client, fake):
            guild = client.guilds[0]
            assert [thread.id for thread in guild.threads] == [int(one.id)]
            assert [thread.id for thread in await guild.active_threads()] == [int(one.id)]
            fetched = await client.fetch_channel(int(two.id))
            assert (fetched.parent_id, fetched.archived, fetched.owner_id) == (int(CHANNEL), True, int(U1))
            fake.unarchive(two.id)
            assert len(await guild.active_threads()) == 2
            assert guild.text_channels[0].last_message_id == int(two.id)


async def test_a_forum_post_has_one_id_for_thread_and_first_message(fake, client):
    asked = await fake.post(U1, FORUM, "how", f"<@{BOT}> how?")
    [event] = await fake.until(lambda: client.of("message"))
    assert event.id == event.channel.id == int(asked.id)
    assert event.channel.parent_id == int(FORUM)
    made = await client.get_channel(int(FORUM)).create_thread(name="mine", content="text")
    assert made.thread.id == made.message.id
    assert await refused(place(client, FORUM).send("x")) == (400, 50008)
    assert [post.channel for post in fake.posts()] == [str(made.thread.id)]


async def test_reactions_are_kept_per_person_and_told(fake, client):
    said = fake.say(U1, CHANNEL, "x")
    fake.react(U2, said, "👍")
    message = place(client, CHANNEL).get_partial_message(int(said.id))
    await message.add_reaction("👀")
    await message.add_reaction("👍")
    await message.add_reaction("👍")
    assert said.reactions == {"👍": [U2, BOT], "👀": [BOT]}
    await message.remove_reaction("👀", client.user)
    assert await refused(message.add_reaction("eyes")) == (400, 10014)
    fake.deny(CHANNEL, "ADD_REACTIONS")
    assert await refused(message.add_reaction("🔥")) == (403, 50013)
    await message.add_reaction("👍")
    await fake.until(lambda: client.of("raw_reaction_remove"))
    assert said.reactions == {"👍": [U2, BOT]}
    assert len(client.of("raw_reaction_add")) == 3


async def test_typing_is_noted_and_a_deleted_channel_is_unknown(fake, client):
    async with place(client, CHANNEL).typing():
        pass
    thread = fake.thread(U1, fake.say(U1, CHANNEL, "x"), "t")
    fake.delete_channel(thread.id)
    assert await refused(place(client, thread.id).send("x")) == (404, 10003)
    await fake.until(lambda: client.of("raw_thread_delete"))
    fake.delete_channel(CHANNEL)
    await fake.until(lambda: client.of("guild_channel_delete"))
    assert await refused(client.fetch_channel(int(CHANNEL))) == (404, 10003)
    assert fake.typings == [CHANNEL]
