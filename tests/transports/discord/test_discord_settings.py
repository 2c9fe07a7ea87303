"""From settings.json to the wire: what is switched off there, Discord is not asked for."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace

import pytest

from bot.config.load import load
from bot.config.scopes import CurrentSettings
from bot.host.extension import TransportHost
from bot.observe.event_stream import EventStream
from tests.fakes.discord import BOT, CHANNEL, U1, FakeDiscord
from tests.transports.bot import PROXIES, bot_over
from tests.transports.discord.bot import answers
from tests.transports.settling import until_settled
from tests.world import Clock, Streams, inline
from threads.file_store import FileStore
from threads.store.disk import PosixDisk
from transports.discord.extension import extension

NAMED = f"<@{BOT}>"
REACT = "PUT /channels/{}/messages/{}/reactions/{}/@me"
TYPING = "POST /channels/{}/typing"
OPEN = "POST /channels/{}/messages/{}/threads"


async def asked(discord, tmp_path, **written):
    """Ask a bot with these settings, and return the posts that its answer took."""
    for name in PROXIES:
        os.environ.pop(name, None)
    addresses = {"api_base_url": discord.api_base_url, "gateway_url": discord.gateway_url}
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"data": "data", "transports": {"discord": {**addresses, **written}}}))
    settings = load(path, environ={}).settings
    settings.data.mkdir()
    store = FileStore(settings.data, PosixDisk(), offload=inline, journal_offload=inline, now=Clock())
    host = TransportHost(
        "discord",
        settings.transports.discord,
        CurrentSettings(settings),
        {"DISCORD_TOKEN": discord.token},
        SimpleNamespace(store=store),
        ["offline/demo"],
        lambda _: None,
        lambda: None,
        EventStream(),
    )
    edge = extension.transports["discord"].open(host)
    async with bot_over(edge, settings.data, Streams("word " * 30, "the end")):
        said = await discord.say(U1, CHANNEL, f"{NAMED} hi")
        await until_settled(settings.data, said.id)
        return [message for message in discord.posts() if not message.deleted]


async def test_by_default_there_are_signs_and_the_text_grows_before_it_ends(tmp_path):
    async with FakeDiscord() as discord:
        [answer] = await asked(discord, tmp_path)
        assert answer.content.endswith("the end")
        assert len(answer.contents) > 1
        assert "word word" in answer.contents[0]
        assert discord.calls_to(REACT)
        assert discord.calls_to(TYPING)


@pytest.mark.parametrize("mode", ["progress", "off"])
async def test_without_streaming_no_text_is_shown_before_it_is_final(tmp_path, mode):
    async with FakeDiscord() as discord:
        [answer] = await asked(discord, tmp_path, streaming=mode)
        assert answer.content.endswith("the end")
        assert not any("word" in text for text in answer.contents[:-1])
        assert mode == "progress" or len(answer.contents) == 1


async def test_signs_can_be_switched_off(tmp_path):
    async with FakeDiscord() as discord:
        assert await asked(discord, tmp_path, reactions=False, typing=False, streaming="off")
        assert not discord.calls_to(REACT)
        assert not discord.calls_to(TYPING)


async def test_in_a_channel_of_in_place_no_thread_is_opened(tmp_path):
    async with FakeDiscord() as discord:
        [answer] = await asked(discord, tmp_path, in_place=[CHANNEL])
        assert answer.channel == CHANNEL
        assert answers(discord, CHANNEL) == [answer.content]
        assert not discord.calls_to(OPEN)
