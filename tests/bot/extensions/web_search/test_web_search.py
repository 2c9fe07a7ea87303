"""Searches through the whole program: real settings, ledger, gate and sockets, and a service on loopback."""

import json

import anyio
import anyio.lowlevel
import pytest
from click.testing import CliRunner

from bot.cli import main
from tests.bot.extensions.web_search.fakes import (
    PONIES,
    SECRET,
    FakeService,
    answered,
    asked_of,
    brave,
    calls,
    charges,
    result_of,
    searching,
)
from tests.fakes import anthropic as a
from tests.fakes.http import Cut, Reply, Stall
from tests.patience import WITHIN_S, until
from tests.serving import anthropic, serving
from threads.model import ToolStarted

FOUND = {"title": "Ponies on the heath", "url": PONIES, "description": "Forty ponies live there. " * 4}
ASKING = {"enabled": ["files", "web_fetch"], "policy": {"web_search": "ask"}}


def told(data, *words):
    return CliRunner().invoke(main, [*words, "--data", str(data)]).output


async def answered_to(tmp_path, reply, **more):
    """Return what the model is told of a search that the service answers so, and what it was charged."""
    service = FakeService([reply])
    async with searching(tmp_path, service, calls("ponies", then="So be it."), **more) as (chat, fake):
        assert (await chat.say("where are the ponies?")).text == "So be it."
    return result_of(fake), charges(tmp_path)


async def test_results_are_outside_text_with_links_and_why_usage_and_audit_tell_of_the_search(tmp_path):
    service = FakeService([brave(FOUND, {"title": "bad", "url": "javascript:alert(1)"}, FOUND)])
    async with searching(tmp_path, service, calls("ponies  heath")) as (chat, fake):
        assert (await chat.say("where are the ponies?")).text == "Ponies live there."
    [asked] = service.requests
    assert asked_of(asked)["q"] == "ponies heath"
    assert asked.headers["x-subscription-token"] == SECRET
    result = result_of(fake)
    assert result.count(PONIES) == 1
    assert "javascript" not in result
    assert 'from=\\"web search\\"' in result
    assert charges(tmp_path) == [("reserve", 5_000, None), ("commit", 5_000, "ok")]
    story = told(tmp_path, "why", "m1")
    assert "web_search/brave: 0 tokens in, 0 out, $0.0050" in story
    assert 'web_search {"query":"ponies heath"}' in story
    assert "web_search/brave" in told(tmp_path, "usage", "--by", "model")
    stored = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert not [one for one in stored if SECRET.encode() in one]


async def test_after_a_search_the_next_one_asks_and_a_person_may_allow_all_of_them_in_the_thread(tmp_path):
    service = FakeService([brave(FOUND)] * 3)
    async with searching(tmp_path, service, calls("ponies", "my secrets", "more")) as (chat, _):
        await chat.send("find them")
        with anyio.fail_after(WITHIN_S):
            await chat.until(lambda: any(post.choices for post in chat.posts))
            assert len(service.requests) == 1
            question = next(post for post in chat.posts if post.choices)
            assert "my secrets" in question.text
            await chat.say("/approve always")
            await chat.settled("m1")
    assert [asked_of(seen)["q"] for seen in service.requests] == ["ponies", "my secrets", "more"]


async def test_a_search_that_a_person_declines_is_not_made_and_is_in_the_audit(tmp_path):
    service = FakeService([])
    async with searching(tmp_path, service, calls("ponies"), tools=ASKING) as (chat, _):
        await chat.send("find them")
        with anyio.fail_after(WITHIN_S):
            await chat.until(lambda: any(post.choices for post in chat.posts))
            await chat.say("/deny")
            await chat.settled("m1")
    assert (service.requests, charges(tmp_path)) == ([], [])
    assert "web_search" in told(tmp_path, "audit", "--kind", "approval")


FAILURES = {
    "a limit": (answered({}, 429, retry_after="7"), "Do not ask again for 7 s.", "tool_rate_limited", 0),
    "a key that is refused": (answered({"error": SECRET}, 401), "refuses the key", "tool_denied", 0),
    "an account that is used up": (answered({}, 432), "account is used up (432)", "tool_denied", 0),
    "a query that is refused": (answered({}, 422), "did not take this search (422)", "tool_invalid_input", 0),
    "an error": (answered({}, 500), "answered with 500", "tool_failed", 0),
    "a redirect": (answered({}, 302, location="http://127.0.0.1:1/"), "answered with 302", "tool_failed", 0),
    "a page": (Reply((b"<html>",)), "gave no valid answer", "tool_malformed_output", 5_000),
    "another form": (answered({"web": [1]}), "gave no valid answer", "tool_malformed_output", 5_000),
    "a broken answer": (Reply((b"{", Cut("rst"))), "gave no valid answer", "tool_malformed_output", 5_000),
}


@pytest.mark.parametrize(("reply", "words", "code", "cost"), FAILURES.values(), ids=FAILURES)
async def test_a_failure_is_told_without_the_key_and_costs_what_it_may_have_cost(
    tmp_path, reply, words, code, cost
):
    result, charged = await answered_to(tmp_path, reply)
    assert words in result
    assert SECRET not in result
    assert charged == [("reserve", 5_000, None), ("commit", cost, code)]
    audited = told(tmp_path, "audit", "--kind", "tool")
    assert code in audited
    assert code in told(tmp_path, "why", "m1")
    assert SECRET not in audited + told(tmp_path, "why", "m1")


async def test_a_service_that_does_not_answer_ends_with_the_time_of_the_tool(tmp_path):
    late = {"enabled": ["web_fetch"], "per_tool": {"web_search": 100}}
    result, charged = await answered_to(tmp_path, Reply(silent=(Stall(),)), tools=late)
    assert "did not answer in time" in result
    assert charged[1:] == [("commit", 5_000, "tool_timeout")]


async def test_a_search_that_a_person_stops_is_paid_for_as_it_may_have_been_made(tmp_path):
    service = FakeService([Reply(silent=(Stall(),))])
    async with searching(tmp_path, service, calls("ponies")) as (chat, _):
        await chat.send("find them")
        with anyio.fail_after(WITHIN_S):
            await chat.until(lambda: any(isinstance(event, ToolStarted) for _, event in chat.events))
            await until(lambda: service.requests)
            await chat.say("/stop")
            await chat.settled("m1")
    assert chat.outcomes["m1"] == "stopped"
    assert charges(tmp_path) == [("reserve", 5_000, None), ("commit", 5_000, "turn_stopped")]


async def test_a_search_that_the_budget_has_no_room_for_is_not_made(tmp_path):
    budget = {"mode": "hard", "limit_usd": {"turn": 0.004, "thread": None, "user_day": None, "day": None}}
    result, charged = await answered_to(tmp_path, brave(FOUND), budget=budget)
    assert "A search may cost up to $0.0050, and that is more than the budget has left." in result
    assert charged == []


async def test_the_price_of_the_settings_counts_in_place_of_the_known_one(tmp_path):
    _, charged = await answered_to(tmp_path, brave(FOUND), search={"usd_per_1000": 3.0})
    assert charged == [("reserve", 3_000, None), ("commit", 3_000, "ok")]


async def test_where_answers_show_what_they_cost_a_search_does_too(tmp_path):
    service = FakeService([brave(FOUND)])
    footer = {"footer": True}
    async with searching(tmp_path, service, calls("ponies"), budget=footer) as (chat, _):
        post = await chat.say("where are the ponies?")
    assert post.text.startswith("(Brave Search: $0.0050)\n\nPonies live there.")


async def test_only_the_address_of_the_settings_may_be_private(tmp_path):
    _, inside = FakeService([]), calls("ponies", then="It cannot be reached.")
    async with searching(tmp_path, FakeService([brave(FOUND)]), inside) as (chat, fake):
        await chat.say("find them")
        tool = {"url": f"http://127.0.0.1:{fake.base_url.rsplit(':', 1)[1]}/"}
        fake.script = iter_of(a.Tool("f", "web_fetch", tool), a.Text("No."))
        await chat.send("read it")
        await chat.until(lambda: any(post.choices for post in chat.posts))
        await chat.say("/approve")
        await chat.settled("m2")
    assert "is a private address" in result_of(fake, -1) or "loopback" in result_of(fake, -1)


def iter_of(*blocks):
    script = iter(blocks)
    return lambda _: a.answer(next(script))


async def test_by_default_the_model_has_no_search(tmp_path):
    async with a.FakeAnthropic(lambda _: a.answer(a.Text("ok"))) as fake:
        settings = {"model": "anthropic/claude-x", "providers": anthropic(fake.base_url)}
        more = {"budget": {"mode": "soft"}, "tools": {"enabled": ["web_fetch"]}}
        async with serving(tmp_path, settings | more) as chat:
            await chat.say("hi")
    assert "web_search" not in json.dumps(fake.requests[0].json["tools"])


async def test_a_key_that_no_header_can_hold_is_told_nowhere(tmp_path):
    service = FakeService([])
    async with searching(tmp_path, service, calls("ponies"), key="\u00e9-7f3a9c21d4e8b6f0") as (chat, fake):
        await chat.say("where are the ponies?")
    assert "gave no valid answer" in result_of(fake)
    assert service.requests == []


def test_a_search_that_is_offered_nowhere_is_odd(tmp_path):
    file = tmp_path / "settings.json"
    search = {"service": "searxng", "url": "http://127.0.0.1:8888"}
    file.write_text(json.dumps({"tools": {"enabled": ["files"], "web_search": search}}))
    told = CliRunner().invoke(main, ["check", "--settings", str(file)]).output
    assert "tools.web_search: is offered where web_fetch is in tools.enabled" in " ".join(told.split())


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"service": "brave"}, "tools.web_search.key: is required"),
        ({"service": "searxng"}, "tools.web_search.url: is required"),
        ({}, "ollama has no search of its own"),
        ({"service": "brave", "key": "env:GONE"}, "GONE"),
    ],
)
def test_settings_that_cannot_search_are_told(tmp_path, given, fault):
    file = tmp_path / "settings.json"
    file.write_text(json.dumps({"model": "ollama/llama", "tools": {"web_search": given}}))
    told = CliRunner().invoke(main, ["doctor", "--offline", "--settings", str(file)]).output
    assert fault in " ".join(told.split())
