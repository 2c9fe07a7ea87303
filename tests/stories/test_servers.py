"""Servers with manners of their own, over the wire: what they refuse is left out once for all, and "too long" goes on."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.fakes import anthropic as a
from tests.fakes import openai as o
from tests.fakes.http import Reply, Seen, error
from tests.serving import anthropic, compatible, serving
from tests.world import T2

ANSWER = o.chat_answer(o.Text("done"))
NO_MAX_TOKENS = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."


def refusing(**refused: str) -> Callable[[Seen], Reply]:
    """Return a server that refuses the first of these parts that a request has, in these words."""

    def server(seen: Seen) -> Reply:
        has = {"system": seen.json["messages"][0]["role"] == "system"}
        for part, words in refused.items():
            if has.get(part, part in seen.json):
                return o.fault(400, None, words, kind="invalid_request_error")
        return ANSWER

    return server


def settings(url: str, **more: object) -> dict[str, object]:
    return {"model": "local/x", "providers": compatible("local", url), "temperature": 0.2, **more}


async def test_all_that_a_server_refuses_costs_one_request_each_in_its_life_and_is_shown(tmp_path):
    server = refusing(
        max_tokens=NO_MAX_TOKENS,
        temperature="invalid temperature: only 1 is allowed for this model",
        stream_options="[{'type': 'extra_forbidden', 'loc': ('body', 'stream_options'), 'msg': 'Extra inputs'}]",
        system="System role not supported",
    )
    async with o.FakeOpenAI(server) as fake:
        async with serving(tmp_path, settings(fake.base_url)) as chat:
            assert (await chat.say("hello")).text == "done"
            assert len(fake.requests) == 5
            assert (await chat.say("again")).text == "done"
            assert (await chat.say("elsewhere", thread=T2)).text == "done"
            assert len(fake.requests) == 7
        async with serving(tmp_path, settings(fake.base_url)) as chat:
            chat.sent = 10
            assert (await chat.say("after a restart")).text == "done"
            told = (await chat.say("/status")).text
        assert len(fake.requests) == 8
        body = fake.requests[-1].json
    assert body.keys().isdisjoint({"max_tokens", "temperature", "stream_options"})
    assert body["max_completion_tokens"] > 0
    assert body["messages"][0]["role"] == "user"
    assert "sent without stream_options, temperature" in told
    assert "with max_completion_tokens in place of max_tokens" in told
    assert "with its instructions in the role user" in told


async def test_each_further_request_is_set_aside_and_settled_like_any_other(tmp_path):
    priced = {"prices": {"local/x": {"input": 1, "output": 1}}, "budget": {"mode": "hard"}}
    server = refusing(max_tokens=NO_MAX_TOKENS, stream_options="Unknown parameter: 'stream_options'.")
    async with o.FakeOpenAI(server) as fake:
        given = settings(fake.base_url, **priced) | {
            "providers": compatible("local", fake.base_url, free=False)
        }
        async with serving(tmp_path, given) as chat:
            assert (await chat.say("hello")).text == "done"
    [ledger] = (tmp_path / "usage").glob("*.jsonl")
    kinds = [json.loads(line)["kind"] for line in ledger.read_text().splitlines()]
    assert kinds.count("reserve") == kinds.count("commit") == len(fake.requests) == 3


async def test_the_settings_decide_in_place_of_what_was_learned(tmp_path):
    server = refusing(stream_options="Unknown parameter: 'stream_options'.")
    async with o.FakeOpenAI(server) as fake:
        async with serving(tmp_path, settings(fake.base_url)) as chat:
            await chat.say("hello")
        fixed = settings(fake.base_url)
        fixed["providers"]["local"]["forms"] = {"stream_options": "sent", "temperature": "none"}
        fake.requests.clear()
        fake.script = lambda _: ANSWER
        async with serving(tmp_path, fixed) as chat:
            chat.sent = 10
            await chat.say("hello")
        fake.script = server
        async with serving(tmp_path, fixed) as chat:
            chat.sent = 20
            told = await chat.say("hello")
    first, *others = fake.requests
    assert "stream_options" in first.json
    assert "temperature" not in first.json
    assert len(others) == 1
    assert "not for your words" in told.text


async def test_a_model_without_tools_answers_without_them_and_says_so_once(tmp_path):
    server = refusing(tools="registry.ollama.ai/library/gemma:2b does not support tools")
    async with o.FakeOpenAI(server) as fake, serving(tmp_path, settings(fake.base_url)) as chat:
        first, second = await chat.say("hello"), await chat.say("again")
    note = "(local/x takes no tools where it runs, so it answers without them. /model lists others.)"
    assert (first.text, second.text) == (f"{note}\n\ndone", "done")
    assert ["tools" in seen.json for seen in fake.requests] == [True, False, False]


async def test_a_server_that_refuses_everything_is_asked_a_bounded_number_of_times(tmp_path):
    names = iter(f"thing_{chr(97 + n)}" for n in range(26))

    def server(_: Seen) -> Reply:
        return o.fault(400, None, f"Unrecognized request argument supplied: {next(names)}")

    async with o.FakeOpenAI(server) as fake, serving(tmp_path, settings(fake.base_url)) as chat:
        assert "not for your words" in (await chat.say("hello")).text
        assert len(fake.requests) < 10
        fake.script = lambda _: ANSWER
        await chat.say("again")
        assert (await chat.say("/status")).text == "Idle; 0 waiting. Model: local/x."


async def test_marks_of_the_cache_are_left_out_where_a_gateway_of_anthropic_refuses_them(tmp_path):
    def gateway(seen: Seen) -> Reply:
        if "cache_control" in json.dumps(seen.json):
            return a.fault(
                400, "invalid_request_error", "system.0.cache_control: Extra inputs are not permitted"
            )
        return a.answer(a.Text("done"))

    given = {"model": "anthropic/claude-sonnet-5-5", "budget": {"mode": "soft"}}
    async with (
        a.FakeAnthropic(gateway) as fake,
        serving(tmp_path, {**given, "providers": anthropic(fake.base_url)}) as chat,
    ):
        assert [(await chat.say(text)).text for text in ("hello", "again")] == ["done", "done"]
    assert len(fake.requests) == 3


LONG = "words " * 3_000


def limited(window: int, say: Callable[[str], Reply]) -> Callable[[Seen], Reply]:
    """Return a server that reads so many characters; it sums up what it is asked to."""

    def server(seen: Seen) -> Reply:
        text = json.dumps(seen.json["messages"])
        if len(text) > window:
            return say("Range of input length should be [1, 30720]")
        written = "a short summary" if "write a summary" in text else "done"
        return o.stream(o.chunk({"content": written}), o.chunk(finish="stop"), o.DONE)  # it counts no tokens

    return server


FORMS: dict[str, Callable[[str], Reply]] = {
    "a status": lambda words: o.fault(400, None, words),
    "an error of a template": lambda words: error(500, {"error": {"message": words}}),
    "JSON with status 200": lambda words: error(200, {"object": "error", "message": words, "code": 400}),
    "an event": lambda words: o.stream(o.data(object="error", message=words, code=400)),
}


@pytest.mark.parametrize("window", [40_000, 12_000])
@pytest.mark.parametrize("say", FORMS.values(), ids=FORMS)
async def test_too_long_in_any_form_is_summed_up_with_ever_less_and_answered_in_the_same_turn(
    tmp_path, say, window
):
    """The smaller window has no room for the recent part of the conversation either."""
    async with (
        o.FakeOpenAI(limited(1_000_000, say)) as fake,
        serving(tmp_path, settings(fake.base_url, tools={"enabled": []})) as chat,
    ):
        for n in range(5):
            await chat.say(f"{n} {LONG}")
        fake.script = limited(window, say)
        fake.requests.clear()
        told = await chat.say("and now?")
    assert told.text.endswith("done")
    assert "I summarised the earlier part of our conversation" in told.text
    sizes = [len(json.dumps(seen.json["messages"])) for seen in fake.requests]
    assert sizes[0] > 90_000
    assert len(sizes) <= 10
    assert sizes[-1] < window


async def test_a_window_that_a_server_names_is_known_from_then_on_to_this_model_at_this_address(tmp_path):
    def named(_: str) -> Reply:
        return o.fault(
            400, None, "The input (9000 tokens) is longer than the model's context length (9000 tokens)."
        )

    async with o.FakeOpenAI(limited(30_000, named)) as fake:
        given = settings(fake.base_url, tools={"enabled": []})
        async with serving(tmp_path, given) as chat:
            for n in range(2):
                await chat.say(f"{n} {LONG[:12_000]}")
            await chat.say(f"2 {LONG[:12_000]}")
        refused = len(fake.requests)
        async with serving(tmp_path, given) as chat:
            chat.sent = 10
            for n in range(4):
                assert (await chat.say(f"{n} {LONG[:12_000]}")).text.endswith("done")
            assert "reads 9,000 tokens at once" in (await chat.say("/status")).text
        after = fake.requests[refused:]
    assert all(len(json.dumps(seen.json["messages"])) <= 30_000 for seen in after)


@pytest.mark.parametrize(
    ("text", "tools", "words"),
    [
        ("hi", ["files", "web_fetch", "memory"], "My instructions and tools have about"),
        (LONG, [], "Your message alone is longer than the model can read at once"),
    ],
)
async def test_a_person_is_asked_only_where_nothing_can_be_left_out_and_told_what_is_too_long(
    tmp_path, text, tools, words
):
    async with (
        o.FakeOpenAI(lambda _: o.fault(400, None, "Prompt exceeds max length")) as fake,
        serving(tmp_path, settings(fake.base_url, tools={"enabled": tools})) as chat,
    ):
        told = await chat.say(text)
        assert words in told.text
        assert told.choices == ()
        assert len(fake.requests) == 1
        fake.script = lambda _: ANSWER
        assert (await chat.say("and now?")).text == "done"


async def test_where_another_model_has_tools_one_without_is_refused_once_and_then_passed_over(tmp_path):
    async with (
        o.FakeOpenAI(refusing(tools="gemma:2b does not support tools")) as without,
        o.FakeOpenAI(lambda _: ANSWER) as other,
        serving(
            tmp_path,
            {
                "model": "local/x",
                "fallback_models": ["other/y"],
                "providers": compatible("local", without.base_url) | compatible("other", other.base_url),
            },
        ) as chat,
    ):
        first, second = await chat.say("hello"), await chat.say("again")
    assert "other/y" in first.text
    assert "local/x cannot call tools" in second.text
    assert [len(fake.requests) for fake in (without, other)] == [1, 2]
