"""A tool call that comes as text is asked for once more, and else told with the server's switch; it is never made."""

import json

import pytest

from bot.extensions.openai.chat import OpenAIChatModel
from bot.llm.policies.written_calls import MARKS, WrittenCallsModel, has_written_call
from bot.ports.errors import CallAsText
from bot.ports.model import ToolSpec
from docs.generate.servers import CALL_MARKS
from tests.bot.llm.apis import FakeProvider, model_at
from tests.bot.llm.conftest import ask
from tests.fakes import openai as o
from threads.model import Message, Text, ToolCall
from threads.wording import explain

GO = ToolSpec("go", "Goes.", {"type": "object"})
CALL = '{"name": "go", "arguments": {"x": 1}}'
WRITTEN = {
    "Hermes": f"<tool_call>\n{CALL}\n</tool_call>",
    "after some words": f"Let me look. <tool_call>{CALL}</tool_call>",
    "Qwen": "<tool_call>\n<function=go>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>",
    "Llama": '<function=go>{"x": 1}</function>',
    "Llama, as JSON": '{"type": "function", "name": "go", "parameters": {"x": 1}}',
    "Llama, as code": "[go(x=1)]",
    "Llama, for Python": "<|python_tag|>go.call(x=1)",
    "Mistral": f"[TOOL_CALLS][{CALL}]",
    "Kimi": "<|tool_calls_section_begin|><|tool_call_begin|>functions.go:0<|tool_call_argument_begin|>{}",
    "DeepSeek": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>go\n```json\n{}\n```",
    "DeepSeek, later": '<｜DSML｜function_calls><｜DSML｜invoke name="go">',
    "MiniMax": '<minimax:tool_call><invoke name="go"></invoke></minimax:tool_call>',
    "gpt-oss": "<|channel|>commentary to=functions.go <|constrain|>json<|message|>{}<|call|>",
    "Gemma": "```tool_code\ngo(x=1)\n```",
    "Phi": f"functools[{CALL}]",
    "JSON in a fence": f"```json\n{CALL}\n```",
    "a list of JSON": f"[{CALL}, {CALL}]",
    "OpenAI's own form": json.dumps({"tool_calls": [{"function": {"name": "go", "arguments": "{}"}}]}),
    "an agent's": '{"action": "go", "action_input": "x"}',
    **{f"a mark, {mark.text}": f"So. {mark.text}go" for mark in CALL_MARKS},
}
NOT_WRITTEN = {
    "words": "I go.",
    "code": f"Models write it so:\n\n```\n<tool_call>{CALL}</tool_call>\n```\n",
    "open code": f"So:\n```\n<tool_call>{CALL}",
    "code in a line": "The mark is `<tool_call>`.",
    "a quoted mark": 'The mark "<tool_call>" begins it.',
    "JSON of another kind": '{"name": "Ada", "arguments": {}}',
    "JSON without arguments": '{"name": "go"}',
    "half of JSON": '{"name": "go", "arguments"',
    "a number": "[1]",
    "another function": "print(1)",
    **{f"{mark.text} in code": f"It is `{mark.text}go`." for mark in CALL_MARKS},
}


def said(text: str) -> Message:
    return Message("assistant", (Text(text),))


@pytest.mark.parametrize("text", WRITTEN.values(), ids=WRITTEN)
def test_a_call_as_text_is_recognised(text):
    assert has_written_call(said(text), {"go"})


@pytest.mark.parametrize("text", NOT_WRITTEN.values(), ids=NOT_WRITTEN)
def test_text_about_calls_is_text(text):
    assert not has_written_call(said(text), {"go"})


def test_every_mark_has_a_place_in_the_catalogue():
    known = [mark.text.lower() for mark in CALL_MARKS]
    assert [mark for mark in MARKS if not any(text.startswith(mark) for text in known)] == []
    assert all(mark.source and mark.models for mark in CALL_MARKS)


def test_beside_a_proper_call_text_is_text():
    message = Message("assistant", (Text(WRITTEN["Hermes"]), ToolCall("c", "go", {})))
    assert not has_written_call(message, {"go"})


async def converse(http, listener, *replies, tools=(GO,)):
    async with FakeProvider(replies) as fake:
        model = WrittenCallsModel(model_at(fake.base_url, OpenAIChatModel, http))
        try:
            return await model.complete(ask(tools=tools), listener), fake.requests
        except CallAsText as error:
            return error, fake.requests


WRITES, CALLS = o.chat_answer(o.Text(WRITTEN["Hermes"])), o.chat_answer(o.Tool("c1", "go", {"x": 1}))


async def test_a_call_as_text_is_asked_for_once_more_and_then_made(http, listener):
    done, requests = await converse(http, listener, WRITES, CALLS)
    assert [(call.name, call.arguments) for call in done.message.calls] == [("go", {"x": 1})]
    assert listener.text == ""
    assert [message["role"] for message in requests[1].json["messages"]] == [
        "system", "user", "assistant", "user",
    ]  # fmt: skip
    assert "proper form" in requests[1].json["messages"][-1]["content"]


async def test_a_call_that_stays_text_is_told_with_the_switch_of_the_server(http, listener):
    failure, requests = await converse(http, listener, WRITES, WRITES)
    assert len(requests) == 2
    assert failure.usage.output == 7
    assert "--enable-auto-tool-choice" in explain(failure, "7f3a")
    assert "go" not in listener.text.split()


async def test_without_tools_text_is_text(http, listener):
    done, requests = await converse(http, listener, WRITES, tools=())
    assert (done.message.text, len(requests)) == (WRITTEN["Hermes"], 1)


ANSWERED = {
    "all among the thoughts": ([{"reasoning_content": "Hello"}, {"content": None}], "", "Hello"),
    "in another field": ([{"reasoning": "Hel"}, {"reasoning": "lo"}], "", "Hello"),
    "after the end of the thought": ([{"reasoning_content": "hm</think>\n\nHello"}], "hm", "Hello"),
    "behind a mark without an end": ([{"content": "<think>Hello"}], "", "Hello"),
    "blank beside it": ([{"reasoning": "Hello"}, {"content": "\n"}], "", "Hello"),
    "in its place": ([{"reasoning": "hm"}, {"content": "Hello"}], "hm", "Hello"),
}


@pytest.mark.parametrize(("deltas", "thought", "text"), ANSWERED.values(), ids=ANSWERED)
async def test_an_answer_among_the_thoughts_is_an_answer(complete, deltas, thought, text):
    reply = o.stream(*(o.chunk(delta) for delta in deltas), o.chunk(finish="stop"))
    done, _ = await complete(OpenAIChatModel, reply=reply)
    assert done.message.text == text
    thoughts = [block.text for block in done.message.blocks if block.type == "thinking"]
    assert "".join(thoughts) == thought


async def test_a_thought_that_ran_out_of_tokens_is_no_answer(complete):
    reply = o.stream(o.chunk({"reasoning_content": "hm"}), o.chunk(finish="length"))
    done, _ = await complete(OpenAIChatModel, reply=reply)
    assert (done.message.text, done.stop) == ("", "length")
