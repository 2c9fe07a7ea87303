"""The look at Slack: what each fault of it reads like, on the real wire, with no token in any word."""

from contextlib import aclosing
from datetime import UTC, datetime, timedelta

import aiohttp
import pytest

import transports.slack.checks as module
from tests.fakes.slack import APP_TOKEN, BOT_TOKEN, SCOPES, Cut, FakeSlack, Garbage, Html, RateLimited, Stall
from transports.slack.checks import check_slack
from transports.slack.client import Options


async def run_checks(slack, bot_token=BOT_TOKEN, app_token=APP_TOKEN, **how):
    options = Options(bot_token, app_token, slack if isinstance(slack, str) else slack.api_base_url)
    found = {}
    async with aclosing(check_slack(options, **how)) as findings:
        async for finding in findings:
            assert finding.name not in found
            words = f"{finding.found} {finding.meaning} {finding.fix}"
            assert bot_token not in words
            assert app_token not in words
            assert "ticket" not in words
            assert finding.state == "ok" or (finding.meaning and finding.fix)
            found[finding.name] = finding
    return found


async def test_a_good_app_is_found_good_and_nobody_sees_anything_of_it():
    async with FakeSlack() as slack:
        said = sum(len(channel.messages) for channel in slack.channels.values())
        found = await run_checks(slack)
        assert {name: finding.state for name, finding in found.items()} == dict.fromkeys(
            (f"slack.{it}" for it in ("token", "clock", "scopes", "app_token", "socket", "app")), "ok"
        )
        assert "threadfast (UBOT) in the workspace Fake (T1)" in found["slack.token"].found
        assert sum(len(channel.messages) for channel in slack.channels.values()) == said
        assert slack.sockets.links == []


async def test_in_a_named_place_a_test_is_posted_and_deleted():
    async with FakeSlack() as slack:
        found = await run_checks(slack, post_in="C1")
        assert found["slack.post"].found == "posted in C1 and deleted"
        assert all(message.deleted for message in slack.channels["C1"].messages.values())
        found = await run_checks(slack, post_in="CNOWHERE")
        assert found["slack.post"].state == "fail"
        assert "channel_not_found" in found["slack.post"].found


async def test_beside_a_running_bot_no_socket_is_opened():
    async with FakeSlack() as slack:
        found = await run_checks(slack, app_token="xapp-1-A1-22-ab", running=True)
        assert "slack.socket" not in found
        slack.app_tokens.add("xapp-1-A1-22-ab")
        found = await run_checks(slack, app_token="xapp-1-A1-22-ab", running=True)
        assert slack.sockets.opened == 0
        assert found["slack.app"].state == "ok"  # told by the form of the token


async def test_each_bad_token_is_told_with_where_to_get_a_good_one():
    async with FakeSlack() as slack:
        found = await run_checks(slack, bot_token="ghost-of-a-token")
        assert found["slack.token"].state == "fail"
        assert "xoxb-" in found["slack.token"].found
        assert "install" in found["slack.token"].fix
        assert found["slack.app_token"].state == "ok"  # the other one is looked at all the same
        assert found["slack.socket"].state == "ok"
        found = await run_checks(slack, app_token="xoxb-swapped-with-it")
        assert found["slack.app_token"].state == "fail"
        assert "xapp-" in found["slack.app_token"].found
        assert "slack.socket" not in found
        slack.revoke()
        assert "token_revoked" in (await run_checks(slack))["slack.token"].found


async def test_a_missing_scope_is_told_with_what_does_not_work_without_it():
    async with FakeSlack(scopes=SCOPES - {"files:read", "reactions:write"}) as slack:
        scopes = (await run_checks(slack))["slack.scopes"]
        assert (scopes.state, scopes.found) == ("warn", "missing: reactions:write, files:read")
        assert "cannot read files" in scopes.meaning
    async with FakeSlack(scopes=SCOPES - {"chat:write"}) as slack:
        found = await run_checks(slack, post_in="C1")
        assert found["slack.scopes"].state == found["slack.post"].state == "fail"


async def test_two_tokens_of_two_apps_are_told():
    async with FakeSlack() as slack:
        slack.app_tokens.add("xapp-1-AOTHER-22-ab")
        found = await run_checks(slack, app_token="xapp-1-AOTHER-22-ab", running=True)
        assert found["slack.app"].state == "fail"
        assert "AOTHER" in found["slack.app"].found


async def test_another_copy_of_the_bot_is_told():
    async with FakeSlack() as slack, aiohttp.ClientSession() as session:
        async with session.ws_connect(slack.sockets.ticket()):
            found = await run_checks(slack)
        assert found["slack.socket"].state == "warn"
        assert "1 more of this app is open" in found["slack.socket"].found


async def test_a_socket_that_is_refused_is_told():
    async with FakeSlack() as slack:
        slack.sockets.refuse = True
        found = await run_checks(slack)
        assert found["slack.socket"].state == "fail"
        assert "403" in found["slack.socket"].found


@pytest.mark.parametrize(
    ("fault", "state", "said"),
    [
        (RateLimited(17), "warn", "17 s"),
        (Html(503), "fail", "503"),
        (Cut(), "fail", "failed"),
        (Garbage(), "fail", "no answer of Slack's"),
        (Garbage(body="[1, 2]"), "fail", ""),
        (Stall(), "fail", "no answer within"),
    ],
    ids=str,
)
@pytest.mark.parametrize("method", ["auth.test", "apps.connections.open"])
async def test_whatever_slack_answers_becomes_a_finding(fault, state, said, method, monkeypatch):
    if isinstance(fault, Stall):
        monkeypatch.setattr(module, "WITHIN_S", 0.2)
    async with FakeSlack() as slack:
        slack.fail(method, fault, forever=True)
        found = await run_checks(slack)
        finding = found["slack.token" if method == "auth.test" else "slack.app_token"]
        assert finding.state == state
        assert said in finding.found


async def test_a_host_that_cannot_be_reached_is_told_once_for_each_token():
    found = await run_checks("http://127.0.0.1:9/api/")
    assert list(found) == ["slack.token", "slack.app_token"]
    assert "127.0.0.1 cannot be reached" in found["slack.token"].found
    assert "DNS" in found["slack.token"].fix


@pytest.mark.parametrize(("off_s", "state"), [(0, "ok"), (90, "warn"), (-90, "warn"), (700, "fail")])
async def test_a_clock_that_is_off_is_told(off_s, state):
    async with FakeSlack() as slack:
        found = await run_checks(slack, now=lambda: datetime.now(UTC) + timedelta(seconds=off_s))
        assert found["slack.clock"].state == state


async def test_a_proxy_is_told_without_its_password(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://me:hunter2-hunter2@127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "")
    found = await run_checks("http://slack.invalid/api/")
    assert found["slack.proxy"].found == "reached through the proxy http://127.0.0.1:9"
    assert found["slack.token"].state == "fail"
    assert "hunter2" not in str(found)
