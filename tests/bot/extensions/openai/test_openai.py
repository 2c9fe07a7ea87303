"""What is OpenAI's own, and that of servers like it. `test_adapters.py` has what holds for every API."""

from functools import partial

import pytest

from bot.extensions.openai.chat import OpenAIChatModel
from bot.extensions.openai.responses import OpenAIResponsesModel, cache_key
from bot.ports.model import Usage
from tests.bot.llm.apis import TOOL
from tests.bot.llm.conftest import ask, user
from tests.fakes.http import error
from tests.fakes.openai import Raw, Text, Think, Tool, chat_answer, chunk, completed, response_answer, stream
from threads import model as words
from threads.model import Message, ToolCall, ToolResult

both = pytest.mark.parametrize("api", [OpenAIResponsesModel, OpenAIChatModel], ids=["responses", "chat"])


@pytest.fixture
def responses(complete):
    return partial(complete, OpenAIResponsesModel)


@pytest.fixture
def chat(complete):
    return partial(complete, OpenAIChatModel)


async def test_a_responses_request_stores_nothing_and_names_its_thread(responses):
    _, seen = await responses(ask(tools=[TOOL], max_tokens=99, cache_key="t1"))
    assert seen.path == "/v1/responses"
    look = {"name": "look", "description": "Looks.", "parameters": TOOL.parameters}
    assert seen.json == {
        "model": "m",
        "max_output_tokens": 99,
        "instructions": "Be brief.",
        "input": [{"role": "user", "content": "hi"}],
        "tools": [{"type": "function", **look, "strict": False}],
        "prompt_cache_key": "t1",
        "include": ["reasoning.encrypted_content"],
        "store": False,
        "stream": True,
        "stream_options": {"include_obfuscation": False},
    }


async def test_a_model_that_cannot_reason_is_not_asked_for_its_reasoning(responses):
    _, seen = await responses(name="gpt-4o-mini")
    assert "include" not in seen.json


@both
async def test_a_schema_is_sent_as_a_hint(complete, api):
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    _, seen = await complete(api, ask(output_schema=schema))
    hint = {"name": "answer", "schema": schema, "strict": False}
    if api is OpenAIChatModel:
        assert seen.json["response_format"] == {"type": "json_schema", "json_schema": hint}
    else:
        assert seen.json["text"] == {"format": {"type": "json_schema", **hint}}


async def test_the_phase_of_a_text_goes_back_to_its_model_alone(responses):
    part = {"type": "output_text", "text": "Let me see.", "annotations": []}
    item = {"id": "m", "type": "message", "role": "assistant", "phase": "commentary", "content": [part]}
    done, _ = await responses(reply=response_answer(Raw(item), Tool("c1", "look")))
    history = ask(user("hi"), done.message, Message("user", (ToolResult("c1", "ok"),)))
    call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
    for name, phase in (("m", {"phase": "commentary"}), ("other", {})):
        _, seen = await responses(history, name=name)
        assert seen.json["input"][1:3] == [{"role": "assistant", "content": "Let me see.", **phase}, call]


def test_a_long_cache_key_is_made_to_fit_and_stays_its_own():
    long = "slack:T1:C1:" + "1" * 80
    assert len(cache_key(long)) == 64
    assert cache_key(long) != cache_key(long + "2")
    assert cache_key("short") == "short"


async def test_a_chat_request_keeps_to_the_common_floor_and_needs_no_key(chat):
    _, seen = await chat(ask(tools=[TOOL], max_tokens=99, cache_key="t1"), key=lambda: None)
    assert seen.path == "/v1/chat/completions"
    assert seen.headers["authorization"] == "Bearer none"
    look = {"name": "look", "description": "Looks.", "parameters": TOOL.parameters}
    assert seen.json == {
        "model": "m",
        "max_tokens": 99,
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
        "tools": [{"type": "function", "function": look}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def round_trip(complete, reply):
    """Return an answer with calls, and the request that brings it back with their results."""
    done, _ = await complete(reply=reply)
    results = tuple(ToolResult(call.id, f"did {call.name}") for call in done.message.calls)
    _, seen = await complete(ask(user("hi"), done.message, user("and hurry"), Message("user", results)))
    return done, seen.json


ANSWER = Text("Looking."), Tool("c1", "look", {"at": "é"}), Tool("c2", "go")


async def test_a_call_its_reasoning_and_its_result_go_back_as_responses_wants_them(responses):
    done, sent = await round_trip(responses, response_answer(Think("hm", "encrypted"), *ANSWER))
    assert done.stop == "tool_calls"
    assert done.message.calls == [ToolCall("c1", "look", {"at": "é"}), ToolCall("c2", "go", {})]
    summary = [{"type": "summary_text", "text": "hm"}]
    assert sent["input"][1:] == [
        {"id": "rs_0", "type": "reasoning", "encrypted_content": "encrypted", "summary": summary},
        {"role": "assistant", "content": "Looking."},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"at":"é"}'},
        {"type": "function_call", "call_id": "c2", "name": "go", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "did look"},
        {"type": "function_call_output", "call_id": "c2", "output": "did go"},
        {"role": "user", "content": "and hurry"},
    ]


async def test_a_call_its_reasoning_and_its_result_go_back_as_chat_wants_them(chat):
    done, sent = await round_trip(chat, chat_answer(Think("hm"), *ANSWER))
    assert done.stop == "tool_calls"
    assert sent["messages"][2:] == [
        {
            "role": "assistant",
            "content": "Looking.",
            "reasoning_content": "hm",
            "tool_calls": [
                {"type": "function", "id": "c1", "function": {"name": "look", "arguments": '{"at":"é"}'}},
                {"type": "function", "id": "c2", "function": {"name": "go", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "did look"},
        {"role": "tool", "tool_call_id": "c2", "content": "did go"},
        {"role": "user", "content": "and hurry"},
    ]


def called(*entries: dict) -> bytes:
    return chunk({"tool_calls": list(entries)})


def entry(name=None, arguments=None, **where) -> dict:
    return {**where, "function": {"name": name, "arguments": arguments}}


def look(**where) -> dict:
    return entry("look", '{"n":1}', **where)


def go(**where) -> dict:
    return entry("go", '{"n":2}', **where)


ONE, TWO = ("look", {"n": 1}), ("go", {"n": 2})
LOOK_THEN_GO = {
    "one list, no ids, no index": [[look(), go()]],
    "one list, no ids, all 0": [[look(index=0), go(index=0)]],
    "one after the other, no ids, all 0": [[look(index=0)], [go(index=0)]],
    "one after the other, no ids, no index": [[look()], [go()]],
    "in pieces, no ids, no index": [
        *([entry("look")], [entry(None, '{"n"')], [entry(None, ":1}")]),
        *([entry("go")], [entry(None, '{"n":2}')]),
    ],
    "ids without an index, taking turns": [
        [entry("look", '{"n"', id="a"), entry("go", '{"n"', id="b")],
        [entry(None, ":1}", id="a"), entry(None, ":2}", id="b")],
    ],
    "an index, taking turns": [
        [entry("look", '{"n"', id="a", index=0), entry("go", '{"n"', id="b", index=1)],
        [entry(None, ":1}", index=0), entry(None, ":2}", index=1)],
    ],
    "an index at the head only": [
        [look(id="a", index=0), entry("go", id="b", index=1)],
        [entry(None, '{"n":2}')],
    ],
    "one id for all": [[look(id="a", index=0), go(id="a", index=1)]],
    "one id and one index for all": [[look(id="a", index=0)], [go(id="a", index=0)]],
    "one index for all, in pieces": [
        [entry("look", '{"n":', id="a", index=0)],
        *([entry(None, "1}", id=None, index=0)], [go(id="b", index=0)]),
    ],
    "arguments as an object": [[entry("look", {"n": 1}), entry("go", {"n": 2})]],
    "ids that are numbers": [[entry("look", '{"n":', id=0), go(id=1)], [entry(None, "1}", id=0)]],
}
LOOK = {
    "id and name said again": [
        [entry("look", '{"n"', id="a", index=0)],
        [entry("look", ":1}", id="a", index=0)],
    ],
    "a name said again, no id": [[entry("look", '{"n"', index=0)], [entry("look", ":1}", index=0)]],
    "a name in pieces": [[entry("lo", index=0)], [entry("ok", index=0)], [entry(None, '{"n":1}', index=0)]],
    "an id that comes late": [[entry("look", index=0)], [entry(None, '{"n":1}', index=0, id="a")]],
}
LOOK_TWICE = {
    "the same call twice": [[look()], [look()]],
    "one id and one name in one list": [[look(id="a"), look(id="a")]],
}
CALLS = [
    *(pytest.param(steps, [ONE, TWO], id=name) for name, steps in LOOK_THEN_GO.items()),
    *(pytest.param(steps, [ONE], id=name) for name, steps in LOOK.items()),
    *(pytest.param(steps, [ONE, ONE], id=name) for name, steps in LOOK_TWICE.items()),
    pytest.param(
        [[entry("look", index=0), entry("look", index=0)], [entry(None, '{"n":1}', index=0)]],
        [("look", {}), ONE],
        id="one list, the same name, arguments later",
    ),
]


@pytest.mark.parametrize(("steps", "expected"), CALLS)
async def test_calls_are_told_apart_however_a_server_marks_them(chat, steps, expected):
    done, _ = await chat(reply=stream(*(called(*step) for step in steps), chunk(finish="tool_calls")))
    assert [(call.name, call.arguments) for call in done.message.calls] == expected
    assert all(isinstance(call.id, str) and call.id for call in done.message.calls)


async def test_text_in_parts_is_read(chat, listener):
    parts = [
        [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}],
        [],
        [{"type": "reference"}],
        "!",
    ]
    done, _ = await chat(reply=stream(*(chunk({"content": part}) for part in parts), chunk(finish="stop")))
    assert done.message.text == listener.text == "Hello!"


USED = {"prompt_tokens": 4, "completion_tokens": 2}


async def test_a_chat_server_that_does_not_stream_is_read_all_the_same(chat, listener):
    call = {"type": "function", "function": {"name": "look", "arguments": '{"n":1}'}}
    calls = [{"id": "a", **call}, call]
    message = {"role": "assistant", "content": "Hello", "reasoning_content": "hm", "tool_calls": calls}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    body = {"object": "chat.completion", "choices": [choice], "usage": USED}
    done, _ = await chat(reply=error(200, body))
    assert listener.text == done.message.text == "Hello"
    assert [(call.name, call.arguments) for call in done.message.calls] == [ONE, ONE]
    assert (done.stop, done.usage) == ("tool_calls", Usage(input=4, output=2))


async def test_items_that_were_never_done_are_taken_from_the_whole_response(responses):
    item = {"id": "m", "type": "message", "content": [{"type": "output_text", "text": "Hello, world"}]}
    call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"n":1}'}
    whole = response_answer(Text("Hello, world"), end=completed(output=[item, call]))
    undone = stream(*(step for step in whole.steps if b"output_item.done" not in step))
    taken, _ = await responses(reply=undone)
    assert taken.message.blocks == (words.Text("Hello, world"), ToolCall("c1", "look", {"n": 1}))
    assert taken.stop == "tool_calls"
    done, _ = await responses(reply=whole)
    assert done.message.blocks == (words.Text("Hello, world"),)


LAST = {"index": 0, "delta": {}, "finish_reason": "stop"}


@pytest.mark.parametrize(
    "end",
    [
        chunk(choices=[{**LAST, "usage": USED}], usage=None),
        chunk(finish="stop", usage={**USED, "total_tokens": 6, "prompt_tokens_details": None}),
    ],
    ids=["inside the choice", "in the last chunk, without details"],
)
async def test_usage_is_read_wherever_it_is(chat, end):
    done, _ = await chat(reply=stream(chunk({"content": "x"}, usage=None), end))
    assert done.usage == Usage(input=4, output=2)


@both
async def test_what_is_sent_takes_no_walk_through_the_sdk_s_types(complete, monkeypatch, api):
    """It would take half a millisecond an item, on the event loop; see `SdkModel.complete`."""
    monkeypatch.setattr("openai._utils._transform._async_transform_recursive", None)
    done, _ = await complete(api)
    assert done.stop == "end"
