"""The search of Anthropic and of OpenAI: a call of its own, in which a model gets the words and no more.

The tool makes it, so rules, questions, budget and audit hold for it as for every other tool. A search within the
model's own answer would pass them by: what it reads there could have it search again, with words from the thread.

| provider  | documents                                                             |
|-----------|-----------------------------------------------------------------------|
| anthropic | platform.claude.com/docs/en/agents-and-tools/tool-use/web-search-tool |
| openai    | developers.openai.com/api/docs/guides/tools-web-search                |

Both took $10 for 1,000 searches in 2026, and the price of the model's tokens, also for what it reads of the results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from bot.config.settings import Provider
from bot.extensions.web_search.found import Answer, Charge, Hit, Query, Source, hit_of
from bot.extensions.web_search.settings import WebSearchSettings
from bot.llm.adapters.wire_form import part, tokens
from bot.llm.catalog import Rate, most
from bot.ports.errors import ToolError, ToolRateLimited
from bot.ports.model import Usage

USD_PER_1000 = 10.0
MAX_OUTPUT = 4_096
PROMPT_TOKENS = 60_000
"""Tokens of results that are set aside for a search. No provider names a limit; 9,000 to 54,000 were measured
(docs.apiyi.com/en/api-capabilities/openai/web-search)."""

ASKED = "Search the web once for this, and say in at most 300 words what the results say, with their sources:"
Key = Callable[[], str | None]
ANTHROPIC, OPENAI = "https://api.anthropic.com", "https://api.openai.com/v1"


def provider_source(
    given: WebSearchSettings, model: str, provider: Provider, key: Key, rate: Callable[[], Rate | None]
) -> Source:
    """Return the search of a model's provider. *rate* returns the price of its tokens, None if it is not known."""
    claude, name = provider.kind == "anthropic", model.partition("/")[2]
    fee = (USD_PER_1000 if given.usd_per_1000 is None else given.usd_per_1000) / 1000
    base = (provider.base_url or (ANTHROPIC if claude else OPENAI)).rstrip("/")
    ask, read = (_ask_anthropic, _of_anthropic) if claude else (_ask_openai, _of_openai)

    def query(words: str) -> Query:
        return ask(base, key() or "", name, f"{ASKED}\n\n{words}")

    def most_usd() -> float | None:
        known = rate()
        return known and fee + most(known, PROMPT_TOKENS, MAX_OUTPUT)

    def charge(answer: Answer) -> Charge:
        known, usage = rate(), _usage(part(answer, "usage"), claude=claude)
        return (known and known(usage) + fee * _searches(answer) if usage.input else most_usd()), usage

    who, own = f"the search of {model}", provider.base_url is not None
    return Source(who, model, query, read, most_usd, charge, given.results, patience_s=90.0, own_address=own)


def _ask_anthropic(base: str, key: str, model: str, said: str) -> Query:
    tools = [{"type": "web_search_20250305", "name": "web_search", "max_uses": 1}]
    messages = [{"role": "user", "content": said}]
    body = {"model": model, "max_tokens": MAX_OUTPUT, "tools": tools, "messages": messages}
    return Query(f"{base}/v1/messages", {"x-api-key": key, "anthropic-version": "2023-06-01"}, body)


def _ask_openai(base: str, key: str, model: str, said: str) -> Query:
    search = {"tools": [{"type": "web_search"}], "tool_choice": "required", "max_tool_calls": 1}
    kept = {"max_output_tokens": MAX_OUTPUT, "include": ["web_search_call.action.sources"], "store": False}
    body = {"model": model, "input": said, **search, **kept}
    return Query(f"{base}/responses", {"Authorization": f"Bearer {key}"}, body)


def _usage(counted: Mapping[str, Any], *, claude: bool) -> Usage:
    """Return the tokens; cached ones count as any others, which is rather too much. OpenAI has them in its prompt."""
    cached = ("cache_read_input_tokens", "cache_creation_input_tokens") if claude else ()
    read = sum(tokens(counted.get(name)) or 0 for name in ("input_tokens", *cached))
    return Usage(read, tokens(counted.get("output_tokens")) or 0)


def _searches(answer: Answer) -> int:
    """Return how many searches are paid for. OpenAI takes nothing for pages that its model opens."""
    counted = part(part(answer, "usage"), "server_tool_use").get("web_search_requests")
    calls = (part(call, "action") for call in _of_type(answer.get("output"), "web_search_call"))
    return tokens(counted) or sum(action.get("type", "search") == "search" for action in calls)


def _of_type(items: Any, kind: str) -> Iterator[Mapping[str, Any]]:
    return (one for one in items or () if isinstance(one, dict) and one.get("type") == kind)


def _of_anthropic(answer: Answer) -> tuple[str, Iterable[Hit]]:
    hits, texts = list[Hit](), list[str]()
    for block in answer["content"]:
        match block:
            case {"type": "text"}:
                texts.append(_with_links(block))
            case {"type": "web_search_tool_result", "content": {"error_code": code}}:
                failed = ToolRateLimited if code == "too_many_requests" else ToolError
                why = f"The provider could not search: {str(code)[:60]}."
                raise failed(why, suggestion="Try again later.")
            case {"type": "web_search_tool_result", "content": results}:
                texts.clear()  # it was written before there was anything to say
                hits += map(hit_of, _of_type(results, "web_search_result"))
    return "".join(texts), hits


def _with_links(block: Mapping[str, Any]) -> str:
    """Return a text with the links of what it cites; OpenAI's model writes them itself."""
    cited = _of_type(block.get("citations"), "web_search_result_location")
    return "".join([block["text"], *(f" ({url})" for url in dict.fromkeys(one["url"] for one in cited))])


def _of_openai(answer: Answer) -> tuple[str, Iterable[Hit]]:
    calls, messages = (partial(_of_type, answer["output"], kind) for kind in ("web_search_call", "message"))
    said = [piece for message in messages() for piece in _of_type(message["content"], "output_text")]
    cited = (one for piece in said for one in _of_type(piece.get("annotations"), "url_citation"))
    sources = (one for call in calls() for one in _of_type(part(call, "action").get("sources"), "url"))
    return "\n".join(piece["text"] for piece in said), map(hit_of, (*cited, *sources))
