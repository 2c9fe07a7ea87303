"""The fake Discord's gateway as the real discord.py meets it: sessions, resumes, refusals and dead links."""

from tests.fakes.discord import BOT, CHANNEL, U1, FakeDiscord
from tests.fakes.discord.sdk import RecordingClient, connected


def texts(client):
    return [message.content for message in client.of("message")]


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
