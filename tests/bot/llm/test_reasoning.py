"""How much a model reasons: what each one takes, and what goes over the wire, before a server that checks it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.extensions.anthropic.messages import AnthropicModel
from bot.extensions.openai.chat import OpenAIChatModel
from bot.extensions.openai.responses import OpenAIResponsesModel
from bot.llm.reasoning import efforts_of, nearest
from bot.ports.effort import EFFORTS
from bot.ports.errors import ReasoningUnsupported
from tests.bot.llm.apis import FakeProvider, model_at
from tests.bot.llm.conftest import ask, user
from tests.fakes import anthropic as a
from tests.fakes import openai as o
from tests.fakes.http import Reply
from threads.model import Message, Text, Thinking, ToolCall, ToolResult

CLAUDES = {
    "claude-3-5-sonnet-latest": "",
    "claude-3-7-sonnet-latest": "off low medium high",
    "claude-haiku-4-5-20251001": "off low medium high",
    "claude-opus-4-6": "off low medium high",
    "claude-opus-4-8": "off low medium high",
    "claude-sonnet-5": "off low medium high",
    "claude-sonnet-5-5": "off low medium high",
    "claude-opus-5-5": "low medium high",
    "claude-fable-5-1": "low medium high",
    "claude-mythos-5": "low medium high",
    "qwen3": "",
}
GPTS = {
    "gpt-4o": "",
    "gpt-5.3-chat-latest": "",
    "o1-mini": "",
    "gpt-5": "low medium high",
    "gpt-5-pro": "high",
    "gpt-5-codex": "low medium high",
    "gpt-5.1": "off low medium high",
    "gpt-5.2-pro": "medium high",
    "gpt-5.5": "off low medium high",
    "gpt-6-astra": "low medium high",
    "gpt-6.1-sol": "off low medium high",
    "o3": "low medium high",
}
TAKEN = [
    *((AnthropicModel, name, effort) for name, takes in CLAUDES.items() for effort in takes.split()),
    *((OpenAIResponsesModel, name, effort) for name in o.EFFORTS for effort in GPTS[name].split()),
]


@pytest.mark.parametrize(
    ("kind", "model", "efforts"),
    [
        *(("anthropic", model, efforts) for model, efforts in CLAUDES.items()),
        *(("openai", model, efforts) for model, efforts in GPTS.items()),
        ("offline", "demo", ""),
        ("openai-compatible", "whatever", "off low medium high"),
    ],
)
def test_each_model_takes_what_its_provider_says(kind, model, efforts):
    assert " ".join(efforts_of(kind, model)) == efforts


@given(st.sampled_from(EFFORTS), st.sets(st.sampled_from(EFFORTS)))
def test_the_nearest_effort_is_the_same_or_more_if_there_is_one_and_else_the_most(effort, takes):
    found = nearest(effort, [*takes])
    rank = EFFORTS.index
    if not takes:
        assert found is None
    else:
        assert found in takes
        higher = [one for one in takes if rank(one) >= rank(effort)]
        assert rank(found) == (min(map(rank, higher)) if higher else max(map(rank, takes)))


def checking(seen) -> Reply:
    """Answer as the provider does: refuse what this model does not take."""
    if seen.path == "/v1/messages":
        return a.thinking_fault(seen.json) or a.answer(a.Think("hm", "c2ln"), a.Text("done"))
    return o.reasoning_fault(seen.json) or o.response_answer(o.Think("hm"), o.Text("done"))


@pytest.mark.parametrize(("api", "name", "effort"), TAKEN)
async def test_what_a_model_takes_is_accepted_by_its_provider(http, listener, api, name, effort):
    async with FakeProvider(checking) as fake:
        request = ask(reasoning=effort, max_tokens=8192, temperature=0.5)
        done = await model_at(fake.base_url, api, http, name).complete(request, listener)
        body = fake.requests[0].json
    assert done.message.text == "done"
    assert listener.text == "done"
    if api is OpenAIResponsesModel:
        assert body["reasoning"] == {"effort": "none" if effort == "off" else effort}
        assert ("temperature" in body) == (effort == "off")
    elif effort == "off":
        assert body.get("thinking", {}).get("type") in (None, "disabled", "between_tools")
        assert "output_config" not in body
    elif body["thinking"]["type"] == "adaptive":
        assert body["output_config"] == {"effort": effort}


@pytest.mark.parametrize(
    ("api", "name", "effort"),
    [(AnthropicModel, "claude-opus-5-5", "off"), (OpenAIResponsesModel, "gpt-5", "off")],
)
async def test_a_refusal_of_it_has_a_type_of_its_own(http, listener, api, name, effort):
    async with FakeProvider(checking) as fake:
        with pytest.raises(ReasoningUnsupported):
            await model_at(fake.base_url, api, http, name).complete(ask(reasoning=effort), listener)


@pytest.mark.parametrize("effort", EFFORTS)
@pytest.mark.parametrize("streams", [True, False], ids=["streaming", "whole"])
async def test_a_compatible_server_is_told_the_effort_and_its_reasoning_is_counted(complete, effort, streams):
    usage = {"prompt_tokens": 18, "completion_tokens": 7, "total_tokens": 125}
    message = {"role": "assistant", "reasoning_content": "hm", "content": "done"}
    if streams:
        end = [o.chunk(finish="stop"), o.chunk(choices=[], usage=usage), o.DONE]
        reply = o.stream(o.chunk(message), *end)
    else:
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        whole = json.dumps({"id": "x", "object": "chat.completion", "choices": [choice], "usage": usage})
        reply = Reply((whole.encode(),), headers=(("content-type", "application/json"),))
    done, seen = await complete(OpenAIChatModel, ask(reasoning=effort), reply)
    assert seen.json["reasoning_effort"] == ("none" if effort == "off" else effort)
    assert done.message.text == "done"
    assert done.usage.output == 107  # 100 of them are in the total only


async def test_nothing_is_said_about_reasoning_unless_it_was_chosen(complete):
    for api in (AnthropicModel, OpenAIResponsesModel, OpenAIChatModel):
        _, seen = await complete(api, ask())
        assert not {"reasoning", "reasoning_effort", "thinking", "output_config"} & seen.json.keys()


OLD = "claude-haiku-4-5"
CALL, RESULT = ToolCall("tu_1", "look", {}), Message("user", (ToolResult("tu_1", "ok"),))
THOUGHT = Thinking("hm", f"p/{OLD}", {"type": "thinking", "thinking": "hm", "signature": "c2ln"})


async def old(http, listener, *messages: Message, max_tokens=8192) -> dict:
    async with FakeProvider(checking) as fake:
        request = ask(*messages, reasoning="high", max_tokens=max_tokens)
        await model_at(fake.base_url, AnthropicModel, http, OLD).complete(request, listener)
        return fake.requests[0].json.get("thinking", {})


async def test_the_budget_of_an_older_model_leaves_room_for_the_answer(http, listener):
    assert await old(http, listener) == {"type": "enabled", "budget_tokens": 6553}
    assert await old(http, listener, max_tokens=1100) == {"type": "enabled", "budget_tokens": 1024}
    assert await old(http, listener, max_tokens=1024) == {}


async def test_an_older_model_thinks_on_within_a_turn_only_if_it_began_so(http, listener):
    thought, silent = Message("assistant", (THOUGHT, CALL)), Message("assistant", (Text("so"), CALL))
    assert await old(http, listener, user("hi"), thought, RESULT)
    assert await old(http, listener, user("hi"), thought, RESULT, silent, RESULT)
    assert await old(http, listener, user("hi"), silent, RESULT) == {}
    assert await old(http, listener, user("hi"), silent, RESULT, silent, RESULT) == {}
    assert await old(
        http, listener, user("hi"), silent, RESULT, Message("assistant", (Text("x"),)), user("and?")
    )


@pytest.mark.parametrize(("model", "effort"), [("claude-opus-5-5", "high"), ("claude-sonnet-5-5", "off")])
async def test_thinking_and_its_signature_go_back_unchanged_whatever_was_chosen(complete, model, effort):
    reply = a.answer(a.Think("hm", "c2lnbmVk"), a.Tool("tu_1", "look"))
    done, _ = await complete(AnthropicModel, ask(reasoning=effort), reply, name=model)
    _, seen = await complete(
        AnthropicModel, ask(user("hi"), done.message, RESULT, reasoning=effort), name=model
    )
    expected = {"type": "thinking", "thinking": "hm", "signature": "c2lnbmVk"}
    assert seen.json["messages"][1]["content"][0] == expected
