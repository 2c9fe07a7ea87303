"""What is Anthropic's own: its request, its thinking, its cache and its events. `test_adapters.py` has the rest."""

from dataclasses import replace
from functools import partial

import anyio
import pytest

from bot.extensions.anthropic.messages import AnthropicModel, supports_adaptive_thinking
from bot.ports.errors import ContentPolicy, ModelUnavailable
from bot.ports.model import Usage
from tests.bot.llm.apis import HELLO as HELLOS
from tests.bot.llm.apis import TOOL, UP_TO_SECOND_DELTA, FakeProvider, model_at
from tests.bot.llm.conftest import ask, user
from tests.fakes.anthropic import Raw, Text, Think, Tool, answer, event, ping
from tests.fakes.http import Stall, Wait
from tests.patience import until
from threads.model import Message, ToolCall, ToolResult

HELLO = HELLOS[AnthropicModel]
SHOWN = UP_TO_SECOND_DELTA[AnthropicModel]
HOUR = {"type": "ephemeral", "ttl": "1h"}
CYBER = {"type": "refusal", "category": "cyber"}


@pytest.fixture
def claude(complete):
    return partial(complete, AnthropicModel)


async def test_the_request_carries_system_tools_and_the_cache_marker(claude):
    _, seen = await claude(ask(tools=[TOOL], max_tokens=99, cache_key="t1"))
    assert seen.headers["authorization"] == "Bearer sk-fake"
    assert seen.json == {
        "model": "m",
        "max_tokens": 99,
        "stream": True,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": HOUR}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": HOUR}]}],
        "tools": [{"name": "look", "description": "Looks.", "input_schema": TOOL.parameters}],
    }


async def test_a_call_without_a_cache_key_writes_no_cache(claude):
    _, seen = await claude()
    assert "cache_control" not in str(seen.json)


async def test_a_tool_call_and_its_result_go_back_as_the_api_wants_them(claude):
    calls = Tool("tu_1", "look", {"at": "x"}), Tool("tu_2", "go")
    done, _ = await claude(reply=answer(Think("hm", "c2lnbmVk"), Text("Looking."), *calls))
    assert done.stop == "tool_calls"
    assert done.message.calls == [ToolCall("tu_1", "look", {"at": "x"}), ToolCall("tu_2", "go", {})]
    results = (ToolResult("tu_1", '{"ok":1}'), ToolResult("tu_2", "no", is_error=True))
    _, seen = await claude(ask(user("hi"), done.message, user("and hurry"), Message("user", results)))
    assistant, after = seen.json["messages"][1:]
    assert assistant == {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "c2lnbmVk"},
            {"type": "text", "text": "Looking."},
            {"type": "tool_use", "id": "tu_1", "name": "look", "input": {"at": "x"}},
            {"type": "tool_use", "id": "tu_2", "name": "go", "input": {}},
        ],
    }
    assert after == {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "tu_1", "content": '{"ok":1}', "is_error": False},
            {"type": "tool_result", "tool_use_id": "tu_2", "content": "no", "is_error": True},
            {"type": "text", "text": "and hurry"},
        ],
    }


@pytest.mark.parametrize(
    ("model", "supported"),
    {
        "claude-sonnet-4.6": True,
        "claude-haiku-10-1-20270101": True,
        "anthropic.claude-opus-5-5-v1:0": True,
        "claude-sonnet-4-5-20250929": False,
        "claude-sonnet-4-20250514": False,
    }.items(),
)
def test_only_a_model_that_knows_adaptive_thinking_is_asked_for_it(model, supported):
    assert supports_adaptive_thinking(model) is supported


async def test_thinking_is_asked_for_in_words_that_may_be_shown(claude):
    _, seen = await claude(name="claude-opus-5-5")
    assert seen.json["thinking"] == {"type": "adaptive", "display": "summarized"}
    _, seen = await claude(name="qwen3")
    assert "thinking" not in seen.json


async def test_a_schema_is_sent_as_far_as_the_api_has_words_for_it(claude):
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}
    _, seen = await claude(ask(output_schema=schema))
    sent = seen.json["output_config"]["format"]
    assert sent["type"] == "json_schema"
    assert sent["schema"]["additionalProperties"] is False
    assert "minimum" not in sent["schema"]["properties"]["n"]
    _, seen = await claude(ask(output_schema={"not": {"type": "null"}}))
    assert "output_config" not in seen.json


async def test_blank_arguments_mean_none_and_ready_made_ones_are_taken(claude):
    ready = {"type": "tool_use", "id": "tu_2", "name": "go", "input": {"to": "x"}}
    done, _ = await claude(reply=answer(Tool("tu_1", "look", raw=""), Raw(ready)))
    assert done.message.calls == [ToolCall("tu_1", "look", {}), ToolCall("tu_2", "go", {"to": "x"})]


async def test_a_pause_goes_back_unchanged_with_what_the_server_did(claude):
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
    search = Tool("srvtoolu_1", "web_search", {"query": "x"}, kind="server_tool_use")
    done, _ = await claude(reply=answer(Text("Wait."), search, stop="pause_turn"))
    assert done.stop == "pause"
    _, seen = await claude(ask(user("hi"), done.message))
    assert seen.json["messages"][1]["content"] == [{"type": "text", "text": "Wait."}, use]


async def test_nulls_and_nonsense_do_not_erase_usage_and_later_counts_win(claude):
    reply = answer(
        Text("x"),
        usage={"input_tokens": 10, "cache_read_input_tokens": None, "output_tokens": 1},
        end_usage={"input_tokens": 12, "output_tokens": 40, "cache_creation_input_tokens": None},
    )
    done, _ = await claude(reply=reply)
    assert done.usage == Usage(input=12, output=40)
    nonsense = {"input_tokens": -1, "output_tokens": "7", "cache_creation": 3}
    for end_usage in (nonsense, [7]):
        reply = answer(Text("x"), usage={"input_tokens": 10.0, "output_tokens": 1}, end_usage=end_usage)
        done, _ = await claude(reply=reply)
        assert done.usage == Usage(input=10, output=1)


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
async def test_a_later_message_delta_erases_nothing(claude, more):
    def with_delta(reply):
        return reply.keep(-1, event("message_delta", **more), reply.steps[-1])

    done, _ = await claude(reply=with_delta(answer(Tool("tu_1", "look"))))
    assert (done.stop, len(done.message.calls)) == ("tool_calls", 1)
    assert done.usage == Usage(input=10, output=7, cache_read=5, cache_write=3)
    with pytest.raises(ContentPolicy, match="cyber"):
        await claude(reply=with_delta(answer(Text("x"), stop="refusal", stop_details=CYBER)))


async def test_what_is_written_to_the_cache_for_an_hour_is_counted_apart(claude):
    split = {"ephemeral_1h_input_tokens": 20, "ephemeral_5m_input_tokens": 3}
    usage = {"input_tokens": 1, "cache_creation_input_tokens": 23, "cache_creation": split}
    done, _ = await claude(reply=answer(Text("x"), usage=usage))
    assert done.usage == Usage(input=1, output=7, cache_write=23, cache_write_1h=20)


async def test_an_answer_that_breaks_off_reports_what_it_cost(claude):
    with pytest.raises(ModelUnavailable) as caught:
        await claude(reply=HELLO.keep(SHOWN))
    assert replace(caught.value.usage, hidden=0) == Usage(input=10, output=3, cache_read=5, cache_write=3)


async def test_between_blocks_the_model_may_think_as_long_as_before_the_first(claude):
    resume = anyio.Event()
    steps = answer(Text("Hm."), Tool("tu_1", "look")).steps
    paused = replace(HELLO, steps=(*steps[:7], Wait(resume), *steps[7:]))

    async def later() -> None:
        await anyio.sleep(0.6)
        resume.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(later)
        done, _ = await claude(reply=paused, first_content=5, idle=0.3)
    assert done.stop == "tool_calls"


async def test_what_the_listener_raises_passes_unchanged_and_the_call_is_hung_up(http):
    async def broken(event) -> None:
        raise KeyError("mine")

    async with FakeProvider([HELLO.keep(SHOWN, Stall(ping()))]) as fake:
        with pytest.raises(KeyError, match="mine"):
            await model_at(fake.base_url, AnthropicModel, http).complete(ask(), broken)
        await until(lambda: fake.hung_up)


async def test_half_an_emoji_is_replaced_and_split_ones_are_joined(claude, listener):
    lone = answer(Text("a\ud83d"), Text("\ud83d\ude00", pieces=2), Tool("tu_1", "look", {"x": "\ud83d"}))
    done, seen = await claude(ask(user("b\ude00")), lone)
    assert seen.json["messages"][0]["content"][0]["text"] == "b\ufffd"
    assert [block.text for block in done.message.blocks[:2]] == ["a\ufffd", "\U0001f600"]
    assert done.message.calls[0].arguments == {"x": "\ufffd"}
    listener.text.encode()
