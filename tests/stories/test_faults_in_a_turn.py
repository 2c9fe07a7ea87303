"""Every kind of provider fault through a whole turn: what the person saw, and how many requests were made.

Nothing is simulated between the person's message and the provider's socket: settings, actors, gate, retry, SDK, wire.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import anyio
import pytest

from bot.wording import ANSWER_UNREADABLE, API_NOT_FOUND, CALL_AS_TEXT, FRIENDLY, UNREACHABLE
from tests.fakes import anthropic as a
from tests.fakes import openai as o
from tests.fakes.http import Cut, FakeHttp, Reply, Seen, Stall
from tests.fakes.http import error as page
from tests.patience import WITHIN_S
from tests.serving import Chat, anthropic, compatible, openai, serving
from tests.world import T1, T2
from threads.model import Author, Choice, Outgoing, TextReset, ThreadId

CANARY = "canary-7391"
"""Stands in everything that a provider says about a failure: no person may ever read it."""

BACK = "Expect to wait about"


@dataclass(frozen=True)
class Wire:
    """One provider's wire form: its fake, its settings, its model, and how it says things."""

    fake: Callable[..., FakeHttp]
    settings: Callable[..., dict[str, Any]]
    model: str
    says: Callable[[str], Reply]
    fault: Callable[..., Reply]
    codes: dict[str, tuple[int, str]]
    whole_steps: int
    """Steps from the end of an answer that make it whole."""


MESSAGES = Wire(
    a.FakeAnthropic,
    lambda url, **more: anthropic(url, **{"model_map": {}, **more}),
    "anthropic/claude-sonnet-5-5",
    lambda text: a.answer(a.Text(text)),
    a.fault,
    {
        "limited": (429, "rate_limit_error"), "overloaded": (529, "overloaded_error"), "broken": (500, "api_error"),
        "late": (504, "timeout_error"), "key": (401, "authentication_error"), "money": (402, "billing_error"),
        "model": (404, "not_found_error"), "request": (400, "invalid_request_error"),
    },
    2,
)  # fmt: skip
RESPONSES = Wire(
    o.FakeOpenAI,
    openai,
    "openai/gpt-6.1-terra",
    lambda text: o.response_answer(o.Text(text)),
    o.fault,
    {
        "limited": (429, "rate_limit_exceeded"), "overloaded": (503, "server_is_overloaded"),
        "broken": (500, "server_error"), "late": (504, "timeout"), "key": (401, "invalid_api_key"),
        "money": (429, "insufficient_quota"), "model": (404, "model_not_found"), "request": (400, "invalid_value"),
    },
    1,
)  # fmt: skip
CHAT = Wire(
    o.FakeOpenAI,
    lambda url, **more: compatible("gateway", url, **more),
    "gateway/llama",
    lambda text: o.chat_answer(o.Text(text)),
    o.fault,
    RESPONSES.codes,
    3,
)
WIRES = {"messages": MESSAGES, "responses": RESPONSES, "chat": CHAT}


def said(wire: Wire, what: str, text: str = "no", **headers: str) -> Reply:
    status, code = wire.codes[what]
    return wire.fault(status, code, f"{CANARY} {text}", **headers)


PASSING: dict[str, Callable[[Wire], Reply]] = {
    "429": lambda wire: said(wire, "limited"),
    "429 with Retry-After": lambda wire: said(wire, "limited", retry_after="0.01"),
    "overloaded": lambda wire: said(wire, "overloaded"),
    "500": lambda wire: said(wire, "broken"),
    "504": lambda wire: said(wire, "late"),
    "a proxy's page": lambda wire: page(502, f"<html>{CANARY}</html>"),
    "a page with 200": lambda wire: page(200, f"<html>{CANARY}</html>"),
    "garbage": lambda wire: Reply((b"data: {" + CANARY.encode() + b"\n\n",), headers=a.SSE),
    "an empty stream": lambda wire: Reply((), headers=a.SSE),
    "a reset": lambda wire: wire.says("half an answer").keep(3, Cut("rst")),
    "a cut": lambda wire: wire.says("half an answer").keep(3, Cut()),
    "no terminal event": lambda wire: wire.says("half an answer").keep(-wire.whole_steps),
    "a stall": lambda wire: wire.says("half an answer").keep(3, Stall()),
    "a stall behind keep-alives": lambda wire: wire.says("half an answer").keep(3, Stall(b": ping\n\n")),
}
"""What passes: tried again, and the person sees nothing but the answer."""

LASTING: dict[str, tuple[Callable[[Wire], Reply], str]] = {
    "a bad key": (lambda wire: said(wire, "key"), FRIENDLY["auth"]),
    "no money": (lambda wire: said(wire, "money"), FRIENDLY["payment"]),
    "no such model": (lambda wire: said(wire, "model", "model: nope not found"), FRIENDLY["model_not_found"]),
    "a bad request": (lambda wire: said(wire, "request"), FRIENDLY["bad_request"]),
    "too long": (lambda wire: said(wire, "request", "prompt is too long: maximum context length is 7"),
                 "My instructions and tools have about 8"),
    "a wrong address": (lambda wire: page(404, f"<h1>{CANARY}</h1>"), API_NOT_FOUND),
    "an answer in no form": (
        lambda _: Reply((CANARY.encode(),), headers=(("content-type", "text/plain"),)), ANSWER_UNREADABLE
    ),
    "come back in an hour": (lambda wire: said(wire, "limited", retry_after="3600"), FRIENDLY["rate_limited"]),
}  # fmt: skip
"""What does not pass: asked once, and said."""

ELSEWHERE = ThreadId("fake", "W", "C2", "1.0")
PATIENT = {"connect": 5, "first_content": 20, "idle": 20, "total": 60}
QUICK = {"connect": 5, "first_content": 1, "idle": 0.5, "total": 10}


def limits(fault):
    """Return time-outs that only a stall reaches, also on a busy machine."""
    return {"stream_timeouts_s": QUICK if "stall" in fault else PATIENT}


@pytest.mark.parametrize("fault", PASSING)
@pytest.mark.parametrize("name", WIRES)
async def test_what_passes_is_tried_again_and_the_person_sees_the_answer(tmp_path, name, fault):
    wire = WIRES[name]
    async with wire.fake([PASSING[fault](wire), PASSING[fault](wire), wire.says("the answer")]) as fake:
        given = {**limits(fault), "model": wire.model, "providers": wire.settings(fake.base_url)}
        async with serving(tmp_path, given) as chat:
            post = await chat.say("hello")
    assert (post.text, post.kind, chat.outcomes["m1"]) == ("the answer", "reply", "answered")
    assert len(fake.requests) == 3
    assert fake.requests[0].json == fake.requests[2].json, "a retry is the same request"
    assert sum(isinstance(event, TextReset) for _, event in chat.events) >= 2
    assert CANARY not in "".join(chat.texts)


@pytest.mark.parametrize("fault", ["500", "a proxy's page", "a cut", "a stall"])
@pytest.mark.parametrize("name", WIRES)
async def test_what_never_passes_is_told_after_the_last_try(tmp_path, name, fault):
    wire = WIRES[name]
    async with wire.fake(lambda _: PASSING[fault](wire)) as fake:
        given = {**limits(fault), "model": wire.model, "providers": wire.settings(fake.base_url)}
        async with serving(tmp_path, given) as chat:
            post = await chat.say("hello")
            assert len(fake.requests) == 4
            alone = await chat.say("/status")
            await chat.say("hello", thread=ELSEWHERE)
            status = await chat.say("/status")
    assert f"Model: {wire.model}." in alone.text, "what one thread sees may be that thread's"
    assert f"Model: {wire.model} (" in status.text, "the open circuit is told"
    assert post.text.startswith(f"{UNREACHABLE} (ref ")
    assert (post.kind, post.choices) == ("error", (Choice("Try again", "/retry m1"),))
    assert len(fake.requests) == 5, "the circuit opens with the first call of a second thread"
    assert CANARY not in "".join(chat.texts)


@pytest.mark.parametrize("fault", LASTING)
@pytest.mark.parametrize("name", WIRES)
async def test_what_does_not_pass_is_asked_once_and_told(tmp_path, name, fault):
    wire = WIRES[name]
    reply, friendly = LASTING[fault]
    async with wire.fake(lambda _: reply(wire)) as fake:
        given = {**limits(fault), "model": wire.model, "providers": wire.settings(fake.base_url)}
        async with serving(tmp_path, given) as chat:
            post = await chat.say("hello")
    assert post.text.startswith(friendly)
    assert (BACK in post.text) == (fault == "come back in an hour")
    assert post.kind == "error"
    assert len(fake.requests) == 1
    assert CANARY not in "".join(chat.texts)


WRITTEN = f'<tool_call>{{"name": "read", "arguments": {{"path": "{CANARY}"}}}}</tool_call>'
ASKED_ANEW: dict[str, Callable[[Wire], Reply]] = {
    "a call as text": lambda wire: wire.says(WRITTEN),
    "too little room": lambda wire: said(wire, "request", "max_tokens: 8192 > 2048, which is the maximum"),
}


@pytest.mark.parametrize("fault", ASKED_ANEW)
@pytest.mark.parametrize("name", WIRES)
async def test_what_can_be_asked_in_another_way_is_answered_in_the_same_turn(tmp_path, name, fault):
    wire = WIRES[name]
    async with (
        wire.fake([ASKED_ANEW[fault](wire), wire.says("the answer")]) as fake,
        serving(tmp_path, {"model": wire.model, "providers": wire.settings(fake.base_url)}) as chat,
    ):
        post = await chat.say("hello")
    assert (post.text, chat.outcomes["m1"]) == ("the answer", "answered")
    assert len(fake.requests) == 2
    assert CANARY not in "".join(chat.texts)


@pytest.mark.parametrize("name", WIRES)
async def test_a_call_that_stays_text_is_never_made_and_is_told(tmp_path, name):
    wire = WIRES[name]
    async with (
        wire.fake(lambda _: wire.says(WRITTEN)) as fake,
        serving(tmp_path, {"model": wire.model, "providers": wire.settings(fake.base_url)}) as chat,
    ):
        post = await chat.say("hello")
    assert post.text.startswith(CALL_AS_TEXT)
    assert len(fake.requests) == 2


REFUSALS: dict[str, Reply] = {
    "messages": a.answer(a.Text("no"), stop="refusal", stop_details={"type": "refusal", "category": CANARY}),
    "responses": o.response_answer(
        o.Text("no"), end=o.completed("incomplete", incomplete_details={"reason": "content_filter"})
    ),
    "chat": o.chat_answer(o.Text("no"), finish="content_filter"),
}


@pytest.mark.parametrize("name", WIRES)
async def test_a_refusal_is_told_and_goes_to_no_other_model(tmp_path, name):
    wire = WIRES[name]
    async with wire.fake(lambda _: REFUSALS[name]) as fake, a.FakeAnthropic([]) as other:
        providers = {**wire.settings(fake.base_url), **compatible("other", other.base_url)}
        given = {"model": wire.model, "fallback_models": ["other/one"], "providers": providers}
        async with serving(tmp_path, given) as chat:
            post = await chat.say("hello")
    assert post.text.startswith(FRIENDLY["content_policy"])
    assert (len(fake.requests), len(other.requests)) == (1, 0)


FAILS_OVER = {
    "429": "is rate limited", "overloaded": "has trouble", "504": "does not answer in time", "a cut": "cannot be reached",
    "a bad key": "does not accept my key", "no money": "is out of credit",
    "no such model": "is not offered by its provider", "a wrong address": "is not offered by its provider",
}  # fmt: skip


@pytest.mark.parametrize("fault", FAILS_OVER)
@pytest.mark.parametrize("name", ["messages", "responses"])
async def test_another_model_answers_and_the_answer_says_so(tmp_path, name, fault):
    wire = WIRES[name]
    reply = PASSING[fault] if fault in PASSING else LASTING[fault][0]
    async with AsyncExitStack() as stack:
        fake = await stack.enter_async_context(wire.fake(lambda _: reply(wire)))
        other = await stack.enter_async_context(o.FakeOpenAI(lambda _: CHAT.says("from llama")))
        providers = {**wire.settings(fake.base_url), **CHAT.settings(other.base_url)}
        given = {
            **limits(fault),
            "model": wire.model,
            "fallback_models": [CHAT.model],
            "providers": providers,
        }
        async with serving(tmp_path, given) as chat:
            first = await chat.say("hello")
            made = len(fake.requests)
            second = await chat.say("and again", thread=ELSEWHERE)
            asked = len(fake.requests)
            third = await chat.say("once more")
    note = f"({CHAT.model} answered, because {wire.model} {FAILS_OVER[fault]}.)"
    assert first.text == f"{note}\n\nfrom llama"
    assert second.text == third.text == f"{note}\n\nfrom llama"
    retried = fault in {"overloaded", "504", "a cut"}
    assert made == (4 if retried else 1), (
        "a rate limit is handed over after the first, a terminal one at once"
    )
    seen_by_two = retried or fault == "429"
    assert asked == made + seen_by_two, "a second thread has to see what may be one thread's own"
    assert len(fake.requests) == asked, "its circuit is open: the next turn does not ask it again"
    assert len(other.requests) == 3


@pytest.mark.parametrize("name", WIRES)
async def test_empty_answers_of_one_thread_are_asked_once_more_told_and_no_outage_for_another(tmp_path, name):
    wire = WIRES[name]
    empty = {"messages": a.answer(), "responses": o.response_answer(), "chat": o.chat_answer()}[name]

    def script(seen: Seen) -> Reply:
        return wire.says("hello to you") if "healthy" in json.dumps(seen.json) else empty

    async with wire.fake(script) as fake:
        given = {"model": wire.model, "providers": wire.settings(fake.base_url)}
        async with serving(tmp_path, given) as chat:
            posts = [await chat.say("say nothing") for _ in range(4)]
            with anyio.fail_after(WITHIN_S):
                other = await chat.say("healthy?", thread=replace(T1, root="9.9"))
            status = await chat.say("/status")
    assert all(post.text.startswith(f"{FRIENDLY['output_invalid']} (ref ") for post in posts)
    assert posts[0].choices == (Choice("Try again", "/retry m1"),)
    assert other.text == "hello to you"
    assert len(fake.requests) == 9, "asked once more, each of four times"
    assert f"Model: {wire.model}." in status.text


async def test_silence_after_a_tool_call_is_asked_once_more_and_told_in_its_own_words(tmp_path):
    tool = a.answer(a.Tool("t1", "list_files", {"path": "."}), stop="tool_use")
    async with a.FakeAnthropic(
        [tool, a.answer(), a.answer(), tool, a.answer(), a.answer(a.Text("it is empty"))]
    ) as fake:
        given = {"model": MESSAGES.model, "providers": anthropic(fake.base_url)}
        async with serving(tmp_path, given) as chat:
            silent, spoken = await chat.say("what files?"), await chat.say("again?")
    assert silent.text.startswith(FRIENDLY["output_invalid"])
    assert spoken.text == "it is empty"
    assert len(fake.requests) == 6


async def test_a_provider_that_is_back_answers_the_next_message_within_seconds(tmp_path):
    async with a.FakeAnthropic([a.fault(529, "overloaded_error"), a.answer(a.Text("back"))]) as fake:
        given = {
            "model": MESSAGES.model,
            "providers": anthropic(fake.base_url),
            "llm_retry": {"max_retries": 0},
            "breaker": {},
        }
        async with serving(tmp_path, given) as chat:
            failed = await chat.say("hello")
            with anyio.fail_after(WITHIN_S):
                post = await chat.say("/retry m1")
    assert failed.text.startswith(UNREACHABLE)
    assert post.text == "back"


@pytest.mark.parametrize("fault", ["a bad key", "no money"])
async def test_a_refused_account_is_asked_for_no_other_model_and_offers_none(tmp_path, fault):
    async with a.FakeAnthropic(lambda _: LASTING[fault][0](MESSAGES)) as fake:
        providers = anthropic(fake.base_url, model_map={"claude-sonnet-5-5": ["claude-haiku-5-5"]})
        given = {"model": MESSAGES.model, "providers": providers, "failover": {"acknowledge": "ask"}}
        async with serving(tmp_path, given) as chat:
            post = await chat.say("hello")
            listed, chosen = await chat.say("/model"), await chat.say("/model anthropic/claude-haiku-5-5")
    assert post.text.startswith(LASTING[fault][1])
    assert {seen.json["model"] for seen in fake.requests} == {"claude-sonnet-5-5"}
    assert "haiku" not in listed.text
    assert chosen.text == f"I stay with {MESSAGES.model}: anthropic/claude-haiku-5-5 {FAILS_OVER[fault]}."


async def test_nobody_is_given_a_model_that_nobody_configured(tmp_path):
    async with a.FakeAnthropic(lambda _: a.fault(529, "overloaded_error")) as fake:
        given = {"model": MESSAGES.model, "providers": {"anthropic": {"base_url": fake.base_url}}}
        async with serving(tmp_path, given) as chat:
            await chat.say("hello")
    assert {seen.json["model"] for seen in fake.requests} == {"claude-sonnet-5-5"}


async def test_a_downgrade_at_the_same_provider_comes_before_the_fallbacks(tmp_path):
    def script(seen: Seen) -> Reply:
        if seen.json["model"] == "claude-sonnet-5-5":
            return a.fault(429, "rate_limit_error")
        return a.answer(a.Text("from haiku"))

    async with a.FakeAnthropic(script) as fake:
        providers = anthropic(fake.base_url, model_map={"claude-sonnet-5-5": ["claude-haiku-5-5"]})
        async with serving(tmp_path, {"model": MESSAGES.model, "providers": providers}) as chat:
            post = await chat.say("hello")
    assert post.text.endswith("from haiku")
    assert [seen.json["model"] for seen in fake.requests] == ["claude-sonnet-5-5", "claude-haiku-5-5"]


async def test_a_retry_after_stops_the_downgrade_too_and_the_first_model_is_asked_when_it_is_over(tmp_path):
    limited = a.fault(429, "rate_limit_error", retry_after="0.1")
    async with a.FakeAnthropic([limited, a.answer(a.Text("from sonnet"))]) as fake:
        providers = anthropic(fake.base_url, model_map={"claude-sonnet-5-5": ["claude-haiku-5-5"]})
        given = {"model": MESSAGES.model, "providers": providers, "breaker": {"max_wait_s": 5}}
        async with serving(tmp_path, given) as chat:
            post = await chat.say("hello")
    assert post.text == "from sonnet"
    assert {seen.json["model"] for seen in fake.requests} == {"claude-sonnet-5-5"}


async def test_a_broken_tool_call_is_not_run_and_the_model_reads_why(tmp_path):
    broken = a.answer(a.Tool("t1", "list_files", raw='{"path": "'))
    async with a.FakeAnthropic([broken, a.answer(a.Text("sorry"))]) as fake:
        given = {"model": MESSAGES.model, "providers": anthropic(fake.base_url)}
        async with serving(tmp_path, given) as chat:
            post = await chat.say("list")
    assert post.text == "sorry"
    (result,) = fake.requests[1].json["messages"][-1]["content"]
    assert result["is_error"]
    assert "not a JSON object" in result["content"]


OPS = {"channel": "fake:W:OPS"}


def told_to_operators(chat: Chat) -> list[str]:
    return [post.text for post in chat.posts if post.thread.channel == "OPS"]


def reference(post: Outgoing) -> str:
    return re.search(r"\(ref [0-9a-f]{8}\)", post.text)[0]


async def test_all_models_failing_is_told_once_to_whoever_runs_the_bot_with_the_way_to_it(tmp_path):
    async with a.FakeAnthropic(lambda _: said(MESSAGES, "key")) as fake:
        given = {
            "model": MESSAGES.model,
            "providers": anthropic(fake.base_url, model_map={}),
            "escalation": OPS,
        }
        async with serving(tmp_path, given) as chat:
            first = await chat.say("hello")
            await chat.say("hello?")
            await chat.until(lambda: told_to_operators(chat))
    (text,) = told_to_operators(chat)
    what, _, where = text.partition(" It was in ")
    assert (
        what
        == f"I could not answer a message: {MESSAGES.model} does not accept my key. People are told to try again."
    )
    assert where == f"https://chat.example/C1/1.0 {reference(first)}"


@pytest.mark.parametrize("wanted", [True, False])
async def test_what_a_provider_declined_is_told_to_whoever_runs_the_bot_if_they_want_it(tmp_path, wanted):
    async with a.FakeAnthropic(lambda _: REFUSALS["messages"]) as fake:
        given = {
            "model": MESSAGES.model,
            "providers": anthropic(fake.base_url, model_map={}),
            "escalation": {**OPS, "content_policy": wanted},
        }
        async with serving(tmp_path, given) as chat:
            first = await chat.say("how do I do harm?")
            await chat.say("and more of it?")
            other = await chat.say("harm here, too", thread=T2)
            if wanted:
                await chat.until(lambda: len(told_to_operators(chat)) == 2)
    declined = "An AI provider declined to answer a message, because of its content policy. It was in"
    told = [
        f"{declined} https://chat.example/C1/1.0 {reference(first)}",
        f"{declined} https://chat.example/C2/2.0 {reference(other)}",
    ]
    assert told_to_operators(chat) == (told if wanted else []), "once for a thread"


async def test_a_summary_that_fails_is_no_outage_is_told_to_nobody_and_not_tried_again_at_once(tmp_path):
    summaries = 0

    def script(seen: Seen) -> Reply:
        nonlocal summaries
        if "write a summary" in json.dumps(seen.json["messages"][-1]):
            summaries += 1
            return a.fault(500, "api_error")
        return a.answer(a.Text("word"))

    async with a.FakeAnthropic(script) as fake:
        given = {
            "model": MESSAGES.model,
            "providers": anthropic(fake.base_url),
            "models": {MESSAGES.model: {"context_window": 20_000}},
            "compaction": {"threshold": 0.3, "keep_recent_tokens": 1000},
            "escalation": {"channel": "fake:W:OPS"},
            "breaker": {},
        }
        async with serving(tmp_path, given) as chat:
            posts = []
            for n in range(6):
                with anyio.fail_after(WITHIN_S):
                    posts.append(await chat.say(f"question {n} " + "word " * 6000))
            status = await chat.say("/status")
    assert summaries == 4, "one summary, with its retries"
    assert {post.kind for post in posts} == {"reply"}
    assert not any(post.thread.channel == "OPS" for post in chat.posts)
    assert f"Model: {MESSAGES.model}." in status.text


async def test_a_conversation_goes_on_at_another_provider_in_the_middle(tmp_path):
    turns = itertools.count()

    def first(seen: Seen) -> Reply:
        tool = a.Tool("toolu_1|odd", "list_files", {})
        return a.answer(a.Think("hm"), tool) if next(turns) == 0 else a.answer(a.Think("so"), a.Text("none"))

    async with a.FakeAnthropic(first) as claude, o.FakeOpenAI(lambda _: RESPONSES.says("gpt here")) as gpt:
        given = {
            "model": MESSAGES.model,
            "fallback_models": [RESPONSES.model],
            "providers": {**anthropic(claude.base_url), **openai(gpt.base_url)},
        }
        async with serving(tmp_path, given) as chat:
            assert (await chat.say("what files?")).text == "none"
            chosen = await chat.say(f"/model {RESPONSES.model}")
            assert chosen.text == f"From the next message on, {RESPONSES.model} answers in this thread."
            assert (await chat.say("and now?")).text == "gpt here"
        async with serving(tmp_path, given) as chat:
            chat.sent = 10
            assert (await chat.say("still you?")).text == "gpt here"
    items = gpt.requests[0].json["input"]
    kinds = [kind for kind, _ in itertools.groupby(item.get("type", item.get("role")) for item in items)]
    assert kinds == ["user", "function_call", "function_call_output", "assistant", "user"]
    assert len({item["call_id"] for item in items if "call_id" in item}) == 1
    assert "hm" not in json.dumps(items)
    assert len(gpt.requests) == 2, "the choice outlives a restart"


async def test_a_thread_whose_model_lost_its_key_goes_on_with_the_usual_one_and_says_so(tmp_path):
    async with a.FakeAnthropic(lambda _: a.answer(a.Text("claude"))) as claude:
        given = {
            "model": MESSAGES.model,
            "providers": {**anthropic(claude.base_url, model_map={}), **openai("http://127.0.0.1:9/v1")},
            "models": {RESPONSES.model: {}},
        }
        async with serving(tmp_path, given) as chat:
            await chat.say(f"/model {RESPONSES.model}")
        without = {"ANTHROPIC_API_KEY": "sk-ant-test"}
        async with serving(tmp_path, given, environ=without) as chat:
            chat.sent = 10
            post = await chat.say("hello")
    assert post.text == (
        f"({RESPONSES.model}, which this thread chose, cannot be used any more; say /model to choose another one.)"
        "\n\nclaude"
    )


async def test_many_threads_may_choose_at_once(tmp_path):
    given = {
        "model": MESSAGES.model,
        "providers": {**anthropic("http://127.0.0.1:9"), **compatible("b", "http://127.0.0.1:9/v1")},
        "models": {"b/two": {}},
    }
    threads = [replace(T1, root=f"{n}.0") for n in range(12)]
    async with serving(tmp_path, given) as chat:
        async with anyio.create_task_group() as tasks:
            for thread in threads:
                tasks.start_soon(partial(chat.say, "/model b/two", thread=thread))
        assert {(await chat.say("/model", thread=thread)).text.split()[1] for thread in threads} == {"b/two."}


async def test_a_choice_that_will_not_do_is_refused_with_what_is_missing(tmp_path):
    async with a.FakeAnthropic([a.answer(a.Text("still me"))]) as fake:
        given = {
            "model": MESSAGES.model,
            "providers": {**anthropic(fake.base_url), **compatible("old", "http://127.0.0.1:9/v1")},
            "models": {"old/small": {"tools": False}},
        }
        async with serving(tmp_path, given) as chat:
            assert (await chat.say("/model old/small")).text == (
                f"I stay with {MESSAGES.model}: old/small cannot call tools."
            )
            assert (await chat.say("/model old/smal")).text == (
                "I know no model of that name here. Did you mean old/small? /model lists them."
            )
            assert (await chat.say("/model")).text == (
                f"Model: {MESSAGES.model}. Others: old/small. /model NAME takes one of them here. "
                "How much it reasons: /model off | low | medium | high."
            )
            assert (await chat.say("hello")).text == "still me"


async def test_an_admin_reads_which_key_to_mend_and_nobody_else_does(tmp_path):
    async with a.FakeAnthropic([MESSAGES.fault(401, "authentication_error", CANARY)] * 2) as fake:
        given = {"model": MESSAGES.model, "providers": anthropic(fake.base_url), "access": {"admins": ["U9"]}}
        async with serving(tmp_path, given) as chat:
            admin = await chat.say("hello", author=Author("U9", "ann"), thread=T1)
            other = await chat.say("hello", thread=replace(T1, root="other"))
    assert admin.text.startswith(
        "Anthropic does not accept the key in ANTHROPIC_API_KEY. `threadfast init` sets"
    )
    assert other.text.startswith(FRIENDLY["auth"])
    for post in (admin, other):
        assert CANARY not in post.text
        assert "sk-ant-test" not in post.text
    assert "ANTHROPIC_API_KEY" not in other.text
