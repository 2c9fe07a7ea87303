"""The search of Anthropic and of OpenAI: a call of its own, with the words alone, paid by searches and tokens."""

import json

import pytest

from bot.config.settings import Provider
from bot.extensions.web_search.found import Source
from bot.extensions.web_search.providers import PROMPT_TOKENS, provider_source
from bot.extensions.web_search.settings import WebSearchSettings
from bot.ports.errors import ToolError, ToolRateLimited
from bot.ports.model import Usage
from tests.bot.extensions.web_search.fakes import PONIES, answered, calls
from tests.fakes import anthropic as a
from tests.fakes import openai as o
from tests.serving import anthropic, openai, serving

SONNET, TERRA = "anthropic/claude-sonnet-5-5", "openai/gpt-6.1-terra"
HEATH = "https://heath.example/"

CLAUDE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "stop_reason": "end_turn",
    "content": [
        {"type": "text", "text": "I search."},
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "ponies"}},
        {
            "type": "web_search_tool_result",
            "tool_use_id": "s1",
            "content": [
                {
                    "type": "web_search_result",
                    "title": "Ponies",
                    "url": PONIES,
                    "encrypted_content": "x" * 99,
                },
                {"type": "web_search_result", "title": "Heath", "url": HEATH, "page_age": "3 days ago"},
            ],
        },
        {
            "type": "text",
            "text": "Forty ponies live there, as the rangers who look after the heath all year have counted.",
            "citations": [
                {"type": "web_search_result_location", "url": PONIES, "title": "Ponies", "cited_text": "40"}
            ],
        },
    ],
    "usage": {
        "input_tokens": 9_000,
        "cache_read_input_tokens": 1_000,
        "output_tokens": 200,
        "server_tool_use": {"web_search_requests": 1},
    },
}
GPT = {
    "id": "resp_1",
    "object": "response",
    "status": "completed",
    "output": [
        {
            "type": "web_search_call",
            "id": "w1",
            "status": "completed",
            "action": {"type": "search", "query": "ponies", "sources": [{"type": "url", "url": HEATH}]},
        },
        {"type": "web_search_call", "id": "w2", "action": {"type": "open_page", "url": PONIES}},
        {
            "type": "message",
            "content": [
                {
                    "type": "output_text",
                    "text": f"Forty live there ([heath]({PONIES})).",
                    "annotations": [{"type": "url_citation", "url": PONIES, "title": "Ponies"}],
                }
            ],
        },
    ],
    "usage": {"input_tokens": 10_000, "input_tokens_details": {"cached_tokens": 900}, "output_tokens": 200},
}
PRICE = {"input": 3.0, "output": 15.0}
COST = 10_000 + 10_000 * 3 + 200 * 15
"""Micro-dollars: the search, and the tokens."""


def source(kind="anthropic", *, rate=None, **given) -> Source:
    provider = Provider(kind=kind)
    return provider_source(WebSearchSettings(**given), f"{kind}/m", provider, lambda: "k", lambda: rate)


async def searched(tmp_path, fake, model, providers):
    """Return what the model was told of its search, and what the ledger has of the call that searched."""
    settings = {"model": model, "prices": {model: PRICE}, "providers": providers, "budget": {"mode": "soft"}}
    tools = {"enabled": ["web_fetch"], "web_search": {}}
    async with serving(tmp_path, {**settings, "tools": tools}) as chat:
        assert (await chat.say("where are the ponies?")).text == "Ponies live there."
    lines = [
        json.loads(line) for file in (tmp_path / "usage").iterdir() for line in file.read_bytes().splitlines()
    ]
    return [line["micros"] for line in lines if line["kind"] == "commit"]


async def test_claude_searches_in_a_call_of_its_own_and_its_citations_are_links(tmp_path):
    model = calls("where do ponies live")
    script = lambda seen: model(seen) if seen.json.get("stream") else answered(CLAUDE)  # noqa: E731
    async with a.FakeAnthropic(script) as fake:
        costs = await searched(tmp_path, fake, SONNET, anthropic(fake.base_url))
    first, search, last = (seen.json for seen in fake.requests)
    assert [tool["name"] for tool in first["tools"]] == ["web_fetch", "web_search"]
    assert search["tools"] == [{"type": "web_search_20250305", "name": "web_search", "max_uses": 1}]
    assert fake.requests[1].headers["x-api-key"] == "sk-ant-test"
    assert "where do ponies live" in search["messages"][0]["content"]
    assert "where are the ponies?" not in json.dumps(search), "nothing of the thread but the words"
    told = json.dumps(last["messages"][-1])
    assert f"have counted. ({PONIES})" in told
    assert HEATH in told
    assert "I search." not in told
    assert "<outside" in told
    assert COST in costs


async def test_gpt_searches_in_a_call_of_its_own_and_pays_for_searches_not_for_pages(tmp_path):
    blocks = iter([o.Tool("t1", "web_search", {"query": "ponies"}), o.Text("Ponies live there.")])
    script = lambda seen: o.response_answer(next(blocks)) if seen.json.get("stream") else answered(GPT)  # noqa: E731
    async with o.FakeOpenAI(script) as fake:
        costs = await searched(tmp_path, fake, TERRA, openai(fake.base_url))
    _, search, last = (seen.json for seen in fake.requests)
    assert (search["tools"], search["max_tool_calls"]) == ([{"type": "web_search"}], 1)
    assert search["store"] is False
    told = json.dumps(last["input"][-1])
    assert told.count(f"[heath]({PONIES})") == 1
    assert HEATH in told
    assert COST in costs


def test_what_is_set_aside_is_the_fee_and_a_bound_of_the_tokens():
    mine = source(rate=lambda usage: usage.input * 3e-6 + usage.output * 15e-6, usd_per_1000=5.0)
    assert mine.most() == pytest.approx(0.005 + PROMPT_TOKENS * 3e-6 + 4_096 * 15e-6)
    assert source().most() is None


def test_without_a_count_of_tokens_the_bound_is_charged():
    mine = source(rate=lambda usage: usage.input * 3e-6)
    assert mine.charge({"content": []}) == (mine.most(), Usage())


@pytest.mark.parametrize(
    ("code", "error"), [("too_many_requests", ToolRateLimited), ("unavailable", ToolError)]
)
def test_a_search_that_the_provider_could_not_make_is_an_error(code, error):
    block = {"type": "web_search_tool_result", "content": {"type": "error", "error_code": code}}
    with pytest.raises(error, match="could not search"):
        source().found({"content": [block]})


@pytest.mark.parametrize("kind", ["anthropic", "openai"])
def test_an_answer_without_results_is_no_search(kind):
    said = {"type": "message", "content": [{"type": "output_text", "text": "I know it."}]}
    with pytest.raises(ToolError, match="found nothing"):
        source(kind).found({"content": [{"type": "text", "text": "I know it."}], "output": [said]})
