"""Calling Slack: what each answer of a real wire means, within the limits, and the token in nothing that is said."""

import gzip
import logging
import socket
import traceback
from contextlib import asynccontextmanager
from dataclasses import replace

import aiohttp
import anyio
import pytest
from aiohttp import web as aio
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.slack import (
    APP_TOKEN,
    BOT_TOKEN,
    SCOPES,
    ApiError,
    Cut,
    FakeSlack,
    Garbage,
    Html,
    RateLimited,
    Stall,
)
from threads.errors import PostFailed, TransportFatal, TransportRateLimited, TransportUnavailable
from transports.shared.link.proxy import proxy_for
from transports.shared.retry import ASK_AGAIN_S
from transports.slack.api import http_session as session_module
from transports.slack.api.api_errors import (
    ADVICE,
    FRIENDLY,
    KINDS,
    PASSING,
    RATE_LIMITED,
    SlackRefused,
    explain,
    kind_of,
    refused_for_good,
)
from transports.slack.api.rate_limits import RateLimits
from transports.slack.api.web_api import open_web

HELLO = {"channel": "C1", "text": "hello"}


@pytest.fixture
async def slack():
    async with FakeSlack() as fake:
        yield fake


@pytest.fixture
async def web(slack):
    async with open_web(slack.api_base_url, BOT_TOKEN) as web:
        yield web


@asynccontextmanager
async def answering(answer):
    """A web server whose every path is answered by *answer*, and a `WebApi` that calls it."""
    app = aio.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = aio.AppRunner(app)
    await runner.setup()
    await aio.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with open_web(f"http://127.0.0.1:{runner.addresses[0][1]}/api/", BOT_TOKEN) as web:
            yield web
    finally:
        await runner.cleanup()


def silent_about(secret, error):
    """Whether *secret* is in nothing that this error, its causes and their traceback say."""
    seen = error
    while seen is not None:
        assert secret not in repr(seen)
        assert secret not in str(seen)
        assert not isinstance(seen, aiohttp.ClientError)
        seen = seen.__cause__ or seen.__context__
    return secret not in "".join(traceback.format_exception(error))


# What an answer means, as values


@pytest.mark.parametrize("code", sorted(KINDS))
def test_a_code_that_slack_documents_is_a_refusal_of_its_kind(code):
    error = explain("chat.postMessage", 200, {}, {"ok": False, "error": code})
    assert isinstance(error, SlackRefused)
    assert error.error == code
    assert error.kind == kind_of(code) != "other"
    assert not error.maybe_posted
    assert code in str(error)
    assert error.friendly


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("token_revoked", "token"),
        ("missing_scope", "scope"),
        ("is_archived", "place"),
        ("not_in_channel", "place"),
        ("msg_too_long", "shape"),
        ("invalid_blocks", "shape"),
        ("message_not_found", "gone"),
        ("unknown_method", "unsupported"),
        ("not_authorized", "unsupported"),
        ("brand_new_code", "other"),
    ],
)
def test_kinds_tell_what_to_do(code, kind):
    assert kind_of(code) == kind
    assert refused_for_good(SlackRefused("chat.update", code)) == (kind in ("token", "scope", "place"))


def test_no_code_is_in_two_tables():
    assert not set(KINDS) & (PASSING | RATE_LIMITED)
    assert not PASSING & RATE_LIMITED
    assert set(FRIENDLY) == set(ADVICE) == {*KINDS.values(), "other"}


@pytest.mark.parametrize(
    ("method", "maybe"),
    [
        ("chat.postMessage", True),
        ("chat.appendStream", True),
        ("chat.update", True),
        ("files.completeUploadExternal", True),
        ("conversations.replies", False),
        ("reactions.add", False),
        ("chat.delete", False),
    ],
)
@pytest.mark.parametrize("status", [500, 502, 503, 504, 200])
def test_what_may_have_been_done_is_said_so(method, maybe, status):
    for body in (None, {}, [], {"ok": "odd"}, {"ok": False, "error": "internal_error"}):
        error = explain(method, status, {}, body)
        assert isinstance(error, TransportUnavailable)
        assert error.maybe_posted == maybe


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("30", 30), ("0", 1), ("-5", 1), ("1.5", 1.5), ("soon", ASK_AGAIN_S), ("", ASK_AGAIN_S), ("nan", ASK_AGAIN_S),
     ("inf", ASK_AGAIN_S), ("Sun, 22 Nov 2026 05:00:00 GMT", ASK_AGAIN_S)],
)  # fmt: skip
def test_retry_after_is_believed_when_it_is_a_number(value, seconds):
    assert explain("chat.update", 429, {"Retry-After": value}, None).retry_after == seconds


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(("ok", "error", "needed", "x")), inner),
)


@given(st.integers(0, 999), st.dictionaries(st.just("Retry-After"), st.text()), JSON)
def test_any_answer_has_a_meaning(status, headers, body):
    error = explain("chat.postMessage", status, headers, body)
    assert isinstance(error, TransportRateLimited | TransportUnavailable | SlackRefused)
    assert error.retryable == (not isinstance(error, SlackRefused))


# Over a real wire


async def test_a_post_arrives_and_its_answer_comes_back(slack, web):
    answer = await web.call("chat.postMessage", **HELLO, thread_ts=None, unfurl_links=False)
    assert answer["ok"] is True
    assert slack.message(answer["ts"]).text == "hello"
    [call] = slack.calls_to("chat.postMessage")
    assert call.args == {**HELLO, "unfurl_links": False}
    assert call.token == BOT_TOKEN


async def test_each_method_is_sent_as_the_sdk_sends_it(web):
    seen = []

    async def answer(request):
        seen.append((request.method, request.path, dict(request.query), await request.text()))
        return aio.json_response({"ok": True})

    async with answering(answer) as web:
        await web.call("conversations.replies", channel="C1", ts="1.2", include_all_metadata=True, limit=5)
        await web.call("reactions.add", channel="C1", name="eyes", timestamp="1.2")
        await web.call("files.completeUploadExternal", files=[{"id": "F1"}], channel_id="C1")
        await web.call("agents.sessions.setStatus", channel_id="C1", status="active")
    replies = {"channel": "C1", "ts": "1.2", "include_all_metadata": "1", "limit": "5"}
    assert seen == [
        ("GET", "/api/conversations.replies", replies, ""),
        ("POST", "/api/reactions.add", {"channel": "C1", "name": "eyes", "timestamp": "1.2"}, ""),
        ("POST", "/api/files.completeUploadExternal", {"files": '[{"id": "F1"}]', "channel_id": "C1"}, ""),
        ("POST", "/api/agents.sessions.setStatus", {}, '{"channel_id": "C1", "status": "active"}'),
    ]


LOST = (
    Html(),
    Html(502),
    Cut(),
    Cut(how="fin"),
    ApiError("fatal_error"),
    Garbage(),
    Garbage(body=""),
    Garbage(body="[1, 2]"),
    Garbage(body="[" * 200_000),
    Garbage(body="9" * 100_000),
    Garbage(body='{"ok": true}', kind="text/plain"),
    Garbage(body="<html>", kind="text/html"),
)


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("fault", LOST, ids=str)
async def test_a_post_whose_answer_is_lost_may_be_posted_and_is_made_once(slack, web, fault, applied):
    slack.fail("chat.postMessage", replace(fault, applied=applied))
    with pytest.raises(TransportUnavailable) as failed:
        await web.call("chat.postMessage", **HELLO)
    assert failed.value.maybe_posted
    assert len(slack.calls_to("chat.postMessage")) == 1
    assert silent_about(BOT_TOKEN, failed.value)
    assert (await web.ask("chat.postMessage", **HELLO))["ok"]


async def test_a_connection_that_never_opened_posted_nothing():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    async with open_web(f"http://127.0.0.1:{port}/api/", BOT_TOKEN) as web:
        with pytest.raises(TransportUnavailable) as failed:
            await web.call("chat.postMessage", **HELLO)
    assert not failed.value.maybe_posted
    assert silent_about(BOT_TOKEN, failed.value)


async def test_an_answer_that_never_comes_is_given_up_and_may_be_posted(slack, monkeypatch):
    monkeypatch.setattr(session_module, "TOTAL_S", 0.1)
    slack.fail("chat.postMessage", Stall())
    async with open_web(slack.api_base_url, BOT_TOKEN) as web:
        with pytest.raises(TransportUnavailable) as failed:
            await web.call("chat.postMessage", **HELLO)
    assert failed.value.maybe_posted


async def test_a_429_stops_the_method_for_all_threads(slack, web):
    slack.fail("chat.update", RateLimited(7))
    with pytest.raises(TransportRateLimited) as failed:
        await web.call("chat.update", channel="C1", ts="1.2", text="x")
    assert failed.value.retry_after == 7
    assert not await web.limits.try_take("chat.update")
    with anyio.move_on_after(0.05) as waited:
        await web.call("chat.update", channel="C1", ts="1.2", text="x")
    assert waited.cancelled_caught
    assert (await web.call("chat.postMessage", **HELLO))["ok"]
    assert slack.impatient == []


async def test_a_429_of_a_post_stops_its_channel_alone(slack, web):
    slack.fail("chat.postMessage", RateLimited(7))
    with pytest.raises(TransportRateLimited):
        await web.call("chat.postMessage", **HELLO)
    assert not await web.limits.try_take("chat.postMessage", "C1")
    assert await web.limits.try_take("chat.postMessage", "C2")


async def test_a_rate_limit_inside_a_200_is_one(slack, web):
    slack.fail("chat.update", ApiError("ratelimited"))
    with pytest.raises(TransportRateLimited) as failed:
        await web.call("chat.update", channel="C1", ts="1.2", text="x")
    assert failed.value.retry_after == ASK_AGAIN_S
    assert not await web.limits.try_take("chat.update")


async def test_a_missing_scope_names_the_scope(slack, web):
    slack.scopes.discard("reactions:write")
    with pytest.raises(SlackRefused) as refused:
        await web.call("reactions.add", channel="C1", name="eyes", timestamp="1.2")
    assert (refused.value.error, refused.value.needed) == ("missing_scope", "reactions:write")
    assert "reactions:write" in str(refused.value)
    assert "admin" in refused.value.friendly


async def test_a_method_that_the_server_does_not_know_is_unsupported(slack, web):
    with pytest.raises(SlackRefused) as refused:
        await web.call("chat.sing", channel="C1")
    assert refused.value.kind == "unsupported"

    async def nothing(_):
        return aio.Response(status=404, text="<h1>Not Found</h1>", content_type="text/html")

    async with answering(nothing) as bare:
        with pytest.raises(SlackRefused) as refused:
            await bare.call("chat.startStream", channel="C1")
    assert refused.value.kind == "unsupported"


async def test_a_token_that_is_revoked_meanwhile_ends_the_transport(slack, web):
    fatal = []

    async def watch():
        try:
            await web.until_refused()
        except TransportFatal as error:
            fatal.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        await web.call("chat.postMessage", **HELLO)
        await anyio.wait_all_tasks_blocked()
        assert not fatal
        slack.revoke()
        assert await web.try_call("chat.update", channel="C1", ts="1.2", text="x") is None
    assert "token_revoked" in str(fatal[0])
    assert silent_about(BOT_TOKEN, fatal[0])


# Calls that may be dropped


async def test_a_live_call_without_a_token_is_not_made(slack, web):
    while await web.limits.try_take("chat.update"):
        pass
    assert await web.try_call("chat.update", channel="C1", ts="1.2", text="x") is None
    assert slack.calls == []


async def test_a_live_call_that_fails_costs_nothing_and_its_refusal_is_told_once(slack, web, caplog):
    slack.fail("chat.appendStream", Html(), Cut(), ApiError("unknown_method"), ApiError("unknown_method"))
    for _ in range(4):
        assert await web.try_call("chat.appendStream", channel="C1", ts="1.2") is None
    assert [record.getMessage().count("unknown_method") for record in caplog.records] == [1]
    assert len(slack.calls) == 4


async def test_only_so_many_refusals_of_live_calls_are_logged(slack, web, caplog, monkeypatch):
    monkeypatch.setattr("transports.slack.api.web_api.MAX_LOGGED", 2)
    slack.fail("chat.appendStream", *(ApiError(f"code_{number}") for number in range(4)))
    for _ in range(4):
        await web.try_call("chat.appendStream", channel="C1", ts="1.2")
    assert caplog.text.count("code_") == 2


async def test_a_live_call_that_gets_through_returns_its_answer(slack, web):
    answer = await web.try_call("conversations.history", channel="C1")
    assert answer is not None
    assert answer["ok"] is True


# Who the bot is


async def test_the_identity_comes_from_one_call(slack, web):
    identity = await web.identity()
    assert (identity.team, identity.user, identity.bot_id) == ("T1", "UBOT", "BBOT")
    assert identity.scopes == SCOPES
    assert len(slack.calls) == 1
    assert BOT_TOKEN not in repr(identity)


@pytest.mark.parametrize("token", ["xoxb-wrong", APP_TOKEN, "", "two\nlines"])
async def test_a_wrong_bot_token_is_fatal_at_once(slack, token):
    async with open_web(slack.api_base_url, token) as web:
        with pytest.raises((TransportFatal, TransportUnavailable)) as failed:
            await web.identity()
    assert isinstance(failed.value, TransportFatal) == ("\n" not in token)
    assert not token or silent_about(token, failed.value)


async def test_an_outage_at_the_start_is_not_fatal(slack, web):
    slack.fail("auth.test", Html(), Garbage('{"ok": true}'))
    for _ in range(2):
        with pytest.raises(TransportUnavailable):
            await web.identity()


@pytest.mark.parametrize(
    "fault", [Html(404), Html(405), ApiError("brand_new_code"), ApiError("ekm_access_denied")], ids=str
)
async def test_a_refusal_at_the_start_that_may_pass_is_tried_again(slack, web, fault):
    slack.fail("auth.test", fault)
    with pytest.raises(SlackRefused) as refused:
        await web.identity()
    assert silent_about(BOT_TOKEN, refused.value)
    assert (await web.identity()).user == "UBOT"


@pytest.mark.parametrize("code", ["missing_scope", "account_inactive", "not_allowed_token_type"])
async def test_a_refusal_at_the_start_that_only_a_person_can_mend_is_fatal(slack, web, code):
    slack.fail("auth.test", ApiError(code))
    with pytest.raises(TransportFatal, match=code) as failed:
        await web.identity()
    assert "bot token" in str(failed.value)


async def test_a_call_that_breaks_on_our_side_is_logged_with_its_traceback(web, caplog):
    with pytest.raises(TransportUnavailable):
        await web.call("chat.postMessage", channel="C1", text={"not", "json"})
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert "TypeError" in "".join(traceback.format_exception(*record.exc_info))


@pytest.mark.parametrize("fault", [Html(), Cut(), Garbage()], ids=str)
async def test_a_call_that_breaks_on_the_way_is_no_error_of_ours(slack, web, caplog, fault):
    slack.fail("chat.postMessage", fault)
    with pytest.raises(TransportUnavailable):
        await web.call("chat.postMessage", **HELLO)
    assert not caplog.records


# What goes over the wire


async def test_the_token_and_what_people_say_are_in_no_log_line(slack, caplog):
    caplog.set_level(logging.DEBUG)
    async with open_web(slack.api_base_url, BOT_TOKEN) as web:
        slack.fail("chat.postMessage", Html(), Cut(), RateLimited(1), ApiError("invalid_auth"))
        for channel in ("C1", "C2", "C3", "C4", "C5"):
            with pytest.raises(PostFailed) if channel != "C5" else anyio.CancelScope():
                await web.ask(
                    "chat.postMessage", channel=channel if channel != "C5" else "C1", text="hush-hush"
                )
    assert caplog.records
    for secret in (BOT_TOKEN, APP_TOKEN, "hush-hush", "ticket"):
        assert secret not in caplog.text
    assert BOT_TOKEN not in repr(web) + repr(web.client) + repr(web.session)


@pytest.mark.parametrize("compressed", [False, True])
async def test_an_answer_without_an_end_is_given_up(monkeypatch, compressed):
    monkeypatch.setattr(session_module, "MAX_ANSWER", 1_000_000)
    sent = 0

    async def flood(request):
        nonlocal sent
        if compressed:
            body = gzip.compress(b" " * 50_000_000)
            return aio.Response(
                body=body, headers={"content-encoding": "gzip", "content-type": "application/json"}
            )
        response = aio.StreamResponse(headers={"content-type": "application/json"})
        await response.prepare(request)
        for _ in range(10_000):
            await response.write(b" " * 100_000)
            sent += 100_000
        return response

    async with answering(flood) as web:
        with pytest.raises(TransportUnavailable) as failed:
            await web.call("chat.postMessage", **HELLO)
    assert failed.value.maybe_posted
    assert "ClientPayloadError" in str(failed.value)
    assert sent < 100_000_000


async def test_a_redirect_is_not_followed_by_the_api_but_left_to_a_download():
    seen = []

    async def moved(request):
        seen.append(request.path)
        raise aio.HTTPTemporaryRedirect("/elsewhere")

    async with answering(moved) as web:
        with pytest.raises(TransportUnavailable):
            await web.call("chat.postMessage", **HELLO)
        url = str(web.client.base_url).replace("/api/", "/files/1")
        async with web.session.get(url, allow_redirects=False) as response:
            assert response.status == 307
    assert seen == ["/api/chat.postMessage", "/files/1"]


async def test_one_connection_serves_all_calls(slack, web):
    for _ in range(20):
        await web.ask("chat.postMessage", **HELLO)
    assert len(slack.connections) == 1


async def test_loopback_is_reached_whatever_proxy_the_environment_names(slack, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    async with open_web(slack.api_base_url, BOT_TOKEN) as web:
        assert (await web.call("chat.postMessage", **HELLO))["ok"]


def test_a_company_proxy_is_used_where_it_should_be(monkeypatch):
    assert proxy_for("https://slack.com/api/") is None
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "intern.example")
    assert proxy_for("https://slack.com/api/") == "http://proxy.example:3128"
    assert proxy_for("wss://wss-primary.slack.com/link") == "http://proxy.example:3128"
    inside = (
        "https://slack.intern.example/api/",
        "https://localhost/",
        "https://127.0.0.1:8/",
        "https://[::1]/",
    )
    assert [proxy_for(url) for url in (*inside, "http://slack.test/")] == [None] * 5
    monkeypatch.delenv("HTTPS_PROXY")
    monkeypatch.setenv("ALL_PROXY", "http://other.example:3128")
    assert proxy_for("https://slack.com/api/") == "http://other.example:3128"
    monkeypatch.setenv("ALL_PROXY", "socks5://other.example:1080")
    with pytest.raises(TransportFatal, match=r"Set HTTPS_PROXY to http://HOST:PORT"):
        proxy_for("https://slack.com/api/")


async def test_a_proxy_that_is_gone_posted_nothing_and_keeps_its_password(monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://user:pass-word@127.0.0.1:9")
    async with open_web("https://slack.invalid/api/", BOT_TOKEN) as web:
        with pytest.raises(TransportUnavailable) as failed:
            await web.call("chat.postMessage", **HELLO)
    assert not failed.value.maybe_posted
    assert silent_about("pass-word", failed.value)


async def test_limits_are_shared_by_all_that_are_given_them(slack):
    limits = RateLimits()
    async with (
        open_web(slack.api_base_url, BOT_TOKEN, limits) as one,
        open_web(slack.api_base_url, BOT_TOKEN, limits) as two,
    ):
        one.limits.pause("chat.update", 60)
        assert await two.try_call("chat.update", channel="C1", ts="1", text="x") is None
