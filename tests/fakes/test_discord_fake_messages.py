"""Messages in the fake Discord, through the real discord.py: sending, nonces, edits, sizes, pings, history, files."""

import aiohttp
import discord as sdk
import pytest

from tests.fakes.discord import BOT, CHANNEL, CHANNEL2, FORUM, GUILD, ROLE, U1, U2
from tests.fakes.discord.sdk import gateway, place, refused, rest

pytestmark = pytest.mark.anyio


async def test_a_message_is_stored_and_told_and_read_back(fake, client):
    sent = await place(client, CHANNEL).send("hello", nonce="n1")
    [event] = await fake.until(lambda: client.of("message"))
    read = await place(client, CHANNEL).fetch_message(sent.id)
    assert (event.id, event.content, event.nonce, event.author.id) == (sent.id, "hello", "n1", int(BOT))
    assert (read.content, read.edited_at, event.guild.id) == ("hello", None, int(GUILD))
    assert [post.content for post in fake.posts()] == ["hello"]


async def test_a_repeated_nonce_gives_the_stored_message_for_some_minutes_only():
    async with gateway(nonce_lasts=300) as (fake, client):
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


async def test_history_pages_in_every_direction_and_leaves_out_what_was_deleted(fake, api):
    said = [fake.say(U1, CHANNEL, str(number)) for number in range(120)]
    fake.delete(said[60])

    async def texts(**more):
        return [message.content async for message in place(api, CHANNEL).history(**more)]

    after = sdk.Object(int(said[9].id))
    assert await texts(after=after, limit=None) == [str(n) for n in range(10, 120) if n != 60]
    assert await texts(before=sdk.Object(int(said[3].id)), limit=2) == ["2", "1"]
    assert await texts(around=sdk.Object(int(said[50].id)), limit=3) == ["51", "50", "49"]
    assert await texts(limit=1) == ["119"]


async def test_texts_and_buttons_that_are_too_long_are_refused(fake, api):
    view = sdk.ui.View()
    view.add_item(sdk.ui.Button(label="x" * 80, custom_id="y" * 100))
    view.stop()
    await place(api, CHANNEL).send("a" * 2000, view=view)
    assert fake.posts()[0].buttons == [("x" * 80, "y" * 100)]
    view.children[0].label = "x" * 81
    assert await refused(place(api, CHANNEL).send("a", view=view)) == (400, 50035)
    assert await refused(place(api, CHANNEL).send("a" * 2001)) == (400, 50035)
    assert await refused(place(api, CHANNEL).send("")) == (400, 50006)
    assert await refused(place(api, CHANNEL).send("a", nonce="n" * 26)) == (400, 50035)
    assert len(fake.posts()) == 1


async def test_unknown_things_and_missing_permissions_are_refused(fake, api):
    other = fake.say(U1, CHANNEL, "mine")
    assert await refused(place(api, "123").send("x")) == (404, 10003)
    assert await refused(place(api, FORUM).send("x")) == (400, 50008)
    assert await refused(place(api, CHANNEL).fetch_message(1)) == (404, 10008)
    assert await refused(place(api, CHANNEL).get_partial_message(int(other.id)).edit(content="x")) == (
        403,
        50005,
    )
    assert await refused(place(api, CHANNEL).get_partial_message(int(other.id)).delete()) == (
        403,
        50013,
    )
    fake.deny(CHANNEL, "SEND_MESSAGES")
    fake.deny(CHANNEL2, "VIEW_CHANNEL")
    assert await refused(place(api, CHANNEL).send("x")) == (403, 50013)
    assert await refused(place(api, CHANNEL2).send("x")) == (403, 50001)
    fake.closed_dms.add(U1)
    assert await refused(place(api, fake.dm(U1)).send("x")) == (403, 50007)
    assert fake.invalid == 5


async def test_pings_follow_allowed_mentions_and_code_pings_nobody(fake, api):
    text = f"<@{U1}> <@&{ROLE}> @everyone `<@{U2}>`"
    await place(api, CHANNEL).send(text, allowed_mentions=sdk.AllowedMentions.all())
    await place(api, CHANNEL).send(
        text, allowed_mentions=sdk.AllowedMentions(users=True, roles=False, everyone=False)
    )
    await place(api, CHANNEL).send(text)
    question = fake.say(U1, CHANNEL, "?")
    reference = sdk.MessageReference(message_id=int(question.id), channel_id=int(CHANNEL))
    await place(api, CHANNEL).send("quiet", reference=reference)
    await place(api, CHANNEL).send("loud", reference=reference, mention_author=True)
    assert [post.pings for post in fake.posts()] == [[U1, ROLE, "everyone"], [U1], [], [], [U1]]
    assert fake.posts()[3].reply_to == question.id
    assert fake.pings == [U1, ROLE, "everyone", U1, U1]


async def test_a_reply_to_what_is_gone_is_refused_unless_it_may_be(fake, api):
    gone = fake.say(U1, CHANNEL, "?")
    fake.delete(gone)
    reference = sdk.MessageReference(message_id=int(gone.id), channel_id=int(CHANNEL))
    assert await refused(place(api, CHANNEL).send("x", reference=reference)) == (400, 50035)
    reference.fail_if_not_exists = False
    await place(api, CHANNEL).send("y", reference=reference)
    assert [(post.content, post.reply_to) for post in fake.posts()] == [("y", "")]


async def test_previews_are_made_unless_they_are_suppressed_and_flags_0_brings_them_back(fake, api):
    await place(api, CHANNEL).send("https://a.example/x")
    sent = await place(api, CHANNEL).send("https://b.example/y <https://c.example>", suppress_embeds=True)
    assert fake.unfurls == ["https://a.example/x"]
    await place(api, CHANNEL).get_partial_message(sent.id).edit(content="https://b.example/y2")
    assert (fake.unfurls, fake.posts()[1].flags) == (["https://a.example/x"], 4)
    await sent.edit(content="https://b.example/y3")
    assert (fake.unfurls, fake.posts()[1].flags) == (["https://a.example/x", "https://b.example/y3"], 0)
    assert fake.posts()[1].contents[-1] == "https://b.example/y3"


async def test_files_come_and_go_and_their_addresses_expire():
    async with rest(upload_limit=100) as (fake, client):
        said = fake.say(U1, CHANNEL, "", files=[("a.txt", b"data", "text/plain")])
        read = await place(client, CHANNEL).fetch_message(int(said.id))
        [file] = read.attachments
        assert (file.filename, file.size, file.content_type) == ("a.txt", 4, "text/plain")
        assert await file.read() == b"data"
        fake.expire_links()
        with pytest.raises(sdk.NotFound):
            await file.read()
        [fresh] = (await place(client, CHANNEL).fetch_message(int(said.id))).attachments
        assert await fresh.read() == b"data"
        name = sdk.File(__file__, filename="b.md")
        assert await refused(place(client, CHANNEL).send(file=name)) == (413, 40005)
    assert fake.downloads == ["a.txt"] * 3


async def test_an_upload_is_kept_with_its_text_and_an_edit_can_take_it_off(fake, api):
    sent = await place(api, CHANNEL).send("see", file=sdk.File(__file__, filename="b.md"), nonce="n1")
    [post] = fake.posts()
    assert post.files["b.md"].startswith(b'"""Messages in the fake')
    await place(api, CHANNEL).get_partial_message(sent.id).edit(content="none", attachments=[])
    assert (post.content, post.attachments) == ("none", [])


async def test_every_answer_is_plain_application_json_and_a_wrong_token_is_401():
    async with rest() as (fake, _), aiohttp.ClientSession() as http:
        for token, status in (("wrong", 401), (fake.token, 200)):
            headers = {"Authorization": f"Bot {token}"}
            async with http.get(f"{fake.api_base_url}/users/@me", headers=headers) as answer:
                assert (answer.status, answer.headers["Content-Type"]) == (status, "application/json")
        async with http.get(f"{fake.api_base_url}/nowhere") as answer:
            assert (answer.status, await answer.json()) == (404, {"message": "404: Not Found", "code": 0})
