"""Limits and faults of the fake Discord's REST, as the real discord.py meets them."""

import asyncio
import time

import aiohttp
import discord as sdk
import pytest

from tests.fakes.discord import (
    CHANNEL,
    CHANNEL2,
    U1,
    Cut,
    FakeDiscord,
    Garbage,
    RateLimited,
    Refused,
    Slow,
    Stall,
    Status,
)
from tests.fakes.discord.sdk import place, refused, rest

pytestmark = pytest.mark.anyio

SEND = "POST /channels/{}/messages"


async def call(fake, http, method="POST", path=f"/channels/{CHANNEL}/messages", **json):
    headers = {"Authorization": f"Bot {fake.token}"}
    async with http.request(method, fake.api_base_url + path, json=json, headers=headers) as answer:
        return answer.status, answer.headers, await answer.json()


async def test_headers_tell_the_bucket_and_the_sixth_send_in_five_seconds_is_429():
    async with FakeDiscord(rate_limits=True) as fake, aiohttp.ClientSession() as http:
        answers = [await call(fake, http, content="x") for _ in range(6)]
        (status, headers, _), (limited, told, body) = answers[0], answers[5]
        assert (status, headers["X-RateLimit-Limit"], headers["X-RateLimit-Remaining"]) == (200, "5", "4")
        assert 4 < float(headers["X-RateLimit-Reset-After"]) <= 5
        assert (limited, told["Via"], told["X-RateLimit-Scope"]) == (429, "1.1 google", "user")
        assert body["global"] is False
        assert 4 < body["retry_after"] <= 5
        other, headers, _ = await call(fake, http, path=f"/channels/{CHANNEL2}/messages", content="x")
        assert (other, headers["X-RateLimit-Bucket"]) == (200, told["X-RateLimit-Bucket"])
        assert [one.channel for one in fake.limited] == [CHANNEL]
        fake.later(5)
        assert (await call(fake, http, content="x"))[0] == 200


async def test_fifty_calls_a_second_are_the_most_for_all_together():
    async with FakeDiscord(rate_limits=True) as fake, aiohttp.ClientSession() as http:
        answers = [await call(fake, http, "GET", "/gateway") for _ in range(51)]
    assert [status for status, _, _ in answers] == [200] * 50 + [429]
    assert answers[-1][1]["X-RateLimit-Global"] == "true"
    assert answers[-1][2]["global"] is True


async def test_the_client_keeps_to_the_buckets_and_windows_can_be_short():
    async with rest(rate_limits=True, rate_scale=20) as (fake, client):
        began = time.monotonic()
        await asyncio.gather(*(place(client, CHANNEL).send(str(number)) for number in range(12)))
    assert fake.limited == []
    assert 0.45 < time.monotonic() - began < 2


async def test_edits_of_a_message_that_is_an_hour_old_are_few():
    async with FakeDiscord() as fake, aiohttp.ClientSession() as http:
        _, _, sent = await call(fake, http, content="x")
        edit = f"/channels/{CHANNEL}/messages/{sent['id']}"
        assert (await call(fake, http, "PATCH", edit, content="y"))[0] == 200
        fake.later(3601)
        statuses = [(await call(fake, http, "PATCH", edit, content="z")) for _ in range(4)]
        assert [status for status, _, _ in statuses] == [200, 200, 200, 429]
        assert statuses[-1][2]["code"] == 30046


async def test_503_is_not_retried_and_stored_then_failed_leaves_the_message(fake, api):
    fake.fail(SEND, Status(503), Status(520, applied=True, html=False))
    with pytest.raises(sdk.DiscordServerError):
        await place(api, CHANNEL).send("lost")
    with pytest.raises(sdk.DiscordServerError):
        await place(api, CHANNEL).send("kept")
    assert [post.content for post in fake.posts()] == ["kept"]
    assert [one.status for one in fake.calls_to(SEND)] == [503, 520]


async def test_429_is_waited_out_with_via_and_a_ban_without(fake, api):
    fake.fail(SEND, RateLimited(0.05))
    await place(api, CHANNEL).send("later")
    fake.fail(SEND, RateLimited(60, via=False))
    assert await refused(place(api, CHANNEL).send("banned")) == (429, 0)
    fake.fail(SEND, RateLimited(0.05, is_global=True))
    await place(api, CHANNEL).send("global")
    assert [post.content for post in fake.posts()] == ["later", "global"]
    assert fake.invalid == 3


@pytest.mark.parametrize("applied", [False, True])
async def test_a_cut_comes_before_or_after_the_message_is_stored(fake, api, applied):
    fake.fail(SEND, Cut(applied=applied))
    with pytest.raises((aiohttp.ClientOSError, aiohttp.ServerDisconnectedError)):
        await place(api, CHANNEL).send("one", nonce="n1")
    assert len(fake.posts()) == applied
    await place(api, CHANNEL).send("one", nonce="n1")
    assert len(fake.posts()) == 1


async def test_faults_can_be_for_some_calls_for_ever_and_healed(fake, api):
    fake.fail(SEND, Refused(403, 50013), forever=True, when=lambda call: call.content == "bad")
    for _ in range(2):
        assert await refused(place(api, CHANNEL).send("bad")) == (403, 50013)
    await place(api, CHANNEL).send("good")
    fake.heal(SEND)
    await place(api, CHANNEL).send("bad")
    fake.fail("*", Garbage())
    with pytest.raises(ValueError, match=r"Unterminated|Expecting|unexpected end"):
        await place(api, CHANNEL).send("x")


async def test_gates_and_slow_answers_hold_a_call_and_a_stall_never_answers(fake, api):
    gate = fake.gate(SEND)
    sending = asyncio.ensure_future(place(api, CHANNEL).send("x"))
    await gate.reached()
    assert fake.posts() == []
    gate.open()
    await sending
    fake.fail(SEND, Slow(0.02), Stall(applied=True))
    await place(api, CHANNEL).send("slow")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(place(api, CHANNEL).send("stalled"), 0.05)
    assert [post.content for post in fake.posts()] == ["x", "slow", "stalled"]


async def test_offline_resets_everything_and_comes_back(fake, api):
    fake.cut_off()
    with pytest.raises((aiohttp.ClientOSError, aiohttp.ServerDisconnectedError)):
        await place(api, CHANNEL).send("x")
    fake.cut_off(offline=False)
    await place(api, CHANNEL).send("y")
    assert [post.content for post in fake.posts()] == ["y"]


async def test_a_revoked_token_is_401_everywhere(fake, api):
    fake.revoke()
    assert await refused(place(api, CHANNEL).send("x")) == (401, 0)
    assert await refused(api.fetch_user(int(U1))) == (401, 0)
    assert fake.invalid == 2
