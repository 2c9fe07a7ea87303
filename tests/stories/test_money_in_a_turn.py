"""Budgets, compaction and footers through whole turns: real ledger, real sockets, what the person sees."""

from __future__ import annotations

import json

import pytest

from bot.agent.prompt.compaction import INSTRUCTION
from bot.observe.event_stream import EventStream
from bot.wording import FRIENDLY, PRICE_UNKNOWN
from tests.fakes import anthropic as a
from tests.fakes import openai as o
from tests.fakes.http import Cut, Reply, Stall
from tests.serving import anthropic, compatible, openai, serving
from tests.world import ANN, T2
from threads.model import Author, TextDelta

BOSS = Author("U9", "boss")
SONNET = "anthropic/claude-sonnet-5-5"


def ledger(data):
    files = sorted((data / "usage").glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_bytes().splitlines()]


def settings(fake, **more):
    limits = {"turn": 0.05, "thread": None, "user_day": None, "day": None, "month": None}
    return {
        "model": SONNET,
        "providers": anthropic(fake.base_url, model_map={}, requests_per_minute=None),
        "budget": {"limit_usd": limits},
        "access": {"admins": [BOSS.id]},
        **more,
    }


async def test_a_hard_limit_pauses_the_turn_until_an_admin_grants_more(tmp_path):
    async with (
        a.FakeAnthropic([a.answer(a.Text("worth it"))]) as fake,
        serving(tmp_path, settings(fake)) as chat,
    ):
        await chat.send("think hard")
        await chat.until(lambda: any(post.choices for post in chat.posts))
        assert fake.requests == [], "nothing is sent before it is paid for"
        more, _ = chat.posts[0].choices
        assert more.label == "Continue with $1.00 more"
        refused = await chat.say(more.command, author=ANN)
        assert refused.text == "This is not yours to decide. Ask whoever runs this bot."
        assert (await chat.say(more.command, author=BOSS)).text == "Thank you, I go on."
        await chat.settled("m1")
    assert next(post.text for post in chat.posts if post.reply_to == "m1" and not post.choices) == "worth it"
    kinds = [record["kind"] for record in ledger(tmp_path)]
    assert kinds == ["carried", "grant", "reserve", "commit"], (
        "the grant and the reservation came before the call"
    )


@pytest.mark.parametrize("approved", [True, False])
async def test_other_programs_see_a_pause_for_money_and_how_it_was_decided(tmp_path, approved):
    events = EventStream()
    fake = a.FakeAnthropic(lambda _: a.answer(a.Text("fine")))
    async with fake, serving(tmp_path, settings(fake), events=events) as chat:
        await chat.send("think hard about roses")
        await chat.until(lambda: any(post.choices for post in chat.posts))
        await chat.say(chat.posts[0].choices[0 if approved else 1].command, author=BOSS)
        await chat.settled("m1")
    lines = [line async for batch in events.read(follow=False) for line in batch]
    paused, decided = [line for line in lines if line.kind == "budget" and line.state != "warning"]
    assert (paused.state, decided.state) == ("paused", "granted" if approved else "declined")
    assert paused.scope == decided.scope == "turn"
    assert (paused.error.type, paused.error.recoverable, paused.error.ways) == (
        *("budget_exceeded", True),
        ("grant",),
    )
    assert paused.correlation_id in {line.correlation_id for line in lines if line.kind == "turn"}
    outcomes = {line.message_id: line.outcome for line in lines if line.kind == "settled"}
    assert outcomes["m1"] == ("answered" if approved else "failed")
    failures = [line for line in lines if line.kind == "failure" and line.event == "turn.failed"]
    assert [line.error.type for line in failures] == ([] if approved else ["budget_exceeded"])
    assert not any(word in str(line) for line in lines for word in ("roses", "fine", BOSS.id))


async def test_cancelling_ends_the_turn_with_a_friendly_word(tmp_path):
    async with a.FakeAnthropic([]) as fake, serving(tmp_path, settings(fake)) as chat:
        await chat.send("think hard")
        await chat.until(lambda: any(post.choices for post in chat.posts))
        await chat.say(chat.posts[0].choices[1].command, author=BOSS)
        await chat.settled("m1")
    assert chat.texts[-1].startswith(FRIENDLY["budget_exceeded"]) or chat.texts[-2].startswith(
        FRIENDLY["budget_exceeded"]
    )
    assert chat.outcomes["m1"] == "failed"
    assert fake.requests == []


async def test_with_leave_the_asker_may_go_past_the_limit(tmp_path):
    async with a.FakeAnthropic([a.answer(a.Text("fine"))]) as fake:
        given = settings(fake)
        given["budget"] = {**given["budget"], "asker_may_grant": True}
        async with serving(tmp_path, given) as chat:
            await chat.send("think hard")
            await chat.until(lambda: any(post.choices for post in chat.posts))
            await chat.say("/approve 0.50")
            await chat.settled("m1")
    assert chat.outcomes["m1"] == "answered"
    (grant,) = [record for record in ledger(tmp_path) if record["kind"] == "grant"]
    assert (grant["micros"], grant["by"]) == (500_000, ANN.id)


async def test_a_soft_limit_is_only_spoken_of_and_only_once(tmp_path):
    async with a.FakeAnthropic(lambda _: a.answer(a.Text("ok"))) as fake:
        given = settings(fake)
        given["budget"] = {"mode": "soft", "limit_usd": {**given["budget"]["limit_usd"], "day": 0.00001}}
        async with serving(tmp_path, given) as chat:
            first, second = await chat.say("one"), await chat.say("two")
    assert first.text.startswith(
        "(Over budget: $0.0001 of $0.0000 spent for everyone today, $0.0001 more than"
    )
    assert second.text == "ok"


async def test_the_warning_says_that_it_is_one_and_what_is_left(tmp_path):
    usage = {"input_tokens": 10, "output_tokens": 1}
    reply = a.answer(a.Text("ok"), usage=usage, end_usage={"output_tokens": 85_000})
    async with a.FakeAnthropic(lambda _: reply) as fake:
        given = settings(fake, prices={SONNET: {"input": 0, "output": 10}})
        given["budget"] = {"limit_usd": {**given["budget"]["limit_usd"], "turn": None, "day": 1.0}}
        async with serving(tmp_path, given) as chat:
            first, second = await chat.say("one"), await chat.say("two", thread=T2)
    assert first.text.startswith("(Budget warning: $0.85 of $1.00 spent for everyone today, $0.15 left.)")
    assert "Budget" not in second.text


async def test_the_footer_tells_what_an_answer_used(tmp_path):
    async with a.FakeAnthropic([a.answer(a.Text("ok"))]) as fake:
        given = settings(fake)
        given["budget"] = {"footer": True}
        async with serving(tmp_path, given) as chat:
            post = await chat.say("hello")
    answer, footer = post.text.split("\n\n")
    assert answer == "ok"
    assert footer == f"({SONNET}: 25 tokens, 28% of the prompt cached, $0.0001)"


async def test_an_unknown_price_is_refused_under_a_hard_budget_and_named_in_the_log(tmp_path, caplog):
    given = {
        "model": "cloud/new-model",
        "providers": compatible("cloud", "https://models.example/v1", free=False),
    }
    async with serving(tmp_path, given) as chat:
        post = await chat.say("hello")
    assert chat.outcomes["m1"] == "failed"
    assert post.text.startswith(PRICE_UNKNOWN)
    assert "price of cloud/new-model is not known" in caplog.text


async def test_a_hard_budget_holds_behind_a_gateway_on_this_machine(tmp_path, caplog):
    async with o.FakeOpenAI(lambda _: o.chat_answer(o.Text("dear"))) as fake:
        given = {"model": "gateway/large", "providers": compatible("gateway", fake.base_url, free=False)}
        async with serving(tmp_path / "unknown", given) as chat:
            refused = await chat.say("hello")
        assert refused.text.startswith(PRICE_UNKNOWN)
        assert fake.requests == []
        assert '"free": true under providers.gateway' in caplog.text
        given["providers"] = compatible("gateway", fake.base_url, free=True)
        async with serving(tmp_path / "free", given) as chat:
            assert (await chat.say("hello")).text == "dear"


async def test_usage_is_told_in_the_thread(tmp_path):
    async with a.FakeAnthropic([a.answer(a.Text("ok"))]) as fake, serving(tmp_path, settings(fake)) as chat:
        post = await chat.say("/usage")
    assert post.text.splitlines()[0].startswith("$0.00 spent for this thread")


async def test_a_long_conversation_is_summarised_and_goes_on(tmp_path):
    summaries = []

    def script(seen):
        if seen.json["messages"][-1]["content"][-1]["text"] == INSTRUCTION.text:
            summaries.append(seen.json)
            return a.answer(a.Text("Ann likes tea; the build is red."))
        used = len(json.dumps(seen.json)) // 4
        return a.answer(a.Text("word " * 300), usage={"input_tokens": used, "output_tokens": 1})

    async with a.FakeAnthropic(script) as fake:
        given = settings(
            fake,
            budget={"limit_usd": {"turn": None, "thread": None, "user_day": None, "day": None}},
            models={SONNET: {"context_window": 6000}},
            compaction={"threshold": 0.6, "keep_recent_tokens": 500},
            max_tokens=500,
        )
        async with serving(tmp_path, given) as chat:
            texts = [(await chat.say(f"question {n} " + "why " * 200)).text for n in range(12)]
    assert summaries
    assert any("summarised the earlier part" in text for text in texts)
    last = fake.requests[-1].json["messages"]
    assert "Ann likes tea" in json.dumps(last[0])
    before = fake.requests[
        fake.requests.index(next(r for r in fake.requests if r.json is summaries[0])) - 1
    ].json
    assert summaries[0]["system"] == before["system"]
    assert summaries[0]["tools"] == before["tools"]
    folder = next((tmp_path / "threads").rglob("context.old.jsonl"))
    assert b"question 0" in folder.read_bytes(), "nothing is lost: the old conversation is kept aside"


LONG = "word " * 12_000
"""An answer that would be long; of it two words come."""


def long_anthropic() -> Reply:
    return a.answer(a.Text(LONG, pieces=6000)).keep(5)


def long_responses() -> Reply:
    return o.response_answer(o.Text(LONG, pieces=6000)).keep(5)


def long_chat() -> Reply:
    return o.chat_answer(o.Text(LONG, pieces=6000)).keep(3)


WIRES = {
    "anthropic": (a.FakeAnthropic, long_anthropic, SONNET, anthropic),
    "openai": (o.FakeOpenAI, long_responses, "openai/gpt-6.1-terra", openai),
    "chat": (o.FakeOpenAI, long_chat, "mine/large", lambda url, **_: compatible("mine", url)),
}


def on_the_wire(wire, then):
    """Return a fake whose every answer has two words and then *then*, and settings with a dollar to spend."""
    fake, reply, model, provider = WIRES[wire]
    two_words = reply()
    two_words = two_words.keep(len(two_words.steps), then)

    def given(url):
        return {
            "model": model,
            "max_tokens": 64_000,
            "providers": provider(url, model_map={}, requests_per_minute=None),
            "prices": {model: {"input": 3, "output": 15}},
            "llm_retry": {"max_retries": 0, "base_delay_ms": 1, "max_delay_ms": 1},
            "budget": {"limit_usd": {"turn": 2, "thread": None, "user_day": None, "day": None}},
        }

    return fake(lambda _: two_words), given


def spent(data):
    return sum(record["micros"] for record in ledger(data) if record["kind"] == "commit") / 1e6


@pytest.mark.parametrize("wire", WIRES)
async def test_a_stream_that_is_cut_after_two_words_costs_about_two_words(tmp_path, wire):
    fake, given = on_the_wire(wire, Cut("rst"))
    async with fake, serving(tmp_path, given(fake.base_url)) as chat:
        await chat.say("tell me a lot")
    (commit,) = [record for record in ledger(tmp_path) if record["kind"] == "commit"]
    assert commit["outcome"] in ("connection", "unavailable")
    assert commit["usage"]["output"] > 0
    # A second at 500 tokens, the time of the test itself, and a prompt that only Anthropic counts at once.
    assert 0.0075 < spent(tmp_path) < (0.04 if wire == "anthropic" else 0.15)


@pytest.mark.parametrize("wire", WIRES)
async def test_a_stop_in_the_middle_of_an_answer_costs_what_came_and_not_what_could_have(tmp_path, wire):
    fake, given = on_the_wire(wire, Stall())
    async with fake, serving(tmp_path, given(fake.base_url)) as chat:
        await chat.send("tell me a lot")
        await chat.until(lambda: any(isinstance(event, TextDelta) for _, event in chat.events))
        await chat.say("/stop")
        await chat.settled("m1")
    assert chat.outcomes["m1"] == "stopped"
    (commit,) = [record for record in ledger(tmp_path) if record["kind"] == "commit"]
    assert commit["outcome"] == "turn_stopped"
    assert 0.0075 < spent(tmp_path) < (0.04 if wire == "anthropic" else 0.15)


async def test_a_provider_that_refuses_or_is_not_there_costs_nothing(tmp_path):
    refused, absent = tmp_path / "refused", tmp_path / "absent"
    async with a.FakeAnthropic([a.fault(529, "overloaded_error")]) as fake:
        given = on_the_wire("anthropic", Cut())[1](fake.base_url)
        async with serving(refused, given) as chat:
            await chat.say("hello")
    async with serving(absent, given) as chat:
        await chat.say("hello")
    for data, outcome in ((refused, "unavailable"), (absent, "connection")):
        (commit,) = [record for record in ledger(data) if record["kind"] == "commit"]
        assert (commit["outcome"], commit["micros"]) == (outcome, 0)
