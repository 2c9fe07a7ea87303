"""Limits and faults of the fake Discord's REST, as the real discord.py meets them."""

import aiohttp

from tests.fakes.discord import CHANNEL, CHANNEL2, FakeDiscord


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
        answers = [await call(fake, http, "GET", "/gateway/bot") for _ in range(51)]
    assert [status for status, _, _ in answers] == [200] * 50 + [429]
    assert answers[-1][1]["X-RateLimit-Global"] == "true"
    assert answers[-1][2]["global"] is True


async def test_edits_of_a_message_that_is_an_hour_old_are_few():
    async with FakeDiscord() as fake, aiohttp.ClientSession() as http:
        _, _, sent = await call(fake, http, content="x")
        edit = f"/channels/{CHANNEL}/messages/{sent['id']}"
        assert (await call(fake, http, "PATCH", edit, content="y"))[0] == 200
        fake.later(3601)
        statuses = [(await call(fake, http, "PATCH", edit, content="z")) for _ in range(4)]
        assert [status for status, _, _ in statuses] == [200, 200, 200, 429]
        assert statuses[-1][2]["code"] == 30046
