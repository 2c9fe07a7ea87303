"""What every transport keeps, whatever it talks to: one set of promises over all of them."""

from __future__ import annotations

import io
import typing
from contextlib import asynccontextmanager
from functools import partial

import anyio
import pytest

from tests.fakes.discord import CHANNEL, GUILD, U1, FakeDiscord
from tests.fakes.slack import FakeSlack
from tests.patience import WITHIN_S, until
from tests.transports.contract import CHECKS, EVENTS
from tests.transports.discord.bot import transport as discord_transport
from tests.transports.matrix.synapse import NAME, needs_synapse
from tests.transports.settling import beside
from tests.transports.slack.bot import transport as slack_transport
from tests.transports.web.alone import transport as web_transport
from threads.model import ThreadId, TurnEvent
from transports.console import Console


async def sink(_):
    raise AssertionError


@asynccontextmanager
async def console(tmp_path):
    read, write = io.StringIO(), (tmp_path / "out").open("w+")
    with write:
        yield (
            Console(session="s", stdin=read, stdout=write, stderr=write, interactive=False),
            ThreadId("console", "", "", "main"),
        )


@asynccontextmanager
async def serving(edge):
    async with beside(partial(edge.serve, sink)):
        with anyio.fail_after(WITHIN_S):
            await edge.reconnected()
        yield


@asynccontextmanager
async def slack(tmp_path):
    async with FakeSlack() as fake, serving(edge := slack_transport(fake, tmp_path)):
        root = fake.say("U1", "C2", "hello", quiet=True).ts
        yield edge, ThreadId("slack", "T1", "C2", root)


@asynccontextmanager
async def discord(tmp_path):
    async with FakeDiscord() as fake, serving(edge := discord_transport(fake, tmp_path)):
        root = fake.say(U1, CHANNEL, "hello", quiet=True)
        thread = await fake.thread(U1, root, "a thread")
        yield edge, ThreadId("discord", GUILD, CHANNEL, thread.id)


@asynccontextmanager
async def web(tmp_path):
    async with serving(edge := web_transport(tmp_path)):
        yield edge, ThreadId("web", "", "you", "7c9e6679")


@asynccontextmanager
async def matrix(synapse, tmp_path):
    from tests.transports.matrix import bot, person  # noqa: PLC0415 - its extension may be missing

    async with person.person(synapse=synapse, folder=tmp_path) as ann:
        made = await person.account(synapse)
        async with serving(edge := bot.transport(synapse, made.access_token, tmp_path)):
            room = await ann.channel(made.user_id)
            await until(
                lambda: room in edge._connection.api._nio.rooms
            )  # the homeserver knew it before the bot
            root = await ann.say(room, "hello")
            yield edge, ThreadId(edge.name, NAME, room, root)


HERE = [console, slack, discord, web, pytest.param(matrix, marks=needs_synapse)]


@pytest.fixture(params=HERE, ids=["console", "slack", "discord", "web", "homeserver"])
def opened(request):
    if request.param is matrix:
        return partial(matrix, request.getfixturevalue("synapse"))
    return request.param


def test_every_event_of_a_turn_is_tried():
    assert {type(event) for event in EVENTS} == set(typing.get_args(TurnEvent))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_it_keeps_what_every_transport_promises(opened, tmp_path, check):
    async with opened(tmp_path) as (edge, thread):
        await check(edge, thread)


async def test_only_a_link_has_an_age_of_its_last_frame(opened, tmp_path):
    async with opened(tmp_path) as (edge, _):
        assert (edge.silent_s is None) == (edge.name in ("console", "web"))
