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
from tests.patience import WITHIN_S
from tests.transports.discord.bot import transport as discord_transport
from tests.transports.settling import beside
from tests.transports.slack.bot import transport as slack_transport
from tests.transports.web.alone import transport as web_transport
from threads.errors import FileUnavailable, PostFailed
from threads.model import (
    Attachment,
    Choice,
    Outgoing,
    QuestionClosed,
    Resumed,
    StagesChanged,
    StageShown,
    Taken,
    TextDelta,
    TextReset,
    ThinkingDelta,
    ThreadId,
    ToolFinished,
    ToolStarted,
    TurnEvent,
    TurnSettled,
    TurnStarted,
    UsageCounted,
    Waiting,
)
from transports.console import Console

EVENTS: list[TurnEvent] = [
    Taken("hi", "U1"),
    TurnStarted("hi", "U1"),
    ThinkingDelta("hm"),
    TextDelta("an answer"),
    TextReset(),
    Waiting("rate limited", 20, 2, 6),
    Waiting("your decision", float("inf")),
    Resumed(),
    ToolStarted("read_file", "notes.md", "c1"),
    ToolFinished("read_file", ok=False, call_id="c1"),
    UsageCounted("offline/demo", 1200, 0.5, None),
    QuestionClosed("k?q1", approved=True, by="U1"),
    StagesChanged("triage", (StageShown("assess", "passed"), StageShown("plan", "running"))),
    TurnSettled("answered"),
]


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


@pytest.fixture(params=[console, slack, discord, web], ids=["console", "slack", "discord", "web"])
def opened(request):
    return request.param


def test_every_event_of_a_turn_is_tried():
    assert {type(event) for event in EVENTS} == set(typing.get_args(TurnEvent))


async def test_a_post_has_an_id_and_is_found_by_its_key_if_the_platform_can(opened, tmp_path):
    async with opened(tmp_path) as (edge, thread):
        key = f"{thread.transport}:{thread.workspace}:{thread.channel}:{thread.root}"
        post = Outgoing(
            thread, key, "hello", "error", thread.root, (Choice("Try again", "/retry m1"),), to="U1"
        )
        posted = await edge.post(post)
        assert posted
        found = await edge.find(thread, key)
        assert found == (posted if edge.capabilities.find else None)
        assert await edge.find(thread, f"{key}9") is None


async def test_it_is_connected_and_says_so_at_once(opened, tmp_path):
    async with opened(tmp_path) as (edge, _):
        assert edge.state == "connected"
        with anyio.fail_after(WITHIN_S):
            await edge.reconnected()


async def test_only_a_link_has_an_age_of_its_last_frame(opened, tmp_path):
    async with opened(tmp_path) as (edge, _):
        assert (edge.silent_s is not None) == (edge.name in ("slack", "discord"))


async def test_no_event_of_a_turn_can_break_it(opened, tmp_path):
    async with opened(tmp_path) as (edge, thread):
        for event in (*EVENTS, *reversed(EVENTS), *EVENTS):
            for message_id in (thread.root, "press-1", "", "odd id \x00"):
                edge.show(thread, message_id, event)
        assert await edge.post(Outgoing(thread, "k", "still there", "notice"))


async def test_what_it_does_not_have_it_says_in_the_domains_words(opened, tmp_path):
    async with opened(tmp_path) as (edge, thread):
        with pytest.raises(FileUnavailable):
            async with edge.download(Attachment("F1", "x.txt", url="http://127.0.0.1:9/other")):
                pass
        if not edge.capabilities.files:
            with pytest.raises(PostFailed):
                await edge.attach(thread, "k", tmp_path / "x", "x")
        earlier = await edge.earlier(thread, "9999999999.000000")
        assert [line.text for line in earlier.lines] == (["hello"] if edge.capabilities.earlier else [])
