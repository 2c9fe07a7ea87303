"""SearXNG: a real server of its API where one is unpacked, and its documented refusals on a fake one."""

import pytest

from bot.config.extensions import settings_model
from bot.extensions.web_search.checks import check_web_search
from bot.extensions.web_search.settings import WEB_SEARCH
from bot.host.checks import Context
from tests.bot.extensions.web_search.fakes import (
    PONIES,
    FakeService,
    answered,
    asked_of,
    calls,
    charges,
    result_of,
    searching,
)
from tests.bot.extensions.web_search.searx import needs_searx, searx

HITS = {"hits": [{"url": PONIES, "title": "Ponies on the heath", "content": "Forty ponies live there."}]}


def by(url, *, offline=False):
    given = {"service": "searxng", "url": url}
    return Context(settings_model().model_validate({"tools": {"web_search": given}}), {}, offline=offline)


async def found(context):
    given = WEB_SEARCH.of(context.settings)
    return [(one.state, one.found) async for one in check_web_search(given, context)]


@needs_searx
async def test_a_bot_searches_by_a_real_server_on_this_machine_and_it_costs_nothing(tmp_path):
    async with FakeService(lambda _: answered(HITS)) as engine, searx(tmp_path, engine.base_url) as url:
        assert await found(by(url)) == [("ok", "SearXNG answers")]
        own = {"service": "searxng", "key": None, "url": url}
        data = tmp_path / "data"
        async with searching(data, FakeService([]), calls("ponies & heath"), search=own) as (chat, fake):
            assert (await chat.say("where are the ponies?")).text == "Ponies live there."
    assert asked_of(engine.requests[-1])["q"] == "ponies & heath"
    assert PONIES in result_of(fake)
    assert "Forty ponies live there." in result_of(fake)
    assert charges(data) == [("commit", 0, "ok")]


@pytest.mark.parametrize(
    ("reply", "state", "said"),
    [
        (answered({"results": [{"url": PONIES}]}), "ok", "SearXNG answers"),
        (answered({"results": []}), "warn", "SearXNG found nothing"),
        (answered({}, 403), "fail", "SearXNG gives no JSON: its settings.yml needs `json`"),
        (answered({"results": 1}), "fail", "SearXNG gave no valid answer"),
    ],
)
async def test_the_doctor_makes_a_search_that_costs_nothing(reply, state, said):
    async with FakeService(lambda _: reply) as service:
        [(told, words)] = await found(by(service.base_url))
    assert told == state
    assert words.startswith(said)


async def test_the_doctor_asks_nobody_offline():
    assert await found(by("http://127.0.0.1:1", offline=True)) == [("ok", "SearXNG is set up; not asked")]
