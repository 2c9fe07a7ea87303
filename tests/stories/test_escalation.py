"""What whoever runs the bot is told of its platforms, over one that can be reached."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager

import anyio
import pytest

from bot.config.settings import Escalation as Given
from bot.config.settings import Settings
from bot.ports.errors import AllProvidersFailed, ModelUnavailable
from bot.wiring import escalation, outages
from bot.wiring.app import serve
from bot.wiring.escalation import Escalation
from tests.patience import until
from tests.serving import FAST, Chat
from tests.sim.loop import virtual_time
from tests.world import T1, Clock
from threads.background import background_tasks
from threads.errors import TransportFatal, TransportRejected, TransportUnavailable
from threads.model import ThreadId

OPS = "here:W:OPS"


anyio_backend = virtual_time


class Edge:
    trouble = ""
    silent_s = None

    def __init__(self, name):
        self.name, self.state = name, "connected"


class Operators:
    """The channel of whoever runs the bot, over the transport "here"; "there" is another one."""

    def __init__(self):
        self.here, self.there = Edge("here"), Edge("there")
        self.posts, self.tries, self.faults = [], 0, []

    async def post(self, outgoing):
        self.tries += 1
        if self.faults and (fault := self.faults.pop(0)):
            raise fault
        assert self.here.state == "connected"
        assert outgoing.thread == ThreadId("here", "W", "OPS", "")
        self.posts.append(outgoing)
        return "p1"

    @property
    def told(self):
        return [post.text.partition(".")[0] for post in self.posts]


@asynccontextmanager
async def watching(channel=OPS, operators=None):
    operators = operators or Operators()
    async with background_tasks() as tasks:
        telling = Escalation(tasks, Given(channel=channel), operators.post, lambda _: "", Clock())
        tasks.start_soon(telling.watch, [operators.here, operators.there])
        yield operators, telling


async def test_a_transport_that_goes_and_comes_back_is_told_over_the_healthy_one_once_each():
    async with watching() as (operators, _):
        operators.there.state = "reconnecting"
        await anyio.sleep(60)
        assert operators.told == []
        operators.there.state = "disconnected"
        await anyio.sleep(3600)
        assert operators.told == ["I have been cut off from There since 10:00 UTC"]
        operators.there.state = "connected"
        await anyio.sleep(3600)
        assert operators.told[1:] == ["I am connected to There again"]
    assert len({post.key for post in operators.posts}) == 2


async def test_of_the_transport_that_the_channel_is_on_people_read_in_one_line_when_it_is_back():
    async with watching() as (operators, _):
        operators.here.state = "disconnected"
        await anyio.sleep(600)
        assert operators.tries == 0
        operators.here.state = "connected"
        await anyio.sleep(60)
    (post,) = operators.posts
    assert post.text.startswith("I am connected to Here again. I was cut off between")
    assert post.text.endswith("and have not said so until now.")


async def test_when_all_are_down_each_is_told_when_the_channel_can_be_reached_again():
    async with watching() as (operators, _):
        operators.here.state = operators.there.state = "disconnected"
        await anyio.sleep(600)
        operators.here.state = "connected"
        await anyio.sleep(60)
        expected = ["I have been cut off from There since 10:00 UTC", "I am connected to Here again"]
        assert operators.told == expected
        operators.there.state = "connected"
        await anyio.sleep(60)
        assert operators.told[2:] == ["I am connected to There again"]


async def test_word_of_it_that_is_not_posted_is_tried_again_and_what_is_refused_for_good_is_not(caplog):
    async with watching() as (operators, _):
        operators.faults = [TransportUnavailable("503"), None, TransportRejected("not_in_channel")]
        operators.there.state = "disconnected"
        await anyio.sleep(600)
        assert (operators.tries, len(operators.posts)) == (2, 1)
        operators.there.state = "connected"
        await anyio.sleep(600)
    assert (operators.tries, len(operators.posts)) == (3, 1)
    failed = [record for record in caplog.records if record.message.startswith("escalation.failed")]
    assert [record.code for record in failed] == ["transport_unavailable", "transport_rejected"]


class Slow(Operators):
    def __init__(self):
        super().__init__()
        self.free = anyio.Event()

    async def post(self, outgoing):
        await self.free.wait()
        return await super().post(outgoing)


async def test_while_the_word_is_held_up_the_transports_are_still_watched():
    async with watching(operators=Slow()) as (operators, _):
        operators.there.state = "disconnected"
        await anyio.sleep(30)
        operators.there.state = "connected"
        await anyio.sleep(30)
        operators.free.set()
        await anyio.sleep(30)
        assert operators.told == [
            "I have been cut off from There since 10:00 UTC",
            "I am connected to There again",
        ]


async def test_without_a_channel_nothing_is_posted_and_nothing_is_watched():
    async with watching(None) as (operators, telling):
        operators.there.state = "disconnected"
        telling.stopped("there", "its token is refused")
        error = ModelUnavailable("503")
        telling.failed(AllProvidersFailed(error, [("a/one", error)]), T1, "6d65978b")
        await anyio.sleep(600)
    assert operators.tries == 0


class Broken(Chat):
    """A platform that works for a while, until its token is refused."""

    name = "broken"

    def __init__(self):
        super().__init__()
        self.refused = anyio.Event()

    async def serve(self, sink):
        self.ready.set()
        await self.refused.wait()
        self.state = "stopped"
        raise TransportFatal("the token is refused: set another one")


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_in_the_whole_program_a_transport_that_fails_and_one_that_stops_for_good_are_told(
    tmp_path, monkeypatch, caplog
):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(escalation, "LOOK_S", 0.01)
    monkeypatch.setattr(outages, "STEADY_S", 0.05)
    chat, broken = Chat(), Broken()
    settings = Settings.model_validate(
        {**FAST, "data": tmp_path, "escalation": {"channel": "fake:W:OPS"}}, strict=False
    )

    async def run():
        await serve(settings, {}, model="offline/demo", make_transports=lambda _: [chat, broken])

    async def told(count):
        await until(lambda: len(chat.posts) >= count)
        return [post.text for post in chat.posts]

    async with background_tasks() as tasks:
        tasks.start_soon(run)
        await broken.ready.wait()
        broken.state = "disconnected"
        assert "cut off from Broken" in (await told(1))[0]
        broken.state = "connected"
        assert "connected to Broken again" in (await told(2))[1]
        broken.refused.set()
        assert (await told(3))[2] == (
            "I have stopped serving Broken, until somebody puts this right: "
            "the token is refused: set another one"
        )
    assert {post.thread.channel for post in chat.posts} == {"OPS"}
