"""Threads, forum posts, reactions and typing in the fake Discord, through the real discord.py."""

from tests.fakes.discord import BOT, CHANNEL, U1, U2, FakeDiscord
from tests.fakes.discord.sdk import RecordingClient, connected, online, place, refused, rest


async def test_a_second_thread_of_a_message_and_threads_in_threads_and_dms_are_refused():
    async with rest() as (fake, client):
        http, said = client.http, fake.say(U1, CHANNEL, "x")
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
        assert await refused(place(client, said.id).send("x")) == (403, 50013)
        await place(client, CHANNEL).send("the channel itself is open")


async def test_a_send_wakes_an_archived_thread_but_not_a_locked_one():
    async with online() as (fake, client):
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


async def test_a_guild_has_the_open_threads_and_a_fetched_one_tells_its_parent():
    async with FakeDiscord() as fake:
        client = RecordingClient()
        one, two = (fake.thread(U1, fake.say(U1, CHANNEL, text), text) for text in ("a", "b"))
        fake.archive(two.id)
        async with connected(client, fake):
            guild = client.guilds[0]
            assert [thread.id for thread in guild.threads] == [int(one.id)]
            fetched = await client.fetch_channel(int(two.id))
            assert (fetched.parent_id, fetched.archived, fetched.owner_id) == (int(CHANNEL), True, int(U1))
            assert guild.text_channels[0].last_message_id == int(two.id)


async def test_reactions_are_kept_per_person_and_told():
    async with online() as (fake, client):
        said = fake.say(U1, CHANNEL, "x")
        said.reactions["👍"] = [U2]
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
    assert len(client.of("raw_reaction_add")) == 2
