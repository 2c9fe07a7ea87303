"""Slash commands, through the real client and the loopback Discord."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import get_args

import anyio
import pytest

from bot.config.settings import Settings
from bot.host.extension import ThreadCommand, thread_commands
from bot.routing import commands
from tests.fakes.discord import (
    CHANNEL,
    GUILD,
    ROLE,
    U1,
    VOICE,
    Cut,
    FakeDiscord,
    RateLimited,
    Refused,
    Stall,
    Status,
)
from tests.fakes.discord.sdk import RecordingClient, connected
from threads import wording
from threads.errors import StoreUnavailable
from threads.model import Author, ThreadId
from threads.store.disk import PosixDisk
from transports.discord.api.channel_types import Channels
from transports.discord.api.options import Options
from transports.discord.api.rest import Rest
from transports.discord.events import interactions
from transports.discord.events.command_registration import CommandRegistration
from transports.discord.events.slash_commands import OUTDATED, UNSUPPORTED_CHANNEL, SlashCommands, matching

CALLBACK = "POST /interactions/{}/{}/callback"
PUT = "PUT /applications/{}/commands"
NAMES = ["anthropic/claude-opus", "anthropic/claude-haiku", "openai/gpt", "default"]

THEIRS = ThreadCommand("feed", "/feed CAT [DISH …]", "put " + "fish " * 30 + "into a dish", "The cat is out.")
NOT_TAKEN = [
    ThreadCommand(name, f"/{name} MORE", "", "") for name in ("stop", "feed", "Two_Words!", "x" * 40)
]
"""A name that is there already, or that Discord refuses."""
USAGES = commands.with_extensions([*thread_commands(Settings()), THEIRS, *NOT_TAKEN])
COMMANDS = {*get_args(commands.Name), *(one.name for one in thread_commands(Settings())), "feed"}


class CommandCase:
    """A client with the commands; what is heard is answered with the number of its words, or fails."""

    def __init__(self, fake):
        self.fake, self.taken, self.failure = fake, [], None
        self.disk = None
        self.client = RecordingClient()
        self.channels = Channels(Rest.__new__(Rest))
        self.slash = SlashCommands(
            self.client, self.channels, self.take, Options("", commands=USAGES, models=NAMES)
        )

    async def take(self, incoming, *_):
        self.taken.append(incoming)
        self.fake.changed()
        if self.failure:
            raise self.failure
        if self.disk:
            await self.disk.wait()
        return incoming.text

    async def said(self, user, channel, command, **options):
        """Type a command; return what came of it for the bot."""
        before = len(self.taken)
        await self.fake.slash(user, channel, command, options)
        await self.fake.until(lambda: len(self.taken) > before)
        return self.taken[-1]


@asynccontextmanager
async def command_case(**options):
    async with FakeDiscord(**options) as fake:
        case = CommandCase(fake)
        async with connected(case.client, fake):
            yield fake, case


# -- what is said ----------------------------------------------------------------------------------------------


async def test_a_command_is_heard_first_and_answered_to_the_person_alone():
    async with command_case() as (fake, case):
        fake.users[U1].roles = [ROLE]
        asked = await fake.slash(U1, CHANNEL, "status")
        assert (asked.kind, asked.ephemeral) == (5, True)
        await fake.until(lambda: asked.contents)
        assert asked.contents == ["/status"]
        [incoming] = case.taken
        assert (incoming.text, incoming.via) == ("/status", "mention")
        assert incoming.thread == ThreadId("discord", GUILD, CHANNEL, "")
        assert incoming.author == Author(U1, fake.users[U1].name.title(), (ROLE,))
        assert incoming.sent_at > "2020"


async def test_a_command_is_acknowledged_when_it_is_on_the_disk():
    async with command_case() as (fake, case):
        case.disk = anyio.Event()
        asked = fake.slash(U1, CHANNEL, "status")
        await fake.until(lambda: case.taken)
        await anyio.sleep(0.05)
        assert not fake.calls_to(CALLBACK)
        case.disk.set()
        await fake.until(lambda: asked.contents)
        assert asked.contents == ["/status"]


async def test_a_slow_disk_costs_no_acknowledgement(monkeypatch):
    monkeypatch.setattr(interactions, "DURABLE_WITHIN_S", 0.05)
    async with command_case() as (fake, case):
        case.disk = anyio.Event()
        asked = await fake.slash(U1, CHANNEL, "status")
        assert (asked.kind, asked.contents) == (5, [])
        case.disk.set()
        await fake.until(lambda: asked.contents)
        assert asked.contents == ["/status"]


async def test_every_command_of_the_bot_is_there_and_no_other():
    async with command_case() as (_, case):
        assert {command.name for command in case.slash.get_commands()} == COMMANDS
        for name in get_args(commands.Name):
            incoming = await case.said(U1, CHANNEL, name)
            assert commands.parse(incoming.text) == commands.Command(name, name)


async def test_words_follow_the_command_in_one_line_and_are_bounded():
    async with command_case() as (_, case):
        assert (await case.said(U1, CHANNEL, "model", name="openai/gpt")).text == "/model openai/gpt"
        assert (await case.said(U1, CHANNEL, "approve", words=" 2 \n dollars ")).text == "/approve 2 dollars"
        assert len((await case.said(U1, CHANNEL, "approve", words="x" * 7000)).text) == 6000


async def test_a_command_of_an_extension_is_there_with_its_words_and_as_much_as_discord_shows_of_its_meaning():
    async with command_case() as (_, case):
        feed = case.slash.get_command("feed")
        expected = ("Put fish ", "…", True)
        assert (feed.description[:9], feed.description[-1], len(feed.description) <= 100) == expected
        assert [one.description for one in feed.parameters] == ["CAT [DISH …]"]
        assert (await case.said(U1, CHANNEL, "feed", words="Tom")).text == "/feed Tom"


async def test_a_command_in_a_thread_or_a_direct_message_is_said_there():
    async with command_case() as (fake, case):
        thread = await fake.thread(U1, await fake.say(U1, CHANNEL, "hi"), "talk")
        assert (await case.said(U1, thread.id, "new")).thread == ThreadId(
            "discord", GUILD, CHANNEL, thread.id
        )
        direct = fake.dm(U1)
        direct = direct if isinstance(direct, str) else direct.id
        incoming = await case.said(U1, direct, "new")
        assert (incoming.thread, incoming.via) == (ThreadId("discord", "@me", direct, direct), "mention")
        assert (await case.said(U1, VOICE, "help")).thread == ThreadId("discord", GUILD, VOICE, "")


async def test_each_command_is_a_message_of_its_own():
    async with command_case() as (_, case):
        ids = {(await case.said(U1, CHANNEL, "stop")).id for _ in range(3)}
        assert len(ids) == 3
        assert all(id_.startswith("slash-") for id_ in ids)


# -- what goes wrong -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [Refused(404, 10062, "Unknown interaction"), Cut(), Refused(400, 40060)])
async def test_a_command_that_cannot_be_acknowledged_is_carried_out_all_the_same(fault):
    async with command_case() as (fake, case):
        fake.fail(CALLBACK, fault)
        fake.slash(U1, CHANNEL, "stop")
        await fake.until(lambda: case.taken)
        assert case.taken[0].text == "/stop"


async def test_a_command_does_not_wait_for_a_discord_that_does_not_answer(monkeypatch):
    monkeypatch.setattr("transports.discord.events.interactions.ACKNOWLEDGE_WITHIN_S", 0.05)
    async with command_case() as (fake, case):
        fake.fail(CALLBACK, Stall())
        fake.slash(U1, CHANNEL, "stop")
        await fake.until(lambda: case.taken)


async def test_a_failure_is_one_sentence_for_the_person_and_the_rest_for_the_log(caplog):
    async with command_case() as (fake, case):
        case.failure = StoreUnavailable("/secret/path is full")
        asked = await fake.slash(U1, CHANNEL, "status")
        await fake.until(lambda: asked.contents)
        assert asked.contents == [wording.FRIENDLY["store_unavailable"]]
        assert asked.answers[0].ephemeral
        [record] = [found for found in caplog.records if found.levelno == logging.ERROR]
        assert record.exc_info[1] is case.failure
        case.failure = RuntimeError("a bug")
        asked = await fake.slash(U1, CHANNEL, "status")
        await fake.until(lambda: asked.contents)
        assert asked.contents == [wording.UNKNOWN]


async def test_a_command_of_an_earlier_version_is_told_to_be_gone(caplog):
    async with command_case() as (fake, _):
        asked = await fake.slash(U1, CHANNEL, "dance", {"partner": "you"})
        assert asked.contents == [OUTDATED]
        assert asked.answers[0].ephemeral
    assert not [found for found in caplog.records if found.levelno >= logging.ERROR]


async def test_a_command_in_a_place_of_an_unknown_kind_is_declined(monkeypatch):
    async with command_case() as (fake, case):
        monkeypatch.setattr(case.channels, "see", lambda _: None)
        asked = await fake.slash(U1, CHANNEL, "status")
        await fake.until(lambda: asked.contents)
        assert asked.contents == [UNSUPPORTED_CHANNEL]
        assert case.taken == []


# -- the models ------------------------------------------------------------------------------------------------


async def test_models_are_offered_while_someone_types():
    async with command_case() as (fake, _):
        asked = await fake.autocomplete(U1, CHANNEL, "model", "name", "CLAUDE-H")
        assert asked.choices == [{"name": NAMES[1], "value": NAMES[1]}]
        assert len((await fake.autocomplete(U1, CHANNEL, "model", "name")).choices) == 4
        assert (await fake.autocomplete(U1, CHANNEL, "model", "name", "no such")).choices == []


async def test_what_goes_wrong_while_someone_types_is_not_answered_by_a_message():
    async with command_case(deadline=0.1) as (fake, case):
        assert not (await fake.autocomplete(U1, CHANNEL, "dance", "name", "x")).acked
        assert not fake.calls_to(CALLBACK)
        assert await case.said(U1, CHANNEL, "stop")


def test_those_that_begin_with_what_was_typed_come_first_and_no_more_than_discord_shows():
    assert matching(["b-a", "a-b", "c", "", "a" * 101], " A") == ["a-b", "b-a"]
    assert len(matching([f"model-{number}" for number in range(60)], "")) == 25


# -- telling Discord which there are ---------------------------------------------------------------------------


async def offload(function, *args):
    return function(*args)


def published(tmp_path) -> CommandRegistration:
    return CommandRegistration(PosixDisk(), tmp_path / "discord-commands.json", offload)


async def test_the_commands_are_told_once_and_again_only_when_they_change(tmp_path):
    async with command_case() as (fake, case):
        await published(tmp_path).sync(case.slash)
        assert {one["name"] for one in fake.commands} == COMMANDS
        assert all(one["contexts"] == [0, 1] and one["integration_types"] == [0] for one in fake.commands)
        [model] = [one for one in fake.commands if one["name"] == "model"]
        assert model["options"][0]["autocomplete"]
        assert not model["options"][0]["required"]
        await published(tmp_path).sync(case.slash)
        assert len(fake.calls_to(PUT)) == 1
        case.slash.remove_command("retry")
        await published(tmp_path).sync(case.slash)
        assert "retry" not in {one["name"] for one in fake.commands}
        assert len(fake.calls_to(PUT)) == 2


async def test_the_commands_of_another_application_are_told_anew(tmp_path, monkeypatch):
    async with command_case() as (fake, case):
        await published(tmp_path).sync(case.slash)
        monkeypatch.setattr(RecordingClient, "application_id", 5)
        await published(tmp_path).sync(case.slash)
        assert len(fake.calls_to(PUT)) == 2


async def test_two_at_once_tell_them_once(tmp_path):
    async with command_case() as (fake, case):
        both = published(tmp_path)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(both.sync, case.slash)
            tasks.start_soon(both.sync, case.slash)
        assert len(fake.calls_to(PUT)) == 1


@pytest.mark.parametrize(
    ("fault", "advice"),
    [
        (Refused(400, 30034, "Max number"), "no more new commands today"),
        (Refused(403, 50001), "invite the bot again"),
    ],
)
async def test_a_refusal_is_told_once_with_what_to_do(tmp_path, caplog, fault, advice):
    async with command_case() as (fake, case):
        fake.fail(PUT, fault, forever=True)
        refused = published(tmp_path)
        for _ in range(3):
            await refused.sync(case.slash)
        assert caplog.text.count(advice) == 1
        assert len(fake.calls_to(PUT)) == 1
        fake.heal()
        await published(tmp_path).sync(case.slash)
        assert fake.commands


@pytest.mark.parametrize("fault", [Status(503), Cut(), RateLimited(via=False)])
async def test_a_failure_is_tried_again_the_next_time(tmp_path, fault):
    async with command_case() as (fake, case):
        fake.fail(PUT, fault, forever=True)
        again = published(tmp_path)
        await again.sync(case.slash)
        assert not fake.commands
        fake.heal()
        await again.sync(case.slash)
        assert fake.commands


async def test_a_file_that_cannot_be_read_or_written_costs_only_another_telling(tmp_path):
    async with command_case() as (fake, case):
        path = tmp_path / "discord-commands.json"
        path.write_text("{odd")
        await published(tmp_path).sync(case.slash)
        path.unlink()
        path.mkdir()
        await published(tmp_path).sync(case.slash)
        assert len(fake.calls_to(PUT)) == 2
