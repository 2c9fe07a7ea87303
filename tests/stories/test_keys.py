"""Several keys of one provider, through whole turns: what the person sees, which key was asked, and what is recorded."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from bot.wording import FRIENDLY
from tests.fakes import anthropic as a
from tests.fakes import openai as o
from tests.fakes.http import Reply, Seen
from tests.serving import anthropic, compatible, serving
from tests.world import ANN, T1
from threads.model import Waiting

KEYS = {f"KEY_{n}": f"sk-ant-canary-{n}-0123456789abcdef" for n in (1, 2, 3)}
FAULTS = {
    "401": lambda: a.fault(401, "authentication_error", "invalid x-api-key"),
    "402": lambda: a.fault(402, "billing_error"),
    "429 with a time": lambda: a.fault(429, "rate_limit_error", retry_after="90"),
    "429": lambda: a.fault(429, "rate_limit_error"),
    "no credit": lambda: a.fault(400, "invalid_request_error", "Your credit balance is too low"),
}


class Claude(a.FakeAnthropic):
    """Counts the requests of each key, and answers each with a fault while it has one."""

    def __init__(self) -> None:
        super().__init__(self.answer)
        self.faults: dict[int, str] = {}
        self.asked = Counter[int]()

    def answer(self, seen: Seen) -> Reply:
        number = int(seen.headers["authorization"].split("-")[3])
        self.asked[number] += 1
        return FAULTS[self.faults[number]]() if number in self.faults else a.answer(a.Text(f"key {number}"))


def settings(url: str, **more: object) -> dict[str, object]:
    entry = anthropic(url, model_map={}, requests_per_minute=None)["anthropic"]
    entry = {name: value for name, value in entry.items() if name != "api_key"}
    keys = [f"env:{name}" for name in KEYS]
    return {
        "model": "anthropic/claude-x",
        "providers": {"anthropic": {**entry, "api_keys": keys, "free": True}},
        **more,
    }


def audit(data) -> list[dict]:
    lines = [line for file in (data / "audit").glob("*.jsonl") for line in file.read_text().splitlines()]
    return [record for record in map(json.loads, lines) if record.get("kind") == "rotation"]


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_key_that_fails_is_replaced_within_the_call_and_the_person_reads_only_the_answer(
    tmp_path, fault
):
    async with Claude() as fake, serving(tmp_path, settings(fake.base_url), environ=KEYS) as chat:
        first = (await chat.say("hello")).text
        own = int(first[-1])
        assert first == f"key {own}"
        assert (await chat.say("again")).text == first, "a thread stays with its key"
        fake.faults[own] = fault
        moved = (await chat.say("and now?")).text
        following = own % 3 + 1
        assert moved == f"key {following}"
        fake.faults.clear()
        assert (await chat.say("still?")).text == moved, "its prompts are in that key's cache now"
    assert fake.asked == {own: 3, following: 2}
    assert not any(isinstance(event, Waiting) for _, event in chat.events)
    [record] = audit(tmp_path)
    assert (record["details"]["from_key"], record["details"]["key"]) == (str(own), str(following))
    everything = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"canary" not in everything


async def test_when_every_key_is_refused_the_next_model_answers_and_says_so(tmp_path):
    async with Claude() as fake, o.FakeOpenAI(lambda _: o.chat_answer(o.Text("from the other"))) as other:
        fake.faults = dict.fromkeys((1, 2, 3), "401")
        given = settings(fake.base_url, fallback_models=["local/x"])
        given["providers"] |= compatible("local", other.base_url)
        async with serving(tmp_path, given, environ=KEYS) as chat:
            text = (await chat.say("hello")).text
            assert (await chat.say("again")).text == text
    assert text == (
        "(local/x answered, because anthropic/claude-x does not accept my key.)\n\nfrom the other"
    )
    assert fake.asked == {1: 1, 2: 1, 3: 1}, "a refused key is not asked again"


async def test_when_every_key_is_refused_and_there_is_no_other_model_the_operator_reads_where_they_are(
    tmp_path,
):
    async with Claude() as fake:
        fake.faults = {1: "401", 2: "402", 3: "401"}
        async with serving(tmp_path, settings(fake.base_url), environ=KEYS) as chat:
            assert (await chat.say("hello")).text.startswith((FRIENDLY["auth"], FRIENDLY["payment"]))
        async with serving(
            tmp_path, settings(fake.base_url, access={"admins": [ANN.id]}), environ=KEYS
        ) as chat:
            chat.sent = 10
            assert "the keys in providers.anthropic.api_keys" in (await chat.say("hello")).text


async def test_one_key_that_is_not_set_keeps_the_model_from_being_used(tmp_path):
    async with Claude() as fake:
        given = settings(fake.base_url, model="offline/demo", models={"anthropic/claude-x": {}})
        async with serving(tmp_path, given, environ={"KEY_1": KEYS["KEY_1"]}) as chat:
            text = (await chat.say("/model anthropic/claude-x", thread=T1)).text
    assert (
        text
        == "anthropic/claude-x cannot be used: its key is not set. Whoever runs this bot needs to set it."
    )
