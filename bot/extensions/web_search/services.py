"""Search services by key, and SearXNG: what each is asked and how it answers. Pure.

| service | documents                                                     | price of 1,000 searches         |
|---------|---------------------------------------------------------------|---------------------------------|
| brave   | api-dashboard.search.brave.com/api-reference/web/search/get   | $5                              |
| exa     | exa.ai/docs/reference/search, exa.ai/docs/admin/pricing       | $7, with excerpts of 10 results |
| tavily  | docs.tavily.com/documentation/api-reference/endpoint/search   | $8, one credit each             |
| searxng | docs.searxng.org/dev/search_api                               | nothing                         |

The prices are those of 2026. Exa takes another $1 for 1,000 results beyond the tenth of a search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from urllib.parse import urlencode

from bot.extensions.web_search.found import Answer, Charge, Hit, Query, Source, hit_of
from bot.extensions.web_search.settings import WebSearchSettings
from bot.ports.model import Usage

EXCERPT = 1_000
"""Characters of a page that Exa is asked for."""


def _brave(url: str, key: str, words: str, count: int) -> Query:
    asked = urlencode({"q": words, "count": count, "text_decorations": "false", "result_filter": "web"})
    return Query(f"{url}?{asked}", {"X-Subscription-Token": key})


def _exa(url: str, key: str, words: str, count: int) -> Query:
    contents = {"text": {"maxCharacters": EXCERPT}}
    return Query(url, {"x-api-key": key}, {"query": words, "numResults": count, "contents": contents})


def _tavily(url: str, key: str, words: str, count: int) -> Query:
    return Query(url, {"Authorization": f"Bearer {key}"}, {"query": words, "max_results": count})


def _searxng(url: str, _key: str, words: str, _count: int) -> Query:
    return Query(f"{url.rstrip('/')}/search?{urlencode({'q': words, 'format': 'json'})}", {})


SERVICES: Mapping[str, tuple[str, str, float, Callable[[str, str, str, int], Query]]] = {
    "brave": ("Brave Search", "https://api.search.brave.com/res/v1/web/search", 5.0, _brave),
    "exa": ("Exa", "https://api.exa.ai/search", 7.0, _exa),
    "tavily": ("Tavily", "https://api.tavily.com/search", 8.0, _tavily),
    "searxng": ("SearXNG", "", 0.0, _searxng),
}
"""The name of each for people, its address, the price of 1,000 searches in USD, and what makes a request."""


def service_source(given: WebSearchSettings, key: Callable[[], str]) -> Source:
    """Return the service of the settings; *key* is read for each search."""
    (name, address, usd, ask), count = SERVICES[given.service], given.results
    more = max(0, count - 10) if given.service == "exa" else 0
    price = (usd + more if given.usd_per_1000 is None else given.usd_per_1000) / 1000
    paid_as, own = f"web_search/{given.service}", given.url is not None

    def query(words: str) -> Query:
        return ask(given.url or address, key(), words, count)

    def charge(_: Answer) -> Charge:
        return price, Usage()

    return Source(name, paid_as, query, _read, lambda: price, charge, count, patience_s=15.0, own_address=own)


def _read(answer: Answer) -> tuple[str, Iterable[Hit]]:
    listed = answer if "results" in answer else answer.get("web") or {"results": ()}
    return "", map(hit_of, listed["results"])
