"""The look at Discord: what each fault of it reads like, on the real wire, with no token in any word."""

from contextlib import aclosing
from datetime import UTC, datetime, timedelta

import pytest

import transports.discord.checks as module
from tests.fakes.discord import TOKEN, Cut, FakeDiscord, Garbage, RateLimited, Refused, Stall, Status
from tests.fakes.discord.ids import BOT_ROLE, CHANNEL, EVERYONE, GUILD, PERMISSIONS
from transports.discord.api.options import Options
from transports.discord.checks import check_discord


async def look(discord, token=TOKEN, **how):
    base, gateway = discord if isinstance(discord, tuple) else (discord.api_base_url, discord.gateway_url)
    found = {}
    async with aclosing(check_discord(Options(token, base, gateway), **how)) as findings:
        async for finding in findings:
            assert finding.name not in found
            assert token not in f"{finding.found} {finding.meaning} {finding.fix}"
            assert finding.state == "ok" or (finding.meaning and finding.fix)
            found[finding.name] = finding
    return found


async def test_a_good_bot_is_found_good_and_nobody_sees_anything_of_it():
    async with FakeDiscord() as discord:
        found = await look(discord)
        assert {name: finding.state for name, finding in found.items()} == dict.fromkeys(
            (f"discord.{it}" for it in ("token", "clock", "intents", "gateway", "session", "servers")), "ok"
        )
        assert "threadfast (" in found["discord.token"].found
        assert "1000 of 1000" in found["discord.gateway"].found
        assert discord.identifies == 1
        assert discord.links == []
        assert discord.closes == [1000]
        assert not any(call.route.startswith("POST") for call in discord.calls)


async def test_in_a_named_channel_a_test_is_posted_without_a_ping_and_deleted():
    async with FakeDiscord() as discord:
        found = await look(discord, post_in=CHANNEL)
        assert found["discord.post"].found == f"posted in {CHANNEL} and deleted"
        (message,) = discord.channels[CHANNEL].messages.values() or [None]
        assert message.deleted
        assert message.flags & module.SILENT
        assert (await look(discord, post_in="general"))["discord.post"].state == "fail"
        discord.channels[CHANNEL].denied.add("SEND_MESSAGES")
        refused = (await look(discord, post_in=CHANNEL))["discord.post"]
        assert refused.state == "fail"
        assert "50013" in refused.found


async def test_beside_a_running_bot_and_with_few_sessions_left_none_is_begun():
    async with FakeDiscord() as discord:
        assert "discord.session" not in await look(discord, running=True)
        assert discord.identifies == 0
        discord.identifies = 990
        found = await look(discord)
        assert found["discord.gateway"].state == "warn"
        assert "10 of 1000" in found["discord.gateway"].found
        assert discord.identifies == 990


async def test_a_bad_token_is_told_with_where_to_get_a_good_one():
    async with FakeDiscord() as discord:
        found = await look(discord, token="some-client-secret")
        assert list(found) == ["discord.token"]
        assert "three parts" in found["discord.token"].found
        assert "Reset Token" in found["discord.token"].fix
        discord.revoke()
        assert (await look(discord))["discord.token"].state == "fail"


async def test_intents_that_are_off_are_told_with_what_to_tick():
    async with FakeDiscord(message_content=False) as discord:
        found = await look(discord)
        for name in ("discord.intents", "discord.session"):
            assert found[name].state == "fail"
            assert "Message Content Intent" in found[name].fix


async def test_a_bot_in_no_server_is_told_the_invitation():
    async with FakeDiscord() as discord:
        discord.in_guild = False
        found = (await look(discord))["discord.servers"]
        assert found.state == "warn"
        assert "https://discord.com/oauth2/authorize?client_id=" in found.fix
        assert "permissions=" in found.fix


async def test_a_server_that_lacks_permissions_is_told_with_their_names():
    async with FakeDiscord() as discord:
        rights = discord.roles[EVERYONE].permissions & ~PERMISSIONS["CREATE_PUBLIC_THREADS"]
        discord.roles[EVERYONE].permissions = discord.roles[BOT_ROLE].permissions = rights
        found = await look(discord)
        assert found[f"discord.servers.{GUILD}"].state == "warn"
        assert "lacks Create Public Threads" in found[f"discord.servers.{GUILD}"].found


@pytest.mark.parametrize(
    ("fault", "state", "said"),
    [
        (RateLimited(17), "warn", "17 s"),
        (RateLimited(17, via=False), "fail", "Cloudflare"),
        (Status(503), "fail", "503"),
        (Refused(403, 50001, "Missing Access"), "fail", "Missing Access (50001)"),
        (Cut(), "fail", "failed"),
        (Garbage(), "fail", "no answer of Discord's"),
        (Garbage(body="[]"), "fail", ""),
        (Stall(), "fail", "no answer within"),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    ("route", "name"),
    [
        ("GET /users/@me", "discord.token"),
        ("GET /applications/@me", "discord.intents"),
        ("GET /gateway/bot", "discord.gateway"),
        ("GET /users/@me/guilds", "discord.servers"),
    ],
)
async def test_whatever_discord_answers_becomes_a_finding(fault, state, said, route, name, monkeypatch):
    if isinstance(fault, Stall):
        monkeypatch.setattr(module, "WITHIN_S", 0.2)
    async with FakeDiscord() as discord:
        discord.fail(route, fault, forever=True)
        finding = (await look(discord, running=True))[name]
        if fault != Garbage(body="[]"):  # a list is what some of them answer with
            assert finding.state == state
        assert said in finding.found


@pytest.mark.parametrize("fault", [Status(503), Cut(), Stall()], ids=str)
async def test_a_gateway_that_does_not_answer_is_told(fault, monkeypatch):
    monkeypatch.setattr("transports.shared.checks.WITHIN_S", 0.3)
    async with FakeDiscord() as discord:
        discord.fail("GET /gateway", fault, forever=True)
        assert (await look(discord))["discord.session"].state == "fail"


async def test_a_host_that_cannot_be_reached_is_told():
    found = await look(("http://127.0.0.1:9/api/v10", "ws://127.0.0.1:9/gateway"))
    assert list(found) == ["discord.token"]
    assert "127.0.0.1 cannot be reached" in found["discord.token"].found


@pytest.mark.parametrize(("off_s", "state"), [(90, "warn"), (700, "fail")])
async def test_a_clock_that_is_off_is_told(off_s, state):
    async with FakeDiscord() as discord:
        found = await look(discord, running=True, now=lambda: datetime.now(UTC) + timedelta(seconds=off_s))
        assert found["discord.clock"].state == state
