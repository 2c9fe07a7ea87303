"""Messages in the fake Discord, through the real discord.py: sending, nonces, edits, sizes, pings, history, files."""

import aiohttp
import discord as sdk
import pytest

from tests.fakes.discord import CHANNEL, CHANNEL2, FORUM, ROLE, U1, U2
from tests.fakes.discord.sdk import online, place, refused, rest


async def test_a_repeated_nonce_gives_the_stored_message_for_some_minutes_only():
    async with online(nonce_lasts=300) as (fake, client):
        first = await place(client, CHANNEL).send("one", nonce="n1")
        twin = await place(client, CHANNEL).send("other", nonce="n1")
        await client.http.send_message(
            int(CHANNEL), params=sdk.http.handle_message_parameters("free", nonce=None)
        )
        fake.later(301)
        third = await place(client, CHANNEL).send("three", nonce="n1")
        await fake.until(lambda: len(client.of("message")) == 3)
    assert (twin.id, twin.content, twin.nonce) == (first.id, "one", "n1")
    assert third.id != first.id
    assert [post.content for post in fake.posts()] == ["one", "free", "three"]


async def test_a_nonce_whose_message_was_deleted_makes_no_new_one():
    async with rest(nonce_lasts=300) as (fake, client):
        first = await place(client, CHANNEL).send("one", nonce="n1")
        await place(client, CHANNEL).get_partial_message(first.id).delete()
        assert await refused(place(client, CHANNEL).send("one", nonce="n1")) == (404, 10008)
        fake.later(301)
        await place(client, CHANNEL).send("again", nonce="n1")
    assert [post.content for post in fake.posts()] == ["again"]


@pytest.mark.parametrize(("shown", "nonces"), [(60, ["n1"]), (0, [None])])
async def test_history_shows_a_nonce_for_a_short_while(shown, nonces):
    async with rest(nonce_shown=shown) as (_, client):
        await place(client, CHANNEL).send("one", nonce="n1")
        assert [message.nonce async for message in place(client, CHANNEL).history()] == nonces


async def test_texts_and_buttons_that_are_too_long_are_refused():
    async with rest() as (fake, client):
        view = sdk.ui.View()
        view.add_item(sdk.ui.Button(label="x" * 80, custom_id="y" * 100))
        view.stop()
        await place(client, CHANNEL).send("a" * 2000, view=view)
        assert fake.posts()[0].buttons == [("x" * 80, "y" * 100)]
        view.children[0].label = "x" * 81
        assert await refused(place(client, CHANNEL).send("a", view=view)) == (400, 50035)
        assert await refused(place(client, CHANNEL).send("a" * 2001)) == (400, 50035)
        assert await refused(place(client, CHANNEL).send("")) == (400, 50006)
        assert await refused(place(client, CHANNEL).send("a", nonce="n" * 26)) == (400, 50035)
        assert len(fake.posts()) == 1


async def test_unknown_things_and_missing_permissions_are_refused():
    async with rest() as (fake, client):
        other = fake.say(U1, CHANNEL, "mine")
        assert await refused(place(client, "123").send("x")) == (404, 10003)
        assert await refused(place(client, FORUM).send("x")) == (400, 50008)
        assert await refused(place(client, CHANNEL).fetch_message(1)) == (404, 10008)
        assert await refused(place(client, CHANNEL).get_partial_message(int(other.id)).edit(content="x")) == (
            403,
            50005,
        )
        expected = (403, 50013)
        assert await refused(place(client, CHANNEL).get_partial_message(int(other.id)).delete()) == expected
        fake.deny(CHANNEL, "SEND_MESSAGES")
        fake.deny(CHANNEL2, "VIEW_CHANNEL")
        assert await refused(place(client, CHANNEL).send("x")) == (403, 50013)
        assert await refused(place(client, CHANNEL2).send("x")) == (403, 50001)
        fake.closed_dms.add(U1)
        assert await refused(place(client, fake.dm(U1)).send("x")) == (403, 50007)
        assert fake.invalid == 5


async def test_pings_follow_allowed_mentions_and_code_pings_nobody():
    async with rest() as (fake, client):
        text = f"<@{U1}> <@&{ROLE}> @everyone `<@{U2}>`"
        await place(client, CHANNEL).send(text, allowed_mentions=sdk.AllowedMentions.all())
        await place(client, CHANNEL).send(
            text, allowed_mentions=sdk.AllowedMentions(users=True, roles=False, everyone=False)
        )
        await place(client, CHANNEL).send(text)
        question = fake.say(U1, CHANNEL, "?")
        reference = sdk.MessageReference(message_id=int(question.id), channel_id=int(CHANNEL))
        await place(client, CHANNEL).send("quiet", reference=reference)
        await place(client, CHANNEL).send("loud", reference=reference, mention_author=True)
    assert [post.pings for post in fake.posts()] == [[U1, ROLE, "everyone"], [U1], [], [], [U1]]
    assert fake.posts()[3].reply_to == question.id
    assert fake.pings == [U1, ROLE, "everyone", U1, U1]


async def test_a_reply_to_what_is_gone_is_refused_unless_it_may_be():
    async with rest() as (fake, client):
        gone = fake.say(U1, CHANNEL, "?")
        fake.delete(gone)
        reference = sdk.MessageReference(message_id=int(gone.id), channel_id=int(CHANNEL))
        assert await refused(place(client, CHANNEL).send("x", reference=reference)) == (400, 50035)
        reference.fail_if_not_exists = False
        await place(client, CHANNEL).send("y", reference=reference)
    assert [(post.content, post.reply_to) for post in fake.posts()] == [("y", "")]


async def test_previews_are_made_unless_they_are_suppressed_and_flags_0_brings_them_back():
    async with rest() as (fake, client):
        await place(client, CHANNEL).send("https://a.example/x")
        sent = await place(client, CHANNEL).send(
            "https://b.example/y <https://c.example>", suppress_embeds=True
        )
        assert fake.unfurls == ["https://a.example/x"]
        await place(client, CHANNEL).get_partial_message(sent.id).edit(content="https://b.example/y2")
        assert (fake.unfurls, fake.posts()[1].flags) == (["https://a.example/x"], 4)
        await sent.edit(content="https://b.example/y3")
        assert (fake.unfurls, fake.posts()[1].flags) == (["https://a.example/x", "https://b.example/y3"], 0)
    assert fake.posts()[1].contents[-1] == "https://b.example/y3"


async def test_every_answer_is_plain_application_json_and_a_wrong_token_is_401():
    async with rest() as (fake, _), aiohttp.ClientSession() as http:
        for token, status in (("wrong", 401), (fake.token, 200)):
            headers = {"Authorization": f"Bot {token}"}
            async with http.get(f"{fake.api_base_url}/users/@me", headers=headers) as answer:
                assert (answer.status, answer.headers["Content-Type"]) == (status, "application/json")
        async with http.get(f"{fake.api_base_url}/nowhere") as answer:
            assert (answer.status, await answer.json()) == (404, {"message": "404: Not Found", "code": 0})
