"""What each service is asked, and what is taken of its answers."""

from urllib.parse import parse_qs, urlsplit

import pytest

from bot.extensions.web_search.found import LONGEST_TEXT, LONGEST_TITLE
from bot.extensions.web_search.services import service_source
from bot.extensions.web_search.settings import WebSearchSettings
from tests.bot.extensions.web_search.fakes import PONIES


def source(service, **given):
    return service_source(WebSearchSettings(service=service, **given), lambda: "k")


def test_brave_is_asked_by_get_with_the_key_in_a_header():
    url, headers, body = source("brave", results=5).query("a & b")
    assert parse_qs(urlsplit(url).query)["q"] == ["a & b"]
    assert parse_qs(urlsplit(url).query)["count"] == ["5"]
    expected = ("https://api.search.brave.com/res/v1/web/search", {"X-Subscription-Token": "k"}, None)
    assert (url.partition("?")[0], headers, body) == expected


def test_exa_and_tavily_are_asked_by_post():
    url, headers, body = source("exa", results=5).query("ponies")
    assert (url, headers) == ("https://api.exa.ai/search", {"x-api-key": "k"})
    assert (body["query"], body["numResults"]) == ("ponies", 5)
    url, headers, body = source("tavily", results=5).query("ponies")
    assert (url, headers) == ("https://api.tavily.com/search", {"Authorization": "Bearer k"})
    assert body == {"query": "ponies", "max_results": 5}


def test_searxng_is_asked_for_json_below_its_address_and_costs_nothing():
    mine = source("searxng", url="http://127.0.0.1:8888/searx/")
    assert mine.query("ponies").url == "http://127.0.0.1:8888/searx/search?q=ponies&format=json"
    assert (mine.most(), mine.own_address) == (0.0, True)


def test_more_than_ten_results_of_exa_cost_more():
    assert source("exa", results=10).most() == pytest.approx(0.007)
    assert source("exa", results=15).most() == pytest.approx(0.012)


ANSWERS = {
    "brave": {"web": {"results": [{"title": "T", "url": PONIES, "description": "D", "page_age": "2026"}]}},
    "exa": {"results": [{"title": "T", "url": PONIES, "text": "D", "publishedDate": "2026"}]},
    "tavily": {"results": [{"title": "T", "url": PONIES, "content": "D", "published_date": "2026"}]},
    "searxng": {"results": [{"title": "T", "url": PONIES, "content": "D", "publishedDate": "2026"}]},
}


@pytest.mark.parametrize("service", ANSWERS)
def test_all_services_give_the_same_results(service):
    found = source(service, url="http://s.example").found(ANSWERS[service])
    assert found == {"results": [{"title": "T", "url": PONIES, "date": "2026", "text": "D"}]}


def test_brave_without_results_found_nothing():
    assert source("brave").found({"type": "search"}) == {"results": []}


def test_results_are_as_many_and_as_long_as_they_may_be():
    listed = [
        {"title": f"{n}\n" + "t" * 999, "url": f"{PONIES}/{n}", "content": "c" * 9_999, "publishedDate": None}
        for n in range(30)
    ]
    found = source("tavily", results=3).found({"results": listed})["results"]
    assert [one["url"] for one in found] == [f"{PONIES}/{n}" for n in range(3)]
    assert {len(one["title"]) for one in found} == {LONGEST_TITLE}
    assert {len(one["text"]) for one in found} == {LONGEST_TEXT}
    assert "\n" not in found[0]["title"]
