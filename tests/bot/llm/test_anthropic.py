import gc
import subprocess
import sys
from codecs import BOM_UTF8
from dataclasses import replace

import anyio
import pytest

from bot.config.settings import StreamTimeouts
from bot.llm.adapters.anthropic import AnthropicModel, supports_adaptive_thinking
from bot.llm.adapters.http_client import SharedHttp
from bot.ports.errors import (
    ContentPolicy,
    ModelTimeout,
    ModelUnavailable,
)
from bot.ports.model import ToolSpec, Usage
from tests.bot.llm.conftest import NO_COUNTS, ask, user
from tests.fakes.anthropic import (
    FakeAnthropic,
    Raw,
    Text,
    Think,
    Tool,
    answer,
    event,
    ping,
    stream,
)
from tests.fakes.http import Reply, Stall, Wait
from threads import model as words
from threads.model import Message, Thinking, ToolCall, ToolResult

pytestmark = pytest.mark.anyio

HELLO = answer(Text("Hello, world"))
HOUR = {"type": "ephemeral", "ttl": "1h"}
SHOWN = 5
"""Steps of `HELLO` up to the second of its three text deltas."""


def claude(fake, http, *, model="claude-fake", key=lambda: "sk-fake", **limits) -> AnthropicModel:
    timeouts = StreamTimeouts(**limits)
    return AnthropicModel(
        "anthropic", model, api_key=key, base_url=fake.base_url, http=http, timeouts=timeouts
    )


async def test_text_arrives_in_order_and_the_answer_is_whole(http, listener):
    async with FakeAnthropic([HELLO]) as fake:
        model = claude(fake, http)
        done = await model.complete(ask(), listener)
    assert listener.heard == ["Hell", "o, w", "orld"]
    assert done.message == Message("assistant", (words.Text("Hello, world"),), model="anthropic/claude-fake")
    assert done.stop == "end"
    assert done.usage == Usage(input=10, output=7, cache_read=5, cache_write=3)
    assert model.name == "anthropic/claude-fake"


async def test_the_request_carries_system_tools_and_the_cache_marker(http, listener):
    tool = ToolSpec("look", "Looks.", {"type": "object", "properties": {}})
    async with FakeAnthropic([HELLO]) as fake:
        await claude(fake, http).complete(ask(tools=[tool], max_tokens=99, cache_key="t1"), listener)
    seen = fake.requests[0]
    assert seen.headers["authorization"] == "Bearer sk-fake"
    assert seen.json == {
        "model": "claude-fake",
        "max_tokens": 99,
        "stream": True,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": HOUR}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": HOUR}]}],
        "tools": [{"name": "look", "description": "Looks.", "input_schema": tool.parameters}],
    }


async def test_a_call_without_a_cache_key_writes_no_cache(http, listener):
    async with FakeAnthropic([HELLO]) as fake:
        await claude(fake, http).complete(ask(), listener)
    assert "cache_control" not in str(fake.requests[0].json)


async def test_a_tool_call_and_its_result_go_back_as_the_api_wants_them(http, listener):
    first = answer(
        Think("hm", "c2lnbmVk"), Text("Looking."), Tool("tu_1", "look", {"at": "x"}), Tool("tu_2", "go")
    )
    async with FakeAnthropic([first, HELLO]) as fake:
        model = claude(fake, http)
        done = await model.complete(ask(), listener)
        assert done.stop == "tool_calls"
        assert done.message.calls == [ToolCall("tu_1", "look", {"at": "x"}), ToolCall("tu_2", "go", {})]
        results = [
            Message("user", (words.Text("and hurry"),)),
            Message("user", (ToolResult("tu_1", '{"ok":1}'), ToolResult("tu_2", "no", is_error=True))),
        ]
        await model.complete(ask(user("hi"), done.message, *results), listener)
    assert fake.requests[1].json["messages"][1:] == [
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "c2lnbmVk"},
                {"type": "text", "text": "Looking."},
                {"type": "tool_use", "id": "tu_1", "name": "look", "input": {"at": "x"}},
                {"type": "tool_use", "id": "tu_2", "name": "go", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "tu_1", "content": '{"ok":1}', "is_error": False},
                {"type": "tool_result", "tool_use_id": "tu_2", "content": "no", "is_error": True},
                {"type": "text", "text": "and hurry"},
            ],
        },
    ]


async def test_thinking_goes_back_only_to_the_model_that_wrote_it(http, listener):
    redacted = {"type": "redacted_thinking", "data": "xyz"}
    first = answer(Think("", "only a signature"), Raw(redacted), Text("Hi."))
    async with FakeAnthropic([first, HELLO, HELLO]) as fake:
        done = await claude(fake, http).complete(ask(), listener)
        history = ask(user("a"), done.message, user("b"))
        await claude(fake, http).complete(history, listener)
        await claude(fake, http, model="claude-other").complete(history, listener)
    same, other = (seen.json["messages"][1]["content"] for seen in fake.requests[1:])
    thinking = {"type": "thinking", "thinking": "", "signature": "only a signature"}
    assert same == [thinking, redacted, {"type": "text", "text": "Hi."}]
    assert other == [{"type": "text", "text": "Hi."}]


async def test_readable_thinking_is_told_and_empty_thinking_is_not(http, listener):
    async with FakeAnthropic([answer(Think("hm so"), Think(""), Text("Hi."))]) as fake:
        await claude(fake, http).complete(ask(), listener)
    assert listener.thoughts == ["hm ", "so"]
    assert listener.text == "Hi."


@pytest.mark.parametrize(
    ("model", "asked"),
    {
        "claude-opus-4-6": True,
        "claude-sonnet-4.6": True,
        "claude-opus-5-5": True,
        "claude-fable-5-1": True,
        "claude-mythos-5": True,
        "claude-haiku-10-1-20270101": True,
        "anthropic.claude-opus-5-5-v1:0": True,
        "claude-sonnet-4-5-20250929": False,
        "claude-sonnet-4-20250514": False,
        "claude-3-7-sonnet-latest": False,
        "qwen3-coder": False,
    }.items(),
)
def test_only_a_model_that_knows_adaptive_thinking_is_asked_for_it(model, asked):
    assert supports_adaptive_thinking(model) is asked


async def test_thinking_is_asked_for_in_words_that_may_be_shown(http, listener):
    async with FakeAnthropic([HELLO] * 2) as fake:
        await claude(fake, http, model="claude-opus-5-5").complete(ask(), listener)
        await claude(fake, http, model="qwen3").complete(ask(), listener)
    assert fake.requests[0].json["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert "thinking" not in fake.requests[1].json


async def test_forbidden_tools_stay_in_the_prompt_and_a_temperature_is_never_sent(http, listener):
    tool = ToolSpec("look", "Looks.", {"type": "object", "properties": {}})
    async with FakeAnthropic([HELLO] * 2) as fake:
        model = claude(fake, http)
        await model.complete(ask(tools=[tool], tool_choice="none", temperature=0.5), listener)
        await model.complete(ask(tool_choice="none"), listener)
    first, second = (seen.json for seen in fake.requests)
    assert (first["tool_choice"], first["tools"][0]["name"]) == ({"type": "none"}, "look")
    assert "temperature" not in first
    assert not {"tools", "tool_choice"} & set(second)


async def test_a_schema_is_sent_as_far_as_the_api_has_words_for_it(http, listener):
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}
    async with FakeAnthropic([HELLO] * 2) as fake:
        model = claude(fake, http)
        await model.complete(ask(output_schema=schema), listener)
        await model.complete(ask(output_schema={"not": {"type": "null"}}), listener)
    sent = fake.requests[0].json["output_config"]["format"]
    assert sent["type"] == "json_schema"
    assert sent["schema"]["additionalProperties"] is False
    assert "minimum" not in sent["schema"]["properties"]["n"]
    assert "output_config" not in fake.requests[1].json


@pytest.mark.parametrize("raw", ['{"a": ', "[1]", "7", '{"a": NaN}', "{} trailing", "[" * 5000])
async def test_arguments_that_are_no_json_object_are_marked_and_never_guessed(http, listener, raw):
    async with FakeAnthropic([answer(Tool("tu_1", "look", raw=raw)), HELLO]) as fake:
        model = claude(fake, http)
        done = await model.complete(ask(), listener)
        assert done.message.calls == [ToolCall("tu_1", "look", {}, malformed=raw)]
        result = Message("user", (ToolResult("tu_1", "bad arguments", is_error=True),))
        await model.complete(ask(user("hi"), done.message, result), listener)
    assert fake.requests[1].json["messages"][1]["content"][0]["input"] == {}


async def test_blank_arguments_mean_none_and_ready_made_ones_are_taken(http, listener):
    ready = {"type": "tool_use", "id": "tu_2", "name": "go", "input": {"to": "x"}}
    async with FakeAnthropic([answer(Tool("tu_1", "look", raw=""), Raw(ready))]) as fake:
        done = await claude(fake, http).complete(ask(), listener)
    assert done.message.calls == [ToolCall("tu_1", "look", {}), ToolCall("tu_2", "go", {"to": "x"})]


async def test_calls_under_max_tokens_are_dropped_and_the_text_is_kept(http, listener):
    reply = answer(Text("So"), Tool("tu_1", "rm", {"path": "/"}), stop="max_tokens")
    async with FakeAnthropic([reply]) as fake:
        done = await claude(fake, http).complete(ask(), listener)
    assert (done.stop, done.message.blocks) == ("length", (words.Text("So"),))


async def test_a_pause_goes_back_unchanged_with_what_the_server_did(http, listener):
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
    search = Tool("srvtoolu_1", "web_search", {"query": "x"}, kind="server_tool_use")
    async with FakeAnthropic([answer(Text("Wait."), search, stop="pause_turn"), HELLO]) as fake:
        model = claude(fake, http)
        done = await model.complete(ask(), listener)
        assert done.stop == "pause"
        await model.complete(ask(user("hi"), done.message), listener)
    assert fake.requests[1].json["messages"][1]["content"] == [{"type": "text", "text": "Wait."}, use]


async def test_a_refusal_is_content_policy_and_names_its_category(http, listener):
    reply = answer(Tool("tu_1", "rm"), stop="refusal", stop_details={"type": "refusal", "category": "cyber"})
    async with FakeAnthropic([reply]) as fake:
        with pytest.raises(ContentPolicy, match="cyber"):
            await claude(fake, http).complete(ask(), listener)


async def test_nulls_do_not_erase_usage_and_later_counts_win(http, listener):
    reply = answer(
        Text("x"),
        usage={"input_tokens": 10, "cache_read_input_tokens": None, "output_tokens": 1},
        end_usage={"input_tokens": 12, "output_tokens": 40, "cache_creation_input_tokens": None},
    )
    async with FakeAnthropic([reply]) as fake:
        done = await claude(fake, http).complete(ask(), listener)
    assert done.usage == Usage(input=12, output=40)


@pytest.mark.parametrize(
    "more",
    [
        {"delta": {}},
        {"delta": None},
        {},
        {"delta": {"stop_reason": None, "stop_details": None}, "usage": None},
    ],
    ids=["empty", "null", "missing", "of nulls"],
)
async def test_a_later_message_delta_erases_nothing(http, listener, more):
    calls = answer(Tool("tu_1", "look"))
    refused = answer(Text("x"), stop="refusal", stop_details={"type": "refusal", "category": "cyber"})
    replies = [reply.keep(-1, event("message_delta", **more), reply.steps[-1]) for reply in (calls, refused)]
    async with FakeAnthropic(replies) as fake:
        done = await claude(fake, http).complete(ask(), listener)
        with pytest.raises(ContentPolicy, match="cyber"):
            await claude(fake, http).complete(ask(), listener)
    assert (done.stop, len(done.message.calls)) == ("tool_calls", 1)
    assert done.usage == Usage(input=10, output=7, cache_read=5, cache_write=3)


@pytest.mark.parametrize("count", NO_COUNTS, ids=str)
async def test_what_is_no_count_counts_nothing_and_erases_nothing(http, listener, count):
    names = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    nonsense = {**dict.fromkeys(names, count), "cache_creation": count}
    reply = answer(Text("x"), usage={"input_tokens": 10.0, "output_tokens": 1}, end_usage=nonsense)
    async with FakeAnthropic([reply, answer(Text("x"), usage=nonsense, end_usage=[count])]) as fake:
        done = await claude(fake, http).complete(ask(), listener)
        nothing = await claude(fake, http).complete(ask(), listener)
    assert done.usage == Usage(input=10, output=1)
    assert nothing.usage == Usage()


async def test_a_byte_order_mark_costs_no_event(http, listener):
    first, *rest = HELLO.steps
    async with FakeAnthropic([stream(BOM_UTF8 + first, *rest)]) as fake:
        done = await claude(fake, http).complete(ask(), listener)
    assert done.message.text == "Hello, world"
    assert done.usage == Usage(input=10, output=7, cache_read=5, cache_write=3)


async def test_what_is_written_to_the_cache_for_an_hour_is_counted_apart(http, listener):
    split = {"ephemeral_1h_input_tokens": 20, "ephemeral_5m_input_tokens": 3}
    usage = {"input_tokens": 1, "cache_creation_input_tokens": 23, "cache_creation": split}
    async with FakeAnthropic([answer(Text("x"), usage=usage)]) as fake:
        done = await claude(fake, http).complete(ask(), listener)
    assert done.usage == Usage(input=1, output=7, cache_write=23, cache_write_1h=20)


async def test_a_failed_answer_reports_what_it_cost_and_whose_it_was(http, listener):
    async with FakeAnthropic([HELLO.keep(SHOWN)]) as fake:
        with pytest.raises(ModelUnavailable) as caught:
            await claude(fake, http).complete(ask(), listener)
    assert caught.value.fields == {"provider": "anthropic", "model": "claude-fake"}
    assert replace(caught.value.usage, hidden=0) == Usage(input=10, output=3, cache_read=5, cache_write=3)


SILENCE = {
    "before the first event": stream(Stall()),
    "among empty deltas": answer(Think("")).keep(
        3,
        Stall(
            event("content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": ""}),
        ),
    ),
}


@pytest.mark.parametrize("reply", SILENCE.values(), ids=SILENCE)
async def test_a_model_that_says_nothing_is_given_up(http, listener, reply):
    async with FakeAnthropic([reply]) as fake:
        with anyio.fail_after(5), pytest.raises(ModelTimeout) as caught:
            await claude(fake, http, first_content=0.15, idle=30).complete(ask(), listener)
    assert caught.value.fields["provider"] == "anthropic"


async def test_inside_text_silence_may_be_shorter_than_before_it(http, listener):
    async with FakeAnthropic([HELLO.keep(SHOWN, Stall(ping()))]) as fake:
        with anyio.fail_after(5), pytest.raises(ModelTimeout):
            await claude(fake, http, first_content=30, idle=0.3).complete(ask(), listener)
    assert listener.text == "Hello, w"


async def test_between_blocks_the_model_may_think_as_long_as_before_the_first(http, listener):
    go_on = anyio.Event()
    reply = answer(Text("Hm."), Tool("tu_1", "look"))
    paused = Reply((*reply.steps[:7], Wait(go_on), *reply.steps[7:]), headers=reply.headers)
    async with FakeAnthropic([paused]) as fake, anyio.create_task_group() as tasks:

        async def later() -> None:
            await anyio.sleep(0.6)
            go_on.set()

        tasks.start_soon(later)
        done = await claude(fake, http, first_content=5, idle=0.3).complete(ask(), listener)
    assert done.stop == "tool_calls"


async def test_what_the_listener_raises_passes_unchanged_and_the_call_is_hung_up(http):
    async def broken(event) -> None:
        raise KeyError("mine")

    async with FakeAnthropic([HELLO.keep(SHOWN, Stall(ping()))]) as fake:
        with pytest.raises(KeyError, match="mine"):
            await claude(fake, http).complete(ask(), broken)
        await _until(lambda: fake.hung_up == 1)


async def test_connections_are_used_again(http, listener):
    async with FakeAnthropic([HELLO] * 3) as fake:
        model = claude(fake, http)
        for _ in range(3):
            await model.complete(ask(), listener)
    assert fake.connections == 1


async def test_a_proxy_in_the_environment_does_not_stand_between_us_and_loopback(monkeypatch, listener):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    own = SharedHttp()
    async with FakeAnthropic([HELLO]) as fake:
        assert (await claude(fake, own).complete(ask(), listener)).stop == "end"
    await own.aclose()


async def test_the_key_is_asked_for_at_each_call(http, listener):
    keys = iter(["one", "two"])
    async with FakeAnthropic([HELLO] * 2) as fake:
        model = claude(fake, http, key=lambda: next(keys))
        await model.complete(ask(), listener)
        await model.complete(ask(), listener)
    assert [seen.headers["authorization"] for seen in fake.requests] == ["Bearer one", "Bearer two"]


async def test_half_an_emoji_is_replaced_and_split_ones_are_joined(http, listener):
    lone = answer(Text("a\ud83d"), Text("\ud83d\ude00", pieces=2), Tool("tu_1", "look", {"x": "\ud83d"}))
    async with FakeAnthropic([lone]) as fake:
        done = await claude(fake, http).complete(ask(user("b\ude00")), listener)
    assert fake.requests[0].json["messages"][0]["content"][0]["text"] == "b\ufffd"
    assert [block.text for block in done.message.blocks[:2]] == ["a\ufffd", "\U0001f600"]
    assert done.message.calls[0].arguments == {"x": "\ufffd"}
    listener.text.encode()


async def test_trailing_thoughts_of_a_cut_off_answer_are_not_sent_back(http, listener):
    cut_off = Message("assistant", (Thinking("hm", "anthropic/claude-fake", {"type": "thinking"}),))
    async with FakeAnthropic([HELLO]) as fake:
        await claude(fake, http).complete(ask(user("a"), cut_off, user("b")), listener)
    texts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert fake.requests[0].json["messages"] == [{"role": "user", "content": texts}]


async def test_the_first_call_leaves_the_garbage_collector_on(http, listener):
    async with FakeAnthropic([HELLO]) as fake:
        await claude(fake, http).complete(ask(), listener)
    assert gc.isenabled()


def test_importing_the_adapters_imports_no_sdk():
    code = (
        "import sys, bot.llm.adapters.anthropic, bot.llm.adapters.openai, bot.llm.classify, bot.llm.adapters.http_client\n"
        "print(sorted({'anthropic', 'openai', 'httpx2'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout.strip() == "[]"


async def _until(condition) -> None:
    with anyio.fail_after(5):
        while not condition():
            await anyio.sleep(0.005)
