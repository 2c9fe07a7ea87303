"""Who is asked to search, and what was found: values, and the checks on them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from pydantic import JsonValue

from bot.guards.urls import parse_url
from bot.ports.errors import ToolDenied, ToolError
from bot.ports.model import Usage

LONGEST_TITLE, LONGEST_TEXT, LONGEST_ANSWER = 300, 2_000, 12_000
"""Characters that are kept of a result's title and text, and of an answer."""

Answer = Mapping[str, Any]
"""The JSON object that a service answers with."""

Charge = tuple[float | None, Usage]
"""What one search cost in USD, None where the price is not known, and the tokens in it."""


class Query(NamedTuple):
    """One request: GET, or POST with a ``body`` as JSON."""

    url: str
    headers: Mapping[str, str]
    body: Mapping[str, object] | None = None


class Hit(NamedTuple):
    """One result. ``text`` is an excerpt, ``date`` as the service has it."""

    title: str
    url: str
    date: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Source:
    """Who searches. ``name`` is what people read, ``paid_as`` its name in the ledger.

    ``query`` makes the request for some words; it raises `bot.ports.config_error.ConfigInvalid` if the key is gone.
    ``read`` returns the text of an answer, and its results. ``most`` is the highest cost of a search in USD, None if
    that is not known, and ``charge`` what one did cost. ``count`` is the most results, ``patience_s`` the longest
    wait for an answer to begin. With ``own_address`` the settings name the address.
    """

    name: str
    paid_as: str
    query: Callable[[str], Query]
    read: Callable[[Answer], tuple[str, Iterable[Hit]]]
    most: Callable[[], float | None]
    charge: Callable[[Answer], Charge]
    count: int
    patience_s: float
    own_address: bool

    def found(self, answer: Answer) -> dict[str, JsonValue]:
        """Return an answer for the model. Raises `ToolError`, and what an answer of another form makes of it."""
        text, hits = self.read(answer)
        kept = [hit._asdict().items() for hit in islice(_clean(hits), self.count)]
        results: list[JsonValue] = [{name: value for name, value in hit if value} for hit in kept]
        if text and not results:  # it is what a model knows by itself
            raise ToolError("The search found nothing.", suggestion="Try other words.")
        said: dict[str, JsonValue] = {"answer": text.strip()[:LONGEST_ANSWER]} if text.strip() else {}
        return {**said, "results": results}


def _clean(hits: Iterable[Hit]) -> Iterator[Hit]:
    """Yield the results with a web address, each address once, and no text longer than it may be."""
    seen: set[str] = set()
    for hit in hits:
        try:
            url = str(parse_url(hit.url))
        except ToolDenied:
            continue  # neither a link for people nor a page to fetch
        if url not in seen:
            seen.add(url)
            title, date = line(hit.title)[:LONGEST_TITLE], line(hit.date)[:40]
            yield Hit(title, url, date, hit.text.strip()[:LONGEST_TEXT])


def line(text: str) -> str:
    return " ".join(text.split())


def hit_of(one: Mapping[str, Any]) -> Hit:
    """Return a result of any of the services: they differ in names only."""
    excerpts = [_text(one, "content", "text", "description"), *(one.get("extra_snippets") or ())]
    date = _text(one, "published_date", "publishedDate", "page_age")
    return Hit(_text(one, "title"), _text(one, "url"), date, "\n".join(excerpts))


def _text(one: Mapping[str, Any], *names: str) -> str:
    return next((found for name in names if isinstance(found := one.get(name), str)), "")
