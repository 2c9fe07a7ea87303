"""What a channel's id stands for: learnt from what passes by, and asked for once."""

from __future__ import annotations

import discord
import pytest

from tests.transports.discord.payloads import (
    DM,
    FORUM,
    GUILD,
    NEWS,
    POST,
    TEXT,
    THREAD,
    VOICE,
    archived_thread,
    cached_channel,
    group_channel,
    heard,
    message,
    said,
    thread,
)
from threads.errors import TransportRejected, TransportUnavailable
from transports.discord.api.channel_types import Channels
from transports.discord.api.values import Place

PRIVATE = "700000000000000021"


class RestStub:
    """Stands in for REST, and counts its calls."""

    def __init__(self, answer=None):
        self.answer, self.calls = answer, []

    async def channel(self, channel_id):
        self.calls.append(channel_id)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("id_", "place"),
    [
        (TEXT, Place(TEXT, "channel", GUILD, threads=True)),
        (NEWS, Place(NEWS, "channel", GUILD, threads=True)),
        (VOICE, Place(VOICE, "channel", GUILD)),
        (FORUM, Place(FORUM, "channel", GUILD)),
        (THREAD, Place(THREAD, "thread", GUILD, TEXT)),
        (POST, Place(POST, "thread", GUILD, FORUM)),
    ],
)
async def test_a_channel_of_a_guild_is_what_it_is(id_, place):
    channels = Channels(RestStub())
    assert channels.see(cached_channel(id_)) == place
    assert await channels.of(id_) == place  # without asking


async def test_a_thread_of_any_kind_is_one():
    channels = Channels(RestStub())
    for kind in (10, 11, 12):
        seen = heard({**thread(PRIVATE, TEXT, kind), "newly_created": True}, "THREAD_CREATE")
        assert channels.see(seen) == Place(PRIVATE, "thread", GUILD, TEXT)


async def test_a_direct_message_has_no_guild():
    data = {name: value for name, value in said(channel=DM).items() if name != "guild_id"}
    assert Channels(RestStub()).see(message(data).channel) == Place(DM, "direct", "@me")


async def test_what_is_told_without_its_guild_makes_no_direct_message_of_a_guilds_channel():
    """So Discord tells of answers to one person alone; the library takes them for direct messages."""
    channels = Channels(RestStub())
    thread = channels.see(cached_channel(THREAD))
    data = {name: value for name, value in said(channel=THREAD).items() if name != "guild_id"}
    alone = message(data).channel
    assert isinstance(alone, discord.DMChannel)
    assert channels.see(alone) == thread
    assert await channels.of(THREAD) == thread


async def test_the_channel_of_an_archived_thread_is_unknown_until_it_was_asked_for_once():
    rest = RestStub(archived_thread())
    channels = Channels(rest)
    uncached = message(said(channel="700000000000000099")).channel
    assert channels.see(uncached) is None
    uncached.id = int(THREAD)
    assert channels.see(uncached) is None
    assert await channels.of(THREAD) == Place(THREAD, "thread", GUILD, TEXT)
    assert channels.see(uncached) == Place(THREAD, "thread", GUILD, TEXT)
    assert await channels.of(THREAD)
    assert rest.calls == [THREAD]


async def test_what_is_no_channel_is_unknown():
    for odd in (None, object(), discord.Object(5)):
        assert Channels(RestStub()).see(odd) is None


async def test_a_look_up_that_fails_is_made_again():
    rest = RestStub(TransportUnavailable("no"))
    channels = Channels(rest)
    with pytest.raises(TransportUnavailable):
        await channels.of(THREAD)
    rest.answer = archived_thread()
    assert (await channels.of(THREAD)).parent == TEXT


async def test_a_channel_that_nobody_can_write_to_us_in_is_refused():
    with pytest.raises(TransportRejected):
        await Channels(RestStub(group_channel())).of(DM)


async def test_only_so_many_are_remembered_and_those_that_are_used_stay(monkeypatch):
    monkeypatch.setattr("transports.discord.api.channel_types.MOST_PLACES", 2)
    channels = Channels(RestStub())
    channels.see(cached_channel(TEXT))
    channels.see(cached_channel(NEWS))
    channels.known(TEXT)
    channels.see(cached_channel(VOICE))
    assert [bool(channels.known(id_)) for id_ in (TEXT, NEWS, VOICE)] == [True, False, True]
    channels.see(cached_channel(TEXT))
    channels.see(cached_channel(NEWS))
    assert channels.known(TEXT)
    channels.forget(TEXT)
    channels.forget("5")
    assert channels.known(TEXT) is None
