"""Every row of what can happen to a Socket Mode link, through the real SDK, over real sockets."""

import asyncio
import logging
import time
import traceback
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import pytest
from slack_sdk.web.async_client import AsyncWebClient

from tests.fakes.slack import ApiError, Cut, FakeSlack, Garbage, Gate, Html, RateLimited, Stall
from tests.fakes.slack import Link as FakeLink
from tests.patience import WITHIN_S
from threads.background import background_tasks
from threads.errors import StoreUnavailable, TransportFatal
from transports.shared.link import supervisor
from transports.shared.link.supervisor import LinkDown, Supervisor
from transports.slack.api import socket_mode as link_module
from transports.slack.api import websocket as socket_module
from transports.slack.api.socket_mode import SocketModeLink

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_proxy")]

PING_S = 0.1
PATIENT_S = 60.0
"""Between pings where a test is not about them: a slow machine answers late."""


@pytest.fixture
async def slack(anyio_backend):
    """A Slack that waits for an acknowledgement as long as the real one does."""
    async with FakeSlack(redeliver_after=(0.0, *(0.1,) * 50)) as slack:
        yield slack


@pytest.fixture
def impatient(slack):
    """A Slack that soon sends again what was not acknowledged."""
    slack.sockets.ack_budget = 0.15
    return slack


@pytest.fixture(autouse=True)
def settled(monkeypatch):
    """A link is established as soon as it is up."""
    monkeypatch.setattr(link_module, "SETTLED_S", 0.0)


@dataclass
class Bot:
    """A running link, what it was given, and how it ended."""

    slack: FakeSlack
    options: dict
    taken: list = field(default_factory=list)
    ups: int = 0
    story: list = field(default_factory=list)
    end: Exception | None = None
    over: anyio.Event = field(default_factory=anyio.Event)

    async def take(self, kind, body):
        self.taken.append((kind, body))
        self.story.append("taken")

    def make(self):
        options = {"ping_interval": PING_S, "take": self.take} | self.options
        client = AsyncWebClient(self.slack.bot_token, base_url=self.slack.api_base_url, retry_handlers=[])
        return SocketModeLink(app_token=self.slack.app_token, client=client, **options)

    def connected(self):
        self.ups += 1
        self.story.append("up")
        self.slack.changed()

    async def run(self):
        try:
            await self.make().run(self.connected)
        except (LinkDown, TransportFatal) as error:
            self.end = error
            self.over.set()
            self.slack.changed()

    async def ended(self):
        with anyio.fail_after(WITHIN_S):
            await self.over.wait()
        return self.end

    @property
    def ids(self):
        return [body.get("event_id") for _, body in self.taken]

    @property
    def link(self):
        """Slack's end of the newest socket."""
        return self.slack.sockets.links[-1]


@asynccontextmanager
async def serving(slack, **options):
    """Run a link until the end of the block, and see that nothing of it is left."""
    before, links = asyncio.all_tasks(), list(slack.sockets.links)
    bot = Bot(slack, options)
    async with background_tasks() as tasks:
        tasks.start_soon(bot.run)
        await slack.until(lambda: bot.ups or bot.over.is_set())
        yield bot
    ours = {
        task
        for task in asyncio.all_tasks() - before
        if "fakes" not in repr(task) and "web_protocol" not in repr(task)
    }
    assert not ours
    await slack.until(lambda: all(link in links or link.frozen for link in slack.sockets.links))


@asynccontextmanager
async def supervised(slack, monkeypatch, **options):
    monkeypatch.setattr(supervisor, "FIRST_PAUSE_S", 0.02)
    bot, watch = Bot(slack, options), Supervisor("slack")

    async def link(connected):
        def up():
            connected()
            bot.connected()

        await bot.make().run(up)

    async def run():
        try:
            await watch.run(link)
        except TransportFatal as error:
            bot.end = error
            bot.over.set()

    async with background_tasks() as tasks:
        tasks.start_soon(run)
        yield bot, watch


def gate():
    """A take that waits for ``opened``, and what it has begun with."""
    opened, begun = anyio.Event(), []

    async def take(kind, body):
        begun.append(body.get("event_id"))
        await opened.wait()

    return take, opened, begun


async def until(begun):
    with anyio.fail_after(WITHIN_S):
        while not begun:
            await anyio.sleep(0)


# acknowledging


async def test_an_event_is_acknowledged_when_it_is_taken_and_not_before(slack):
    take, opened, begun = gate()
    async with serving(slack, take=take) as bot:
        said = slack.say("U1", "C1", "hello")
        await until(begun)
        assert not said.acked
        assert bot.link.acks == 0
        opened.set()
        await said


@pytest.mark.parametrize("error", [StoreUnavailable("disk full"), ZeroDivisionError("a bug")])
async def test_an_event_that_could_not_be_taken_comes_again_with_the_same_id(impatient, error):
    seen, envelopes = [], []

    async def take(kind, body):
        seen.append(body["event_id"])
        if len(seen) < 3:
            raise error

    async with serving(impatient, take=take):
        said = await impatient.say("U1", "C1", "hello")
    [delivery] = said.events
    envelopes = delivery.envelopes
    assert seen == [delivery.payload["event_id"]] * 3
    assert len(set(envelopes)) == 3


async def test_when_nothing_is_taken_any_more_all_is_let_go_and_comes_again(impatient, monkeypatch):
    monkeypatch.setattr(link_module, "MAX_CONCURRENT", 2)
    monkeypatch.setattr(link_module, "DRAIN_S", 0.05)
    monkeypatch.setattr(socket_module, "STUCK_S", 0.1)
    seen, stuck = [], True

    async def take(kind, body):
        seen.append(body["event_id"])
        if stuck:
            await anyio.sleep_forever()

    async with supervised(impatient, monkeypatch, take=take) as (bot, _):
        await impatient.until(lambda: bot.ups)
        said = [impatient.say("U1", "C1", f"{number}") for number in range(3)]
        await impatient.until(lambda: bot.ups == 2)
        stuck = False
        for one in said:
            await one
    assert set(seen) == {event.payload["event_id"] for one in said for event in one.events}


async def test_what_take_returns_is_the_answer_in_the_acknowledgement(slack):
    async def take(kind, body):
        return {"text": "working on it"} if kind == "command" else None

    async with serving(slack, take=take):
        command = slack.sockets.deliver("slash_commands", {"command": "/ask", "text": "hi", "user_id": "U1"})
        assert await command == {"text": "working on it"}
        assert await slack.sockets.deliver("interactive", {"type": "block_actions", "actions": []}) is None


@pytest.mark.parametrize(
    ("type", "payload", "kind"),
    [
        ("events_api", {"type": "event_callback", "event": {"type": "never_heard_of"}}, "event"),
        ("events_api", {"type": "event_callback"}, "event"),
        ("events_api", {"type": "event_callback", "event": None}, "event"),
        ("interactive", {"type": "block_actions", "actions": [{"action_id": "unknown"}]}, "action"),
        ("interactive", {"type": "view_submission", "view": {"callback_id": "x"}}, "other"),
        ("interactive", {"type": "view_closed"}, "other"),
        ("interactive", {"type": "shortcut", "callback_id": "x"}, "other"),
        ("interactive", {"type": "message_action", "callback_id": "x"}, "shortcut"),
        ("interactive", {"type": "block_suggestion", "action_id": "x"}, "other"),
        ("slash_commands", {"command": "/never"}, "command"),
        ("from_the_future", {"type": "hovercraft"}, "other"),
    ],
)
async def test_everything_is_taken_and_acknowledged(slack, type, payload, kind):
    async with serving(slack) as bot:
        await slack.sockets.deliver(type, payload)
    assert [taken for taken, _ in bot.taken] == [kind]


@pytest.mark.parametrize("payload", [None, 7, [], "a secret"])
async def test_an_envelope_that_nobody_can_read_does_not_come_again_and_none_of_it_is_logged(
    slack, payload, caplog
):
    caplog.set_level(logging.DEBUG, "transports")
    async with serving(slack) as bot:
        await slack.sockets.deliver("events_api", payload)
        await slack.say("U1", "C1", "and it goes on")
    assert len(bot.taken) == 1
    assert "link.unreadable" in caplog.text
    assert "a secret" not in caplog.text


@pytest.mark.parametrize("frame", ["", "not json", "[]", "7", '{"type":"new_kind"}', '{"envelope_id":7}'])
async def test_a_frame_that_means_nothing_is_passed_over(slack, frame):
    async with serving(slack) as bot:
        bot.link.send(frame)
        await slack.say("U1", "C1", "hello")
    assert len(bot.taken) == 1


async def test_slack_is_asked_for_nothing_but_the_address(slack):
    async with serving(slack):
        for number in range(20):
            await slack.say("U1", "C1", f"hello {number}")
    assert {call.method for call in slack.calls} == {"apps.connections.open"}


async def test_events_are_taken_in_the_order_they_came(slack):
    async with serving(slack) as bot:
        said = [slack.say("U1", "C1", f"{number}") for number in range(100)]
        for one in said:
            await one
    assert bot.ids == [event.payload["event_id"] for one in said for event in one.events]


async def test_no_more_than_a_window_of_events_is_held_and_the_rest_follow_in_order(slack, monkeypatch):
    monkeypatch.setattr(link_module, "MAX_CONCURRENT", 3)
    take, opened, begun = gate()
    async with serving(slack, take=take) as bot:
        said = [slack.say("U1", "C1", f"{number}") for number in range(10)]
        pings = bot.link.pings
        await anyio.sleep(PING_S * 8)  # a full window is not a dead link
        assert len(begun) == 3
        assert bot.link.pings > pings
        opened.set()
        for one in said:
            await one
        assert slack.sockets.opened == 1
    assert begun == [event.payload["event_id"] for one in said for event in one.events]


# how links end, and what follows


@pytest.mark.parametrize("reason", ["refresh_requested", "warning", "from_the_future"])
async def test_a_link_that_asks_for_its_refresh_is_replaced_without_a_gap(slack, reason):
    most = 0

    async with serving(slack, ping_interval=PATIENT_S) as bot:
        old = bot.link
        old.disconnect(reason, closes_after=PATIENT_S)
        # the new one is there before the old one goes
        await slack.until(lambda: len(slack.sockets.links) == 2)
        said = [slack.say("U1", "C1", f"{number}") for number in range(20)]
        await slack.until(lambda: bot.ups == 2 and old not in slack.sockets.links)
        for one in said:
            await one
        most = max(event.attempt for one in said for event in one.events)
    assert len(slack.calls_to("apps.connections.open")) == 2
    assert sorted(set(bot.ids)) == sorted(event.payload["event_id"] for one in said for event in one.events)
    assert most <= 1


async def test_a_refresh_that_is_followed_by_a_close_at_once_is_routine_all_the_same(slack):
    async with serving(slack) as bot:
        old = bot.link
        old.disconnect("refresh_requested", closes_after=0)  # both are on their way before we read either
        await slack.until(lambda: bot.ups == 2)
        await slack.say("U1", "C1", "hello")
    assert bot.end is None


async def test_what_was_being_taken_is_acknowledged_on_the_link_it_came_from(slack):
    take, opened, begun = gate()
    async with serving(slack, take=take, ping_interval=60.0) as bot:
        said = slack.say("U1", "C1", "hello")
        await until(begun)
        old = bot.link
        old.disconnect(closes_after=PATIENT_S)
        await slack.until(lambda: bot.ups == 2)
        for _ in range(50):  # a hasty end of the old link would come now
            await anyio.sleep(0)
        opened.set()
        await said
        assert old.acks == 1
        await slack.until(lambda: old not in slack.sockets.links)
    assert len(begun) == 1


async def test_links_that_ask_for_a_refresh_at_once_are_failed_ones(slack, monkeypatch):
    monkeypatch.setattr(link_module, "SETTLED_S", 10.0)
    async with serving(slack) as bot:
        bot.link.disconnect("refresh_requested")
        assert "asks for a new link" in str(await bot.ended())
    assert slack.sockets.opened == 1


@pytest.mark.parametrize("greets", [True, False])
async def test_whoever_is_told_of_a_new_socket_is_told_before_anything_of_it_is_taken(
    slack, monkeypatch, greets
):
    if not greets:
        monkeypatch.setattr(slack.sockets, "_hello", lambda: '{"type": "howdy"}')
    slack.sockets.offline = "keep"
    said = [slack.say("U1", "C1", f"{number}") for number in range(3)]  # in one write with the greeting
    async with supervised(slack, monkeypatch) as (bot, _):
        for one in said:
            await one
        bot.link.reset()
        await slack.until(lambda: not slack.sockets.links)
        for one in [slack.say("U1", "C1", "again") for _ in range(3)]:
            await one
    assert bot.story == ["up", *["taken"] * 3] * 2


async def test_a_refresh_whose_old_socket_dies_meanwhile_tells_before_anything_of_the_new_one_is_taken(slack):
    slack.sockets.offline = "keep"
    async with serving(slack) as bot:
        held = Gate()
        slack.fail("apps.connections.open", held)
        bot.link.send('{"type": "disconnect", "reason": "warning"}')
        await held.reached()
        bot.link.reset()
        await slack.until(lambda: not slack.sockets.links)
        said = slack.say("U1", "C1", "hello")
        held.open()
        await said
    assert bot.story == ["up", "up", "taken"]


async def test_a_socket_that_begins_with_an_event_is_up_at_once(slack, monkeypatch):
    monkeypatch.setattr(slack.sockets, "_hello", lambda: "")
    slack.sockets.offline = "keep"
    said = slack.say("U1", "C1", "hello")
    with anyio.fail_after(WITHIN_S):
        async with serving(slack) as bot:
            await said
    assert bot.story == ["up", "taken"]


async def test_an_event_between_the_greeting_and_a_farewell_is_not_taken_before_anybody_is_told(
    slack, monkeypatch
):
    flush = slack.sockets.flush

    def farewell():
        flush()
        if slack.sockets.opened == 1:
            slack.sockets.links[0].send('{"type": "disconnect", "reason": "warning"}')

    monkeypatch.setattr(slack.sockets, "flush", farewell)
    slack.sockets.offline = "keep"
    said = slack.say("U1", "C1", "hello")
    async with serving(slack) as bot:
        await said
        await slack.until(lambda: bot.ups == 2)
    assert bot.story == ["up", "taken", "up"]


async def test_a_close_frame_ends_the_link_at_once(slack):
    async with serving(slack, ping_interval=60.0) as bot:
        await bot.link.close()
        assert "closed the socket" in str(await bot.ended())


async def test_a_reset_ends_the_link_at_the_next_look(slack):
    async with serving(slack, ping_interval=2.0) as bot:
        bot.link.reset()
        assert "broke" in str(await bot.ended())


async def test_a_link_that_takes_no_acknowledgement_is_replaced_although_its_end_is_not_read_yet(
    slack, monkeypatch
):
    monkeypatch.setattr(link_module, "MAX_CONCURRENT", 1)
    go = anyio.Event()

    async def take(kind, body):
        await go.wait()

    async with serving(slack, take=take, ping_interval=60.0) as bot:
        first = bot.link
        for _ in range(3):
            slack.say("U1", "C1", "hi")
        await anyio.sleep(0.1)
        first.reset()
        await slack.until(lambda: first not in slack.sockets.links)
        go.set()
        await slack.until(lambda: bot.ups == 2)


async def test_a_half_open_link_ends_after_four_pings_without_an_answer(slack):
    async with serving(slack) as bot:
        await slack.until(lambda: bot.link.pings or slack.say("U1", "C1", "hello"))
        bot.link.freeze()
        began = time.monotonic()
        assert "no answer to 4 pings" in str(await bot.ended())
        assert time.monotonic() - began > 3 * PING_S


async def test_our_own_loop_being_blocked_is_not_a_dead_link(slack):
    async with serving(slack) as bot:
        await anyio.sleep(PING_S * 2)
        time.sleep(PING_S * 6)
        await slack.say("U1", "C1", "hello")
        await anyio.sleep(PING_S * 5)
    assert slack.sockets.opened == bot.ups == 1


async def test_a_silent_link_is_replaced(impatient):
    async with serving(impatient, silent_s=0.3) as bot:
        bot.link.silence()
        said = impatient.say("U1", "C1", "is anybody there?")
        await impatient.until(lambda: bot.ups == 2)
        await said
    assert said.events[0].attempt >= 1


async def test_a_link_with_events_is_not_silent(slack):
    async with serving(slack, silent_s=2.0, ping_interval=PATIENT_S) as bot:
        began = time.monotonic()
        while time.monotonic() - began < 2.5:
            await anyio.sleep(0.1)
            await slack.say("U1", "C1", "hello")
    assert bot.ups == 1


async def test_socket_mode_switched_off_is_fatal_and_says_what_to_do(slack):
    async with serving(slack) as bot:
        bot.link.disconnect("link_disabled")
        end = await bot.ended()
    assert isinstance(end, TransportFatal)
    assert "switch it on" in str(end)


async def test_too_many_links_are_told_and_tried_again_later(slack):
    async with background_tasks() as tasks:
        bots = [Bot(slack, {"ping_interval": 5.0}) for _ in range(10)]
        for bot in bots:
            tasks.start_soon(bot.run)
        await slack.until(lambda: all(bot.ups for bot in bots))
        async with serving(slack) as bot:
            end = await bot.ended()
    assert isinstance(end, LinkDown)
    assert end.retry_after
    assert bot.ups == 0


async def test_a_second_copy_of_the_bot_is_noticed(slack, caplog):
    async with serving(slack):
        assert not caplog.records
        async with serving(slack):
            assert "another copy of the bot" in caplog.text
            assert "2 links and 1 of them ours" in caplog.text


async def test_our_own_second_link_of_a_refresh_is_no_other_copy(slack, caplog):
    async with serving(slack) as bot:
        bot.link.disconnect(closes_after=PATIENT_S)
        await slack.until(lambda: bot.ups == 2)
    assert "another copy" not in caplog.text


# connecting


async def test_a_refused_app_token_is_fatal_and_says_what_to_do(slack):
    slack.app_tokens.clear()
    async with serving(slack) as bot:
        end = await bot.ended()
    assert isinstance(end, TransportFatal)
    assert "connections:write" in str(end)
    assert "xapp-:" not in str(end)
    assert slack.app_token not in "".join(traceback.format_exception(end))
    assert len(slack.calls) == 1


async def test_a_bot_token_in_place_of_the_app_token_is_told_to_be_none(slack):
    slack.app_token = slack.bot_token
    async with serving(slack) as bot:
        end = await bot.ended()
    assert isinstance(end, TransportFatal)
    assert "xapp-:" in str(end)
    assert slack.bot_token not in "".join(traceback.format_exception(end))


@pytest.mark.parametrize(
    "code", ["token_revoked", "account_inactive", "not_allowed_token_type", "missing_scope"]
)
async def test_every_refusal_that_will_not_pass_is_fatal(slack, code):
    slack.fail("apps.connections.open", ApiError(code))
    async with serving(slack) as bot:
        assert isinstance(await bot.ended(), TransportFatal)


@pytest.mark.parametrize(
    "fault",
    [
        *(ApiError("internal_error"), ApiError("brand_new_code"), ApiError("ekm_access_denied"), Html(404)),
        *(Html(503), Html(502), Cut(), Garbage(), Garbage(body="{}")),
    ],
    ids=str,
)
async def test_a_bad_moment_of_slack_is_no_fatal_fault(slack, fault):
    slack.fail("apps.connections.open", fault)
    async with serving(slack) as bot:
        assert isinstance(await bot.ended(), LinkDown)


async def test_a_rate_limit_on_connecting_is_kept(slack):
    slack.fail("apps.connections.open", RateLimited(30))
    async with serving(slack) as bot:
        end = await bot.ended()
    assert isinstance(end, LinkDown)
    assert end.retry_after == 30


async def test_connecting_does_not_take_for_ever(slack, monkeypatch):
    monkeypatch.setattr(link_module, "OPEN_WITHIN_S", 0.1)
    slack.fail("apps.connections.open", Stall())
    async with serving(slack) as bot:
        assert "no connection within" in str(await bot.ended())


async def test_a_server_that_does_not_greet_is_connected_all_the_same(slack, monkeypatch):
    monkeypatch.setattr(link_module, "HELLO_WITHIN_S", 0.05)
    monkeypatch.setattr(FakeLink, "send", lambda *_: None)
    async with serving(slack) as bot:
        assert bot.ups == 1


async def test_a_dead_address_is_not_tried_twice_and_its_ticket_is_not_told(slack, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG, "transports")
    slack.sockets.refuse = True
    async with supervised(slack, monkeypatch) as (bot, watch):
        await slack.until(lambda: slack.sockets.refused >= 3)
        assert len(slack.calls_to("apps.connections.open")) >= 3
        assert watch.state == "reconnecting"
        slack.sockets.refuse = False
        await slack.until(lambda: bot.ups)
        assert watch.state == "connected"
    assert "403" in caplog.text
    assert "ticket" not in caplog.text


# with the supervisor


@pytest.mark.parametrize("fault", ["close", "reset", "freeze"])
async def test_an_event_of_the_gap_is_delivered_again_on_the_next_link(impatient, monkeypatch, fault):
    async with supervised(impatient, monkeypatch) as (bot, watch):
        await impatient.until(lambda: bot.ups == 1)
        if fault == "close":
            await bot.link.close()
        elif fault == "reset":
            bot.link.reset()
        else:
            bot.link.freeze()
        said = await impatient.say("U1", "C1", "in the gap")
        await impatient.until(lambda: bot.ups == 2)
        assert watch.state == "connected"
    assert set(bot.ids) == {said.events[0].payload["event_id"]}


async def test_an_acknowledgement_that_is_lost_with_its_link_means_the_same_event_again(
    impatient, monkeypatch, caplog
):
    caplog.set_level(logging.INFO, "transports")
    take, opened, begun = gate()
    async with supervised(impatient, monkeypatch, take=take) as (bot, _):
        await impatient.until(lambda: bot.ups == 1)
        said = impatient.say("U1", "C1", "hello")
        await until(begun)
        bot.link.reset()
        await anyio.sleep(PING_S)  # until the reset is seen
        opened.set()
        await said
    assert len(begun) == 2
    assert len(set(begun)) == 1
    assert "link.ack_lost" in caplog.text
    assert not any(record.exc_info for record in caplog.records)


async def test_a_token_that_is_revoked_later_ends_it_instead_of_an_endless_retry(slack, monkeypatch):
    async with supervised(slack, monkeypatch) as (bot, watch):
        await slack.until(lambda: bot.ups == 1)
        slack.revoked.add(slack.app_token)
        await bot.link.close()
        assert isinstance(await bot.ended(), TransportFatal)
        assert watch.state == "stopped"
        calls = len(slack.calls)
        await anyio.sleep(0.2)
    assert len(slack.calls) == calls


async def test_pongs_are_signs_of_life_and_a_peer_that_is_gone_gives_none(slack):
    signs = []
    async with serving(slack, heard=lambda: signs.append(slack.changed())) as bot:
        await slack.until(lambda: len(signs) > 3)
        bot.link.freeze()
        await anyio.sleep(PING_S)
        before = len(signs)
        await anyio.sleep(PING_S)
        assert len(signs) == before
