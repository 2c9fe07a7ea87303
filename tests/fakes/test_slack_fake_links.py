"""The fake's Socket Mode through the real SDK's socket client: tickets, acks, redeliveries, and how links die."""

import contextlib
import json
import logging

import aiohttp
import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.web.async_client import AsyncWebClient

from tests.fakes.slack import FakeSlack

pytestmark = pytest.mark.anyio


class Bot:
    """A raw socket client that keeps every request and acknowledges it, unless told otherwise."""

    def __init__(self, slack, ping_interval):
        self.slack, self.seen, self.mute = slack, [], False
        logger = logging.getLogger("fake-slack-test")
        logger.setLevel(logging.CRITICAL)
        self.web = AsyncWebClient(slack.bot_token, base_url=slack.api_base_url)
        self.client = SocketModeClient(slack.app_token, logger, self.web, ping_interval=ping_interval)
        self.client.socket_mode_request_listeners.append(self.on)

    async def on(self, client, request):
        self.seen.append(request)
        if not self.mute:
            await client.send_socket_mode_response(SocketModeResponse(request.envelope_id))
        self.slack.changed()


@contextlib.asynccontextmanager
async def slack_and_bot(ping_interval=5.0, **options):
    async with FakeSlack(**options) as slack:
        bot = Bot(slack, ping_interval)
        try:
            await bot.client.connect()
            yield slack, bot
        finally:
            await bot.client.close()
            await bot.client.aiohttp_client_session.close()


@contextlib.asynccontextmanager
async def raw_link(slack, session):
    """A websocket without a client's cleverness; its hello is read."""
    ticket = slack.sockets.ticket()
    async with session.ws_connect(ticket) as socket:
        yield socket, await socket.receive_json()


async def test_an_event_arrives_in_an_envelope_and_awaiting_it_waits_for_the_ack():
    async with slack_and_bot() as (slack, bot):
        said = await slack.say("U1", "D1", "hello")
        [request] = bot.seen
        assert (request.type, request.retry_attempt) == ("events_api", 0)
        assert request.payload["event"]["text"] == "hello"
        assert request.payload["event"]["channel_type"] == "im"
        assert said.acked
        assert slack.acked == 1


async def test_hello_counts_the_links_and_each_event_goes_to_one_of_them():
    async with (
        FakeSlack() as slack,
        aiohttp.ClientSession() as session,
        raw_link(slack, session) as (one, hello),
        raw_link(slack, session) as (two, second),
    ):
        assert (hello["type"], hello["num_connections"], second["num_connections"]) == ("hello", 1, 2)
        for number in range(4):
            slack.say("U1", "D1", f"m{number}")
        texts = [(await link.receive_json())["payload"]["event"]["text"] for link in (one, one, two, two)]
        assert sorted(texts) == ["m0", "m1", "m2", "m3"]


async def test_the_eleventh_link_is_sent_away():
    async with FakeSlack() as slack, aiohttp.ClientSession() as session, contextlib.AsyncExitStack() as links:
        for _ in range(10):
            await links.enter_async_context(raw_link(slack, session))
        async with raw_link(slack, session) as (socket, first):
            assert (first["type"], first["reason"]) == ("disconnect", "too_many_websockets")
            assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE


async def test_a_ticket_is_good_once():
    async with FakeSlack() as slack, aiohttp.ClientSession() as session:
        ticket = slack.sockets.ticket()
        async with session.ws_connect(ticket):
            with pytest.raises(aiohttp.WSServerHandshakeError):
                await session.ws_connect(ticket)


async def test_a_bad_app_token_gets_no_address():
    async with FakeSlack() as slack:
        client = AsyncWebClient(base_url=slack.api_base_url)
        with pytest.raises(SlackApiError, match="invalid_auth"):
            await client.apps_connections_open(app_token="xapp-other")


async def test_an_event_without_an_ack_comes_again_with_a_new_envelope_and_the_same_event_id():
    async with slack_and_bot(ack_budget=0.05, redeliver_after=(0.0, 0.02, 0.04)) as (slack, bot):
        bot.mute = True
        said = slack.say("U1", "D1", "hello")
        with pytest.raises(RuntimeError, match="never acknowledged"):
            await said
        assert [request.retry_attempt for request in bot.seen] == [0, 1, 2, 3]
        assert {request.retry_reason for request in bot.seen[1:]} == {"timeout"}
        assert len({request.envelope_id for request in bot.seen}) == 4
        assert len({request.payload["event_id"] for request in bot.seen}) == 1


async def test_an_ack_after_the_budget_does_not_count():
    async with slack_and_bot(ack_budget=0.05) as (slack, bot):
        bot.mute = True
        said = slack.say("U1", "D1", "hello")
        await slack.until(lambda: len(bot.seen) == 2)
        bot.mute = False
        await bot.client.send_socket_mode_response(SocketModeResponse(bot.seen[0].envelope_id))
        await slack.until(lambda: slack.sockets.late == 1)
        assert not said.acked
        await bot.client.send_socket_mode_response(SocketModeResponse(bot.seen[1].envelope_id))
        await said


async def test_buttons_and_commands_do_not_come_again():
    async with slack_and_bot(ack_budget=0.05) as (slack, bot):
        bot.mute = True
        with pytest.raises(RuntimeError):
            await slack.command("U1", "C1", "/threadfast", "status")
        assert [(request.type, request.payload["text"]) for request in bot.seen] == [
            ("slash_commands", "status")
        ]


async def test_without_a_link_an_event_is_retried_kept_or_lost():
    for offline, wins in (("keep", True), ("retry", True), ("drop", False)):
        async with FakeSlack(offline=offline, redeliver_after=(0.0, 0.3)) as slack:
            said = slack.say("U1", "D1", "hello")
            async with aiohttp.ClientSession() as session, raw_link(slack, session) as (socket, _):
                if wins:
                    envelope = await socket.receive_json()
                    assert (envelope["retry_attempt"] == 0) == (offline == "keep")
                    await socket.send_str(json.dumps({"envelope_id": envelope["envelope_id"]}))
                    await said
                else:
                    assert said.events[0].state == "lost"


async def test_a_silent_link_looks_alive_but_brings_no_events():
    async with slack_and_bot(0.1, ack_budget=0.1, redeliver_after=(0.0,)) as (slack, bot):
        [link] = slack.sockets.links
        link.silence()
        with pytest.raises(RuntimeError):
            await slack.say("U1", "D1", "hello")
        assert bot.seen == []
        assert await bot.client.is_connected()
        link.thaw()
        await slack.say("U1", "D1", "hello")


async def test_five_thousand_events_are_acknowledged():
    async with slack_and_bot() as (slack, bot):
        slack.sockets.remember = False
        for number in range(5_000):
            slack.say("U1", "D1", f"m{number}")
        await slack.until(lambda: slack.acked == 5_000)
        assert [request.payload["event"]["text"] for request in bot.seen] == [f"m{n}" for n in range(5_000)]
