"""Reading what people attach: from Discord's hosts alone, with a new address for one that expired, and never half."""

from __future__ import annotations

from dataclasses import replace

import aiohttp
import pytest
from yarl import URL

from tests.fakes.discord import CHANNEL, CHANNEL2, TOKEN, U1, FakeDiscord, Refused, Status
from tests.fakes.discord.views import attachment_view
from tests.fakes.http import FakeHttp, Reply
from threads.errors import FileUnavailable
from threads.model import Attachment
from transports.discord.api.rest import open_rest
from transports.discord.events.downloads import open_download, trusted
from transports.shared import downloads
from transports.shared.link.proxy import own_origin

NOTES = ("notes.txt", b"some notes", "text/plain")


class FileServer(FakeHttp):
    paths = ("/f", "/g")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(downloads, "PAUSE_S", 0.01)


@pytest.fixture
async def discord():
    async with FakeDiscord() as fake:
        yield fake


@pytest.fixture
async def rest(discord):
    async with open_rest(discord.api_base_url, TOKEN) as rest:
        await rest.login()
        yield rest


@pytest.fixture
async def session():
    async with aiohttp.ClientSession() as session:
        yield session


def attached(discord, file=NOTES, channel=CHANNEL):
    """Say something with a file, and return it as it was written down then."""
    message = discord.say(U1, channel, "look", files=[file])
    return as_heard(discord, message, message.attachments[0])


def as_heard(discord, message, file):
    view = attachment_view(discord, file)
    id_ = f"{message.channel}/{message.id}/{file.id}"
    return Attachment(id_, file.name, file.kind, len(file.content), view["url"])


async def chunks_of(session, rest, attachment, base, **more):
    async with open_download(session, rest, attachment, own_origin(base), **more) as chunks:
        return [chunk async for chunk in chunks]


async def refused(session, rest, attachment, base, **more):
    with pytest.raises(FileUnavailable) as error:
        await chunks_of(session, rest, attachment, base, **more)
    return error.value.friendly


async def test_a_file_is_read_in_small_chunks(discord, rest, session):
    content = bytes(range(256)) * 1_000
    attachment = attached(discord, ("a.bin", content, "application/octet-stream"))
    chunks = await chunks_of(session, rest, attachment, discord.api_base_url)
    assert b"".join(chunks) == content
    assert max(map(len, chunks)) <= 64 * 1024
    assert not discord.calls_to("GET /channels/{}/messages/{}")


async def test_an_address_that_expired_is_asked_for_anew(discord, rest, session):
    other = ("other.txt", b"other notes", "text/plain")
    message = discord.say(U1, CHANNEL, "look", files=[other, NOTES])
    attachment = as_heard(discord, message, message.attachments[1])
    discord.expire_links()
    chunks = await chunks_of(session, rest, attachment, discord.api_base_url)
    assert chunks == [b"some notes"]
    assert len(discord.calls_to("GET /channels/{}/messages/{}")) == 1


async def test_a_forwarded_file_that_expired_is_found_in_the_message_that_forwarded_it(
    discord, rest, session
):
    said = discord.say(U1, CHANNEL2, "look", files=[NOTES])
    forward = discord.say(U1, CHANNEL, forward_of=said)
    attachment = as_heard(discord, forward, said.attachments[0])
    attachment = replace(attachment, url=attachment.url.replace("ex=0", "ex=dead"))
    assert await chunks_of(session, rest, attachment, discord.api_base_url) == [b"some notes"]


async def test_a_file_whose_message_is_gone_is_told_so(discord, rest, session):
    attachment = attached(discord)
    discord.delete(attachment.id.split("/")[1])
    discord.expire_links()
    assert "not there" in await refused(session, rest, attachment, discord.api_base_url)


async def test_a_file_that_was_taken_off_its_message_is_told_so(discord, rest, session):
    attachment = attached(discord)
    discord.message(attachment.id.split("/")[1]).attachments.clear()
    discord.expire_links()
    assert "not there" in await refused(session, rest, attachment, discord.api_base_url)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Refused(403, 50001), "permission"),
        (Status(503), "did not hand"),
        (Refused(400, 50035), "did not hand"),
    ],
)
async def test_a_message_that_cannot_be_read_again_costs_its_file_alone(discord, rest, session, fault, said):
    attachment = attached(discord)
    discord.expire_links()
    discord.fail("GET /channels/{}/messages/{}", fault, forever=True)
    assert said in await refused(session, rest, attachment, discord.api_base_url)


@pytest.mark.parametrize("status", [403, 404])
async def test_a_new_address_that_is_refused_as_well_is_not_asked_for_again(discord, rest, session, status):
    attachment = attached(discord)
    discord.fail("GET /cdn", Status(status), forever=True)
    assert await refused(session, rest, attachment, discord.api_base_url)
    assert len(discord.downloads) == 2


async def test_no_token_goes_to_where_files_are_kept_and_none_is_fetched_elsewhere(session, rest):
    async with FileServer(lambda _: Reply((b"here",))) as thief:
        there = (("location", f"{thief.base_url}/f"),)
        async with FileServer([Reply(status=302, headers=there)]) as server:
            attachment = Attachment("1/2/3", "a.txt", "text/plain", 4, f"{server.base_url}/f")
            said = await refused(session, rest, attachment, server.base_url)
            [asked] = server.requests
        assert "outside of Discord" in said and thief.connections == 0
        assert "authorization" not in {name.lower() for name in asked.headers}
        assert TOKEN not in str(asked.headers)


async def test_a_file_shorter_than_discord_said_is_never_whole(session, rest):
    async with FileServer([Reply((b"half",))]) as server:
        attachment = Attachment("1/2/3", "a.txt", "text/plain", 10, f"{server.base_url}/f")
        assert "broke off" in await refused(session, rest, attachment, server.base_url)


@pytest.mark.parametrize("id_", ["", "nothing", "a/b/c", "1/2", "1/2/3/4"])
async def test_an_id_that_says_nothing_costs_its_file_alone(discord, rest, session, id_):
    attachment = replace(attached(discord), id=id_)
    discord.expire_links()
    assert "not there" in await refused(session, rest, attachment, discord.api_base_url)


OWN = own_origin("http://127.0.0.1:8080/api/v10")


@pytest.mark.parametrize(
    ("url", "is_trusted"),
    [
        ("https://cdn.discordapp.com/attachments/1/2/a.txt?ex=1&is=2&hm=3", True),
        ("https://media.discordapp.net/attachments/1/2/a.png", True),
        ("http://cdn.discordapp.com/a", False),
        ("https://cdn.discordapp.com:8443/a", False),
        ("https://x.cdn.discordapp.com/a", False),
        ("https://cdn.discordapp.com.evil.example/a", False),
        ("https://discord.com/a", False),
        ("https://evil.example@cdn.discordapp.com/a", False),
        ("https://127.0.0.1/a", False),
        ("ftp://cdn.discordapp.com/a", False),
        ("", False),
    ],
)
def test_only_discords_hosts_are_trusted(url, is_trusted):
    assert trusted(URL(url), None) is trusted(URL(url), OWN) is is_trusted
