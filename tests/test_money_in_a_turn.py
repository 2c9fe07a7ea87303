"""Budgets, compaction and footers through whole turns: real ledger, real sockets, what the person sees."""

from __future__ import annotations

import json

import pytest

from bot.prompt.compaction import INSTRUCTION
from tests.fakes import anthropic as a
from tests.serving import anthropic, compatible, serving
from tests.world import ANN
from threads.model import Author
from threads.wording import FRIENDLY, PRICE_UNKNOWN

pytestmark = pytest.mark.anyio

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
        serving(tmp_path, settings(fake)) as seat,
    ):
        await seat.send("think hard")
        await seat.until(lambda: any(post.choices for post in seat.posts))
        assert fake.requests == [], "nothing is sent before it is paid for"
        more, _ = seat.posts[0].choices
        assert more.label == "Continue with $1.00 more"
        refused = await seat.say(more.command, author=ANN)
        assert refused.text == "This is not yours to decide. Ask whoever runs this bot."
        assert (await seat.say(more.command, author=BOSS)).text == "Thank you, I go on."
        await seat.settled("m1")
    assert next(post.text for post in seat.posts if post.reply_to == "m1" and not post.choices) == "worth it"
    kinds = [record["kind"] for record in ledger(tmp_path)]
    assert kinds == ["carried", "grant", "reserve", "commit"], (
        "the grant and the reservation came before the call"
    )


async def test_cancelling_ends_the_turn_with_a_friendly_word(tmp_path):
    async with a.FakeAnthropic([]) as fake, serving(tmp_path, settings(fake)) as seat:
        await seat.send("think hard")
        await seat.until(lambda: any(post.choices for post in seat.posts))
        await seat.say(seat.posts[0].choices[1].command, author=BOSS)
        await seat.settled("m1")
    assert seat.texts[-1].startswith(FRIENDLY["budget_exceeded"]) or seat.texts[-2].startswith(
        FRIENDLY["budget_exceeded"]
    )
    assert seat.outcomes["m1"] == "failed"
    assert fake.requests == []


async def test_with_leave_the_asker_may_go_past_the_limit(tmp_path):
    async with a.FakeAnthropic([a.answer(a.Text("fine"))]) as fake:
        given = settings(fake)
        given["budget"] = {**given["budget"], "asker_may_grant": True}
        async with serving(tmp_path, given) as seat:
            await seat.send("think hard")
            await seat.until(lambda: any(post.choices for post in seat.posts))
            await seat.say("/approve 0.50")
            await seat.settled("m1")
    assert seat.outcomes["m1"] == "answered"
    (grant,) = [record for record in ledger(tmp_path) if record["kind"] == "grant"]
    assert (grant["micros"], grant["by"]) == (500_000, ANN.id)


async def test_a_soft_limit_is_only_spoken_of_and_only_once(tmp_path):
    async with a.FakeAnthropic(lambda _: a.answer(a.Text("ok"))) as fake:
        given = settings(fake)
        given["budget"] = {"mode": "soft", "limit_usd": {**given["budget"]["limit_usd"], "day": 0.00001}}
        async with serving(tmp_path, given) as seat:
            first, second = await seat.say("one"), await seat.say("two")
    assert first.text.startswith("($0.0001 of $0.0000 spent for everyone today, more than allowed.)")
    assert second.text == "ok"


async def test_the_footer_tells_what_an_answer_used(tmp_path):
    async with a.FakeAnthropic([a.answer(a.Text("ok"))]) as fake:
        given = settings(fake)
        given["budget"] = {"footer": True}
        async with serving(tmp_path, given) as seat:
            post = await seat.say("hello")
    answer, footer = post.text.split("\n\n")
    assert answer == "ok"
    assert footer == f"({SONNET}: 25 tokens, 28% of the prompt cached, $0.0001)"


async def test_an_unknown_price_is_refused_under_a_hard_budget_and_named_in_the_log(tmp_path, caplog):
    given = {
        "model": "cloud/new-model",
        "providers": compatible("cloud", "https://models.example/v1"),
    }
    async with serving(tmp_path, given) as seat:
        post = await seat.say("hello")
    assert seat.outcomes["m1"] == "failed"
    assert post.text.startswith(PRICE_UNKNOWN)
    assert "price of cloud/new-model is not known" in caplog.text


async def test_usage_is_told_in_the_thread(tmp_path):
    async with a.FakeAnthropic([a.answer(a.Text("ok"))]) as fake, serving(tmp_path, settings(fake)) as seat:
        post = await seat.say("/usage")
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
        async with serving(tmp_path, given) as seat:
            texts = [(await seat.say(f"question {n} " + "why " * 200)).text for n in range(12)]
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
