"""What Discord's answers and cut connections mean."""

import math
from types import SimpleNamespace

import aiohttp
import discord
import pytest
from hypothesis import given
from hypothesis import strategies as st

from threads import wording
from threads.errors import TransportFatal, TransportRateLimited, TransportUnavailable
from transports.discord.api.api_errors import (
    ADVICE,
    FRIENDLY,
    KINDS,
    Banned,
    DiscordRefused,
    bad_token,
    explain,
)

JSON = {"Content-Type": "application/json", "Via": "1.1 google"}
PAGE = {"Content-Type": "text/html"}


def answer(status, body=None, headers=JSON, kind=discord.HTTPException):
    response = SimpleNamespace(status=status, reason="x", headers=headers)
    return kind(response, {"code": 0, "message": ""} if body is None else body)


def refused(status, number, call="send"):
    return explain(call, answer(status, {"code": number, "message": "No"}), maybe_posted=True)


@pytest.mark.parametrize(
    ("status", "number", "kind"),
    [
        (404, 10003, "gone"),
        (404, 10004, "gone"),
        (404, 10008, "gone"),
        (403, 50001, "forbidden"),
        (403, 50013, "forbidden"),
        (400, 160002, "forbidden"),
        (403, 50083, "locked"),
        (400, 160005, "locked"),
        (400, 160004, "exists"),
        (400, 50035, "shape"),
        (400, 50006, "shape"),
        (400, 30046, "old"),
        (413, 40005, "too_large"),
        (400, 50045, "too_large"),
        (403, 30010, "full"),
        (400, 160006, "full"),
        (403, 90001, "blocked"),
        (403, 50007, "blocked"),
        (400, 50024, "unsupported"),
        (404, 10062, "expired"),
        (400, 40060, "expired"),
        (401, 0, "token"),
        (403, 0, "forbidden"),
        (404, 0, "gone"),
        (413, 0, "too_large"),
        (400, 0, "shape"),
        (400, 999_999, "shape"),
        (409, 0, "other"),
    ],
)
def test_a_code_of_discords_says_who_must_act(status, number, kind):
    error = refused(status, number)
    assert isinstance(error, DiscordRefused)
    assert (error.status, error.number, error.kind) == (status, number, kind)
    assert not error.maybe_posted
    assert not error.retryable
    assert wording.friendly(error).startswith(FRIENDLY[kind])


def test_every_kind_has_its_words():
    kinds = {*KINDS.values(), "other"}
    assert kinds == set(FRIENDLY)
    assert set(ADVICE) <= kinds


def test_a_missing_permission_is_named_to_people_and_operators():
    error = refused(403, 50013, call="open_thread")
    assert "Create Public Threads" in error.friendly
    assert "the bot's role needs Create Public Threads" in str(error)
    assert "Manage Threads" in str(refused(403, 50083))


def test_what_discord_says_is_told_in_one_short_line():
    body = {
        "code": 50035,
        "message": "Invalid\nForm",
        "errors": {"content": {"_errors": [{"message": "a" * 900}]}},
    }
    error = explain("send", answer(400, body), maybe_posted=True)
    assert "Invalid Form In content: aaa" in str(error)
    assert "\n" not in str(error)
    assert len(str(error)) < 300


@pytest.mark.parametrize("number", [130000, 40004])
def test_a_code_that_will_pass_is_tried_again(number):
    error = refused(403, number)
    assert isinstance(error, TransportUnavailable)
    assert not error.maybe_posted


@pytest.mark.parametrize("status", [500, 502, 503, 504, 520, 521, 524])
def test_a_server_error_may_be_after_the_fact(status):
    for sent in (True, False):
        error = explain("send", answer(status, "<html>", PAGE, discord.DiscordServerError), maybe_posted=sent)
        assert isinstance(error, TransportUnavailable)
        assert error.maybe_posted is sent


@pytest.mark.parametrize("status", [302, 401, 403, 404, 407, 418])
def test_a_page_of_some_box_on_the_way_is_no_refusal_of_discords(status):
    error = explain(
        "send", answer(status, "<html>Log in to the guest network</html>", PAGE), maybe_posted=True
    )
    assert isinstance(error, TransportUnavailable)
    assert not error.maybe_posted


def test_a_login_that_a_proxy_refused_is_not_a_bad_token():
    for headers, kind in ((JSON, DiscordRefused), (PAGE, TransportUnavailable)):
        failure = discord.LoginFailure("Improper token has been passed.")
        failure.__cause__ = answer(401, "" if headers is PAGE else None, headers)
        error = explain("login", failure, maybe_posted=False)
        assert isinstance(error, kind)
    assert isinstance(bad_token(), TransportFatal)
    assert "transports.discord.token" in str(bad_token())


@pytest.mark.parametrize(
    ("headers", "body", "kind"),
    [
        (JSON | {"Retry-After": "7"}, {"retry_after": 7}, TransportRateLimited),
        ({"Content-Type": "application/json"}, {"retry_after": 7}, Banned),
        (PAGE | {"Via": "1.1 google"}, "<html>", Banned),
        (PAGE, "error code: 1015", Banned),
    ],
)
def test_a_429_is_discords_own_or_cloudflares(headers, body, kind):
    error = explain("send", answer(429, body, headers), maybe_posted=True)
    assert type(error) is kind
    assert error.retry_after == (600 if kind is Banned else 7)
    assert not error.maybe_posted


@given(st.text(max_size=12))
def test_any_retry_after_becomes_a_wait(header):
    error = explain("send", answer(429, None, JSON | {"Retry-After": header}), maybe_posted=True)
    assert error.retry_after >= 1
    assert math.isfinite(error.retry_after)


@pytest.mark.parametrize(
    "error",
    [
        aiohttp.ServerDisconnectedError(),
        aiohttp.ClientOSError(104, "Connection reset by peer"),
        ConnectionResetError(),
        TimeoutError(),
        KeyError("id"),
    ],
)
def test_a_cut_connection_may_have_posted_if_it_was_sent(error):
    for sent in (True, False):
        failed = explain("send", error, maybe_posted=sent)
        assert isinstance(failed, TransportUnavailable)
        assert failed.maybe_posted is sent


@given(
    st.one_of(
        st.none(),
        st.integers(),
        st.text(),
        st.lists(st.integers()),
        st.dictionaries(st.text(), st.integers()),
    )
)
def test_an_odd_code_is_still_a_refusal(code):
    error = answer(400)
    error.code = code
    assert isinstance(explain("send", error, maybe_posted=True), DiscordRefused | TransportUnavailable)
