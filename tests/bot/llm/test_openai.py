from codecs import BOM_UTF8

import anyio
import pytest

from bot.config.settings import StreamTimeouts
from bot.llm.adapters.openai import OpenAIChatModel, OpenAIResponsesModel
from bot.llm.adapters.openai_responses import cache_key
from bot.ports.errors import (
    ModelTimeout,
    ModelUnavailable,
)
from bot.ports.model import ToolSpec, Usage
from tests.bot.llm.conftest import NO_COUNTS, ask, user
from tests.fakes.http import Reply, Stall, error
from tests.fakes.openai import (
    FakeOpenAI,
    Raw,
    Text,
    Think,
    Tool,
    chat_answer,
    chunk,
    completed,
    fault,
    response_answer,
    stream,
)
from threads import model as words
from threads.model import Message, ToolCall, ToolResult

pytestmark = pytest.mark.anyio

TOOL = ToolSpec("look", "Looks.", {"type": "object", "properties": {}})
ANSWERS = {OpenAIResponsesModel: response_answer, OpenAIChatModel: chat_answer}
SHOWN = {OpenAIResponsesModel: 5, OpenAIChatModel: 3}
"""Steps of a three-delta text up to its second delta."""

both = pytest.mark.parametrize("kind", [OpenAIResponsesModel, OpenAIChatModel], ids=["responses", "chat"])


def gpt(kind, fake, http, *, model="gpt-fake", key=lambda: "sk-fake", **limits):
    timeouts = StreamTimeouts(**limits)
    return kind("openai", model, api_key=key, base_url=fake.base_url, http=http, timeouts=timeouts)


def hello(kind) -> Reply:
    return ANSWERS[kind](Text("Hello, world"))


@both
async def test_text_arrives_in_order_and_the_answer_is_whole(http, listener, kind):
    async with FakeOpenAI([hello(kind)]) as fake:
        model = gpt(kind, fake, http)
        done = await model.complete(ask(), listener)
    assert listener.heard == ["Hell", "o, w", "orld"]
    assert done.message == Message("assistant", (words.Text("Hello, world"),), model="openai/gpt-fake")
    assert done.stop == "end"
    assert done.usage == Usage(input=10, output=7, cache_read=5, cache_write=3)
    assert model.name == "openai/gpt-fake"


async def test_a_responses_request_stores_nothing_and_names_its_thread(http, listener):
    async with FakeOpenAI([hello(OpenAIResponsesModel)]) as fake:
        model = gpt(OpenAIResponsesModel, fake, http)
        await model.complete(ask(tools=[TOOL], max_tokens=99, cache_key="t1"), listener)
    assert fake.requests[0].path == "/v1/responses"
    assert fake.requests[0].json == {
        "model": "gpt-fake",
        "max_output_tokens": 99,
        "instructions": "Be brief.",
        "input": [{"role": "user", "content": "hi"}],
        "tools": [
            {
                "type": "function",
                "name": "look",
                "description": "Looks.",
                "parameters": TOOL.parameters,
                "strict": False,
            }
        ],
        "prompt_cache_key": "t1",
        "include": ["reasoning.encrypted_content"],
        "store": False,
        "stream": True,
        "stream_options": {"include_obfuscation": False},
    }


async def test_a_model_that_cannot_reason_is_not_asked_for_its_reasoning(http, listener):
    async with FakeOpenAI([hello(OpenAIResponsesModel)]) as fake:
        await gpt(OpenAIResponsesModel, fake, http, model="gpt-4o-mini").complete(ask(), listener)
    assert "include" not in fake.requests[0].json


@both
async def test_forbidden_tools_stay_in_the_prompt(http, listener, kind):
    async with FakeOpenAI([hello(kind)] * 2) as fake:
        model = gpt(kind, fake, http)
        await model.complete(ask(tools=[TOOL], tool_choice="none"), listener)
        await model.complete(ask(tool_choice="none"), listener)
    first, second = (seen.json for seen in fake.requests)
    assert first["tool_choice"] == "none"
    assert len(first["tools"]) == 1
    assert not {"tools", "tool_choice"} & set(second)


@both
@pytest.mark.parametrize("model", ["gpt-4o-mini", "gpt-6.1-sol"])
async def test_a_temperature_goes_to_whoever_takes_one(http, listener, kind, model):
    async with FakeOpenAI([hello(kind)] * 2) as fake:
        await gpt(kind, fake, http, model=model).complete(ask(temperature=0.0), listener)
        await gpt(kind, fake, http, model=model).complete(ask(), listener)
    takes = kind is OpenAIChatModel or model == "gpt-4o-mini"
    assert fake.requests[0].json.get("temperature") == (0.0 if takes else None)
    assert "temperature" not in fake.requests[1].json


@both
async def test_a_schema_is_sent_as_a_hint(http, listener, kind):
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    async with FakeOpenAI([hello(kind)]) as fake:
        await gpt(kind, fake, http).complete(ask(output_schema=schema), listener)
    sent, hint = fake.requests[0].json, {"name": "answer", "schema": schema, "strict": False}
    if kind is OpenAIChatModel:
        assert sent["response_format"] == {"type": "json_schema", "json_schema": hint}
    else:
        assert sent["text"] == {"format": {"type": "json_schema", **hint}}


@both
async def test_readable_thinking_is_told(http, listener, kind):
    async with FakeOpenAI([ANSWERS[kind](Think("hm so"), Text("Hi."))]) as fake:
        await gpt(kind, fake, http).complete(ask(), listener)
    assert listener.thoughts == ["hm ", "so"]
    assert listener.text == "Hi."


async def test_the_phase_of_a_text_goes_back_to_its_model_alone(http, listener):
    part = {"type": "output_text", "text": "Let me see.", "annotations": []}
    said = {"id": "m", "type": "message", "role": "assistant", "phase": "commentary", "content": [part]}
    reply = response_answer(Raw(said), Tool("c1", "look"))
    async with FakeOpenAI([reply] + [hello(OpenAIResponsesModel)] * 2) as fake:
        model, other = (gpt(OpenAIResponsesModel, fake, http, model=name) for name in ("gpt-a", "gpt-b"))
        done = await model.complete(ask(), listener)
        history = ask(user("hi"), done.message, Message("user", (ToolResult("c1", "ok"),)))
        await model.complete(history, listener)
        await other.complete(history, listener)
    same, foreign = (seen.json["input"][1:3] for seen in fake.requests[1:])
    call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
    assert same == [{"role": "assistant", "content": "Let me see.", "phase": "commentary"}, call]
    assert foreign == [{"role": "assistant", "content": "Let me see."}, call]


def test_a_long_cache_key_is_made_to_fit_and_stays_its_own():
    long = "slack:T1:C1:" + "1" * 80
    assert len(cache_key(long)) == 64
    assert cache_key(long) != cache_key(long + "2")
    assert cache_key("short") == "short"


async def test_a_chat_request_keeps_to_the_common_floor_and_needs_no_key(http, listener):
    async with FakeOpenAI([hello(OpenAIChatModel)]) as fake:
        model = gpt(OpenAIChatModel, fake, http, key=lambda: None)
        await model.complete(ask(tools=[TOOL], max_tokens=99, cache_key="t1"), listener)
    assert fake.requests[0].path == "/v1/chat/completions"
    assert fake.requests[0].headers["authorization"] == "Bearer none"
    assert fake.requests[0].json == {
        "model": "gpt-fake",
        "max_tokens": 99,
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
        "tools": [
            {
                "type": "function",
                "function": {"name": "look", "description": "Looks.", "parameters": TOOL.parameters},
            }
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def _round_trip(kind, http, listener, *answer):
    async with FakeOpenAI([ANSWERS[kind](*answer), hello(kind)]) as fake:
        model = gpt(kind, fake, http)
        done = await model.complete(ask(), listener)
        results = [
            Message("user", (words.Text("and hurry"),)),
            Message("user", tuple(ToolResult(call.id, f"did {call.name}") for call in done.message.calls)),
        ]
        await model.complete(ask(user("hi"), done.message, *results), listener)
    return done, fake.requests[1].json


async def test_a_call_its_reasoning_and_its_result_go_back_as_responses_wants_them(http, listener):
    answer = Think("hm", "encrypted"), Text("Looking."), Tool("c1", "look", {"at": "é"}), Tool("c2", "go")
    done, sent = await _round_trip(OpenAIResponsesModel, http, listener, *answer)
    assert done.stop == "tool_calls"
    assert done.message.calls == [ToolCall("c1", "look", {"at": "é"}), ToolCall("c2", "go", {})]
    assert sent["input"][1:] == [
        {
            "id": "rs_0",
            "type": "reasoning",
            "encrypted_content": "encrypted",
            "summary": [{"type": "summary_text", "text": "hm"}],
        },
        {"role": "assistant", "content": "Looking."},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"at":"é"}'},
        {"type": "function_call", "call_id": "c2", "name": "go", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "did look"},
        {"type": "function_call_output", "call_id": "c2", "output": "did go"},
        {"role": "user", "content": "and hurry"},
    ]


async def test_a_call_its_reasoning_and_its_result_go_back_as_chat_wants_them(http, listener):
    answer = Think("hm"), Text("Looking."), Tool("c1", "look", {"at": "é"}), Tool("c2", "go")
    done, sent = await _round_trip(OpenAIChatModel, http, listener, *answer)
    assert done.stop == "tool_calls"
    assert sent["messages"][2:] == [
        {
            "role": "assistant",
            "content": "Looking.",
            "reasoning_content": "hm",
            "tool_calls": [
                {
                    "type": "function",
                    "id": "c1",
                    "function": {"name": "look", "arguments": '{"at":"é"}'},
                },
                {"type": "function", "id": "c2", "function": {"name": "go", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "did look"},
        {"role": "tool", "tool_call_id": "c2", "content": "did go"},
        {"role": "user", "content": "and hurry"},
    ]


@both
async def test_reasoning_of_another_model_is_not_sent(http, listener, kind):
    async with FakeOpenAI([ANSWERS[kind](Think("secret", "enc"), Text("Hi.")), hello(kind)]) as fake:
        done = await gpt(kind, fake, http).complete(ask(), listener)
        other = gpt(kind, fake, http, model="gpt-other")
        await other.complete(ask(user("a"), done.message, user("b")), listener)
    assert "secret" not in str(fake.requests[1].json)
    assert "Hi." in str(fake.requests[1].json)


@both
@pytest.mark.parametrize("raw", ['{"a": ', "[1]", "null", '{"a": Infinity}'])
async def test_arguments_that_are_no_json_object_are_marked_and_never_guessed(http, listener, kind, raw):
    done, sent = await _round_trip(kind, http, listener, Tool("c1", "look", raw=raw))
    assert done.message.calls == [ToolCall("c1", "look", {}, malformed=raw)]
    call = sent["input"][1] if "input" in sent else sent["messages"][2]["tool_calls"][0]["function"]
    assert call["arguments"] == "{}"


async def test_calls_of_servers_that_number_them_all_alike_are_told_apart(http, listener):
    def call(call_id, name, arguments, **where):
        function = {"name": name, "arguments": arguments}
        return chunk({"tool_calls": [{**where, "id": call_id, "function": function}]})

    reply = stream(
        call("a", "look", '{"n":', index=0),
        call(None, None, "1}", index=0),
        call("b", "look", '{"n":2}', index=0),
        call("", "go", "{}", index=1),
        chunk(finish="stop"),
    )
    async with FakeOpenAI([reply]) as fake:
        done = await gpt(OpenAIChatModel, fake, http).complete(ask(), listener)
    assert done.stop == "tool_calls"
    assert done.message.calls == [
        ToolCall("a", "look", {"n": 1}),
        ToolCall("b", "look", {"n": 2}),
        ToolCall("call_3", "go", {}),
    ]


def called(*entries: dict) -> bytes:
    return chunk({"tool_calls": list(entries)})


def entry(name=None, arguments=None, **where) -> dict:
    return {**where, "function": {"name": name, "arguments": arguments}}


ONE, TWO = ("look", {"n": 1}), ("go", {"n": 2})
CALLS = {
    "one list, no ids, no index": ([called(entry("look", '{"n":1}'), entry("go", '{"n":2}'))], [ONE, TWO]),
    "one list, no ids, all 0": (
        [called(entry("look", '{"n":1}', index=0), entry("go", '{"n":2}', index=0))],
        [ONE, TWO],
    ),
    "one list, the same name, arguments later": (
        [called(entry("look", index=0), entry("look", index=0)), called(entry(None, '{"n":1}', index=0))],
        [("look", {}), ONE],
    ),
    "one after the other, no ids, all 0": (
        [called(entry("look", '{"n":1}', index=0)), called(entry("go", '{"n":2}', index=0))],
        [ONE, TWO],
    ),
    "one after the other, no ids, no index": (
        [called(entry("look", '{"n":1}')), called(entry("go", '{"n":2}'))],
        [ONE, TWO],
    ),
    "the same call twice": ([called(entry("look", '{"n":1}')), called(entry("look", '{"n":1}'))], [ONE, ONE]),
    "in pieces, no ids, no index": (
        [
            *(called(entry("look")), called(entry(None, '{"n"')), called(entry(None, ":1}"))),
            *(called(entry("go")), called(entry(None, '{"n":2}'))),
        ],
        [ONE, TWO],
    ),
    "ids without an index, taking turns": (
        [
            called(entry("look", '{"n"', id="a"), entry("go", '{"n"', id="b")),
            called(entry(None, ":1}", id="a"), entry(None, ":2}", id="b")),
        ],
        [ONE, TWO],
    ),
    "an index, taking turns": (
        [
            called(entry("look", '{"n"', id="a", index=0), entry("go", '{"n"', id="b", index=1)),
            called(entry(None, ":1}", index=0), entry(None, ":2}", index=1)),
        ],
        [ONE, TWO],
    ),
    "an index at the head only": (
        [
            called(entry("look", '{"n":1}', id="a", index=0), entry("go", id="b", index=1)),
            called(entry(None, '{"n":2}')),
        ],
        [ONE, TWO],
    ),
    "one id for all": (
        [called(entry("look", '{"n":1}', id="a", index=0), entry("go", '{"n":2}', id="a", index=1))],
        [ONE, TWO],
    ),
    "one id and one index for all": (
        [called(entry("look", '{"n":1}', id="a", index=0)), called(entry("go", '{"n":2}', id="a", index=0))],
        [ONE, TWO],
    ),
    "one id and one name in one list": (
        [called(entry("look", '{"n":1}', id="a"), entry("look", '{"n":1}', id="a"))],
        [ONE, ONE],
    ),
    "id and name said again": (
        [called(entry("look", '{"n"', id="a", index=0)), called(entry("look", ":1}", id="a", index=0))],
        [ONE],
    ),
    "a name said again, no id": (
        [called(entry("look", '{"n"', index=0)), called(entry("look", ":1}", index=0))],
        [ONE],
    ),
    "a name in pieces": (
        [called(entry("lo", index=0)), called(entry("ok", index=0)), called(entry(None, '{"n":1}', index=0))],
        [ONE],
    ),
    "an id that comes late": (
        [called(entry("look", index=0)), called(entry(None, '{"n":1}', index=0, id="a"))],
        [ONE],
    ),
    "arguments as an object": ([called(entry("look", {"n": 1}), entry("go", {"n": 2}))], [ONE, TWO]),
    "ids that are numbers": (
        [called(entry("look", '{"n":', id=0), entry("go", '{"n":2}', id=1)), called(entry(None, "1}", id=0))],
        [ONE, TWO],
    ),
}


@pytest.mark.parametrize(("steps", "expected"), CALLS.values(), ids=CALLS)
async def test_calls_are_told_apart_however_a_server_marks_them(http, listener, steps, expected):
    async with FakeOpenAI([stream(*steps, chunk(finish="tool_calls"))]) as fake:
        done = await gpt(OpenAIChatModel, fake, http).complete(ask(), listener)
    assert [(call.name, call.arguments) for call in done.message.calls] == expected
    assert all(isinstance(call.id, str) and call.id for call in done.message.calls)


async def test_text_in_parts_is_read(http, listener):
    parts = [
        [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}],
        [],
        [{"type": "reference"}],
        "!",
    ]
    reply = stream(*(chunk({"content": part}) for part in parts), chunk(finish="stop"))
    async with FakeOpenAI([reply]) as fake:
        done = await gpt(OpenAIChatModel, fake, http).complete(ask(), listener)
    assert done.message.text == listener.text == "Hello!"


async def test_a_chat_server_that_does_not_stream_is_read_all_the_same(http, listener):
    function = {"name": "look", "arguments": '{"n":1}'}
    calls = [
        {"id": "a", "type": "function", "function": function},
        {"type": "function", "function": function},
    ]
    said = {"role": "assistant", "content": "Hello", "reasoning_content": "hm", "tool_calls": calls}
    choice = {"index": 0, "message": said, "finish_reason": "tool_calls"}
    usage = {"prompt_tokens": 4, "completion_tokens": 2}
    async with FakeOpenAI(
        [error(200, {"object": "chat.completion", "choices": [choice], "usage": usage})]
    ) as fake:
        done = await gpt(OpenAIChatModel, fake, http).complete(ask(), listener)
    assert listener.text == done.message.text == "Hello"
    assert [(call.name, call.arguments) for call in done.message.calls] == [ONE, ONE]
    assert (done.stop, done.usage) == ("tool_calls", Usage(input=4, output=2))


async def test_items_that_were_never_done_are_taken_from_the_whole_response(http, listener):
    item = {"id": "m", "type": "message", "content": [{"type": "output_text", "text": "Hello, world"}]}
    call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"n":1}'}
    whole = response_answer(Text("Hello, world"), end=completed(output=[item, call]))
    undone = stream(*(step for step in whole.steps if b"output_item.done" not in step))
    async with FakeOpenAI([undone, whole]) as fake:
        taken = await gpt(OpenAIResponsesModel, fake, http).complete(ask(), listener)
        done = await gpt(OpenAIResponsesModel, fake, http).complete(ask(), listener)
    assert taken.message.blocks == (words.Text("Hello, world"), ToolCall("c1", "look", {"n": 1}))
    assert taken.stop == "tool_calls"
    assert done.message.blocks == (words.Text("Hello, world"),)


async def test_a_byte_order_mark_costs_no_event(http, listener):
    reply = stream(
        BOM_UTF8 + chunk({"content": "Hello, "}), chunk({"content": "world"}), chunk(finish="stop")
    )
    async with FakeOpenAI([reply]) as fake:
        done = await gpt(OpenAIChatModel, fake, http).complete(ask(), listener)
    assert done.message.text == "Hello, world"


@pytest.mark.parametrize("count", NO_COUNTS, ids=str)
async def test_what_is_no_count_counts_nothing(http, listener, count):
    def usage(prompt, answered):
        return {prompt: count, answered: 7.0, f"{prompt}_details": {"cached_tokens": count}}

    chat = stream(
        chunk({"content": "x"}), chunk(finish="stop", usage=usage("prompt_tokens", "completion_tokens"))
    )
    responses = response_answer(Text("x"), end=completed(usage=usage("input_tokens", "output_tokens")))
    async with FakeOpenAI(
        [chat, responses, response_answer(Text("x"), end=completed(usage=[count]))]
    ) as fake:
        counted = [
            (await gpt(kind, fake, http).complete(ask(), listener)).usage
            for kind in (OpenAIChatModel, OpenAIResponsesModel, OpenAIResponsesModel)
        ]
    assert counted == [Usage(output=7), Usage(output=7), Usage()]


async def test_usage_inside_the_choice_is_read(http, listener):
    choice = {"index": 0, "delta": {}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 4, "completion_tokens": 2}
    end = chunk(choices=[{**choice, "usage": usage}], usage=None)
    async with FakeOpenAI([stream(chunk({"content": "x"}), end)]) as fake:
        done = await gpt(OpenAIChatModel, fake, http).complete(ask(), listener)
    assert done.usage == Usage(input=4, output=2)


CUT_OFF = {
    OpenAIResponsesModel: response_answer(
        Text("So"),
        Tool("c1", "rm"),
        end=completed("incomplete", incomplete_details={"reason": "max_output_tokens"}),
    ),
    OpenAIChatModel: chat_answer(Text("So"), Tool("c1", "rm"), finish="length"),
}


@both
async def test_calls_of_an_answer_that_ran_out_of_tokens_are_dropped(http, listener, kind):
    async with FakeOpenAI([CUT_OFF[kind]]) as fake:
        done = await gpt(kind, fake, http).complete(ask(), listener)
    assert (done.stop, done.message.blocks) == ("length", (words.Text("So"),))


@both
async def test_a_failed_answer_names_its_model_and_its_request(http, listener, kind):
    async with FakeOpenAI([fault(500, "server_error")]) as fake:
        with pytest.raises(ModelUnavailable) as caught:
            await gpt(kind, fake, http).complete(ask(), listener)
    expected = {"provider": "openai", "model": "gpt-fake", "status": 500, "request_id": "req_fake"}
    assert caught.value.fields == expected


@both
@pytest.mark.parametrize("noise", [b"", b": keep-alive\n\n"], ids=["silence", "comments"])
async def test_a_model_that_says_nothing_is_given_up(http, listener, kind, noise):
    async with FakeOpenAI([stream(Stall(noise))]) as fake:
        with anyio.fail_after(5), pytest.raises(ModelTimeout):
            await gpt(kind, fake, http, first_content=0.15).complete(ask(), listener)


@both
async def test_inside_text_silence_may_be_shorter_than_before_it(http, listener, kind):
    reply = hello(kind).keep(SHOWN[kind], Stall(b": keep-alive\n\n"))
    async with FakeOpenAI([reply]) as fake:
        with anyio.fail_after(5), pytest.raises(ModelTimeout):
            await gpt(kind, fake, http, idle=0.3).complete(ask(), listener)
    assert listener.text == "Hello, w"


async def test_usage_inside_other_chunks_and_without_details_is_understood(http, listener):
    usage = {"prompt_tokens": 4, "completion_tokens": 2, "total_tokens": 6, "prompt_tokens_details": None}
    reply = stream(chunk({"content": "x"}, usage=None), chunk(finish="stop", usage=usage))
    async with FakeOpenAI([reply]) as fake:
        done = await gpt(OpenAIChatModel, fake, http).complete(ask(), listener)
    assert done.usage == Usage(input=4, output=2)


@both
async def test_what_is_sent_takes_no_walk_through_the_sdk_s_types(http, listener, monkeypatch, kind):
    """It would take half a millisecond an item, on the event loop; see `SdkModel._post`."""
    monkeypatch.setattr("openai._utils._transform._async_transform_recursive", None)
    async with FakeOpenAI([hello(kind)]) as fake:
        assert (await gpt(kind, fake, http).complete(ask(), listener)).stop == "end"
