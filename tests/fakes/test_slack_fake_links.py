"""The fake's Socket Mode through the real SDK's socket client: tickets, acks, redeliveries, and how links die."""

import contextlib
import json
import logging

import aiohttp
import pytest
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.web.async_client import AsyncWebClient

from tests.fakes.slack import FakeSlack


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


async def test_a_ticket_is_good_once():
    async with FakeSlack() as slack, aiohttp.ClientSession() as session:
        ticket = slack.sockets.ticket()
        async with session.ws_connect(ticket):
            with pytest.raises(aiohttp.WSServerHandshakeError):
                await session.ws_connect(ticket)


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
