"""What holds for every API: the same answer, the same request and the same failure become the same for the bot."""

import gc
import time
from codecs import BOM_UTF8

import anyio
import pytest

from bot.extensions.anthropic.messages import AnthropicModel
from bot.extensions.openai.chat import OpenAIChatModel
from bot.extensions.openai.responses import OpenAIResponsesModel
from bot.llm.adapters.http_client import SharedHttp
from bot.ports.errors import (
    CertificateUntrusted,
    ModelTimeout,
    ModelUnavailable,
    ProviderError,
    RateLimited,
    ServerSpeaksHttp,
)
from bot.ports.model import Usage
from tests.bot.llm.apis import (
    ANSWERS,
    HELLO,
    NO_COUNTS,
    TOOL,
    UP_TO_SECOND_DELTA,
    FakeProvider,
    each_api,
    model_at,
)
from tests.bot.llm.conftest import ask, user
from tests.bot.tools.site import certificate
from tests.fakes import anthropic as a
from tests.fakes import openai as o
from tests.fakes.anthropic import Text, Think, Tool
from tests.fakes.http import Stall, error
from tests.patience import WITHIN_S
from threads import model as words
from threads.model import Message, ToolCall, ToolResult

USAGE = Usage(input=10, output=7, cache_read=5, cache_write=3)


@each_api
async def test_text_arrives_in_order_and_the_answer_is_whole(complete, listener, api):
    done, _ = await complete(api)
    assert "".join(listener.heard) == "Hello, world"
    assert done.message == Message("assistant", (words.Text("Hello, world"),), model="p/m")
    assert (done.stop, done.usage) == ("end", USAGE)


@each_api
async def test_forbidden_tools_stay_in_the_prompt(complete, api):
    _, seen = await complete(api, ask(tools=[TOOL], tool_choice="none"))
    assert seen.json["tool_choice"] == ({"type": "none"} if api is AnthropicModel else "none")
    assert len(seen.json["tools"]) == 1
    _, seen = await complete(api, ask(tool_choice="none"))
    assert not {"tools", "tool_choice"} & set(seen.json)


@each_api
@pytest.mark.parametrize("name", ["gpt-4o-mini", "gpt-6.1-sol"])
async def test_a_temperature_goes_only_to_a_model_that_takes_one(complete, api, name):
    _, seen = await complete(api, ask(temperature=0.0), name=name)
    takes = api is OpenAIChatModel or (api is OpenAIResponsesModel and name == "gpt-4o-mini")
    assert seen.json.get("temperature") == (0.0 if takes else None)
    _, seen = await complete(api, name=name)
    assert "temperature" not in seen.json


@each_api
async def test_readable_thinking_is_told_and_empty_thinking_is_not(complete, listener, api):
    await complete(api, reply=ANSWERS[api](Think("hm so"), Think(""), Text("Hi.")))
    assert listener.thoughts == ["hm ", "so"]
    assert listener.text == "Hi."


@each_api
async def test_thinking_of_another_model_is_not_sent(complete, api):
    done, _ = await complete(api, reply=ANSWERS[api](Think("secret", "signed"), Text("Hi.")))
    _, seen = await complete(api, ask(user("a"), done.message, user("b")), name="other")
    assert "secret" not in str(seen.json)
    assert "signed" not in str(seen.json)
    assert "Hi." in str(seen.json)


RAW = ['{"a": ', "[1]", "7", "null", '{"a": 1e999, "a": NaN}', "{} trailing", "\\ud83d", "[" * 100_000, '"x"']


@each_api
@pytest.mark.parametrize("raw", RAW, ids=range(len(RAW)))
async def test_arguments_that_are_not_a_json_object_are_marked_and_never_guessed(complete, api, raw):
    done, _ = await complete(api, reply=ANSWERS[api](Tool("c1", "look", raw=raw)))
    assert done.message.calls == [ToolCall("c1", "look", {}, malformed=raw)]
    result = Message("user", (ToolResult("c1", "bad arguments", is_error=True),))
    _, seen = await complete(api, ask(user("hi"), done.message, result))
    match seen.json:
        case {"input": [_, {"arguments": arguments}, _]}:
            assert arguments == "{}"
        case {"messages": [_, {"content": [{"input": arguments}]}, _]}:
            assert arguments == {}
        case {"messages": [_, _, {"tool_calls": [{"function": {"arguments": arguments}}]}, _]}:
            assert arguments == "{}"
        case _:
            pytest.fail("the call is not in the request")


CUT_OFF = {
    AnthropicModel: {"stop": "max_tokens"},
    OpenAIResponsesModel: {
        "end": o.completed("incomplete", incomplete_details={"reason": "max_output_tokens"})
    },
    OpenAIChatModel: {"finish": "length"},
}


@each_api
async def test_calls_of_an_answer_that_ran_out_of_tokens_are_dropped_and_its_text_is_kept(complete, api):
    done, _ = await complete(api, reply=ANSWERS[api](Text("So"), Tool("c1", "rm"), **CUT_OFF[api]))
    assert (done.stop, done.message.blocks) == ("length", (words.Text("So"),))


async def test_what_json_has_no_number_for_goes_out_as_null(complete):
    _, seen = await complete(OpenAIChatModel, ask(temperature=float("nan")))
    assert seen.json["temperature"] is None


@each_api
async def test_a_byte_order_mark_costs_no_event(complete, api):
    first, *rest = HELLO[api].steps
    done, _ = await complete(api, reply=a.stream(BOM_UTF8 + first, *rest))
    assert done.message.text == "Hello, world"
    assert done.usage == USAGE


def chat_usage(usage):
    return a.stream(o.chunk({"content": "x"}), o.chunk(finish="stop", usage=usage))


USAGE_REPLIES = {
    "messages": (
        AnthropicModel,
        lambda usage: a.answer(Text("x"), usage=usage, end_usage=usage),
        ("input_tokens", "output_tokens", "cache_read_input_tokens"),
    ),
    "responses": (
        OpenAIResponsesModel,
        lambda usage: o.response_answer(Text("x"), end=o.completed(usage=usage)),
        ("input_tokens", "output_tokens", "input_tokens_details"),
    ),
    "chat": (OpenAIChatModel, chat_usage, ("prompt_tokens", "completion_tokens", "prompt_tokens_details")),
}


@pytest.mark.parametrize(("api", "reply", "names"), USAGE_REPLIES.values(), ids=USAGE_REPLIES)
@pytest.mark.parametrize("count", NO_COUNTS, ids=str)
async def test_an_invalid_count_counts_nothing(complete, api, reply, names, count):
    prompt, answer, cached = names
    for details in (count, {"cached_tokens": count}):
        done, _ = await complete(api, reply=reply({prompt: count, answer: 7.0, cached: details}))
        assert done.usage == Usage(output=7)


@each_api
async def test_a_failed_answer_names_its_model_and_its_request(complete, api):
    reply = a.fault(500, "api_error") if api is AnthropicModel else o.fault(500, "server_error")
    with pytest.raises(ModelUnavailable) as caught:
        await complete(api, reply=reply)
    expected = {"provider": "p", "model": "m", "status": 500, "request_id": "req_fake"}
    assert caught.value.fields == expected


@each_api
async def test_inside_text_silence_may_be_shorter_than_before_it(complete, listener, api):
    noise = a.ping() if api is AnthropicModel else b": keep-alive\n\n"
    with anyio.fail_after(WITHIN_S), pytest.raises(ModelTimeout):
        reply = HELLO[api].keep(UP_TO_SECOND_DELTA[api], Stall(noise))
        await complete(api, reply=reply, first_content=30, idle=0.3)
    assert listener.text == "Hello, w"


@each_api
async def test_connections_are_used_again_and_the_key_is_asked_for_at_each_call(http, listener, api):
    async with FakeProvider([HELLO[api]] * 3) as fake:
        keys = iter(["one", "two", "three"])
        model = model_at(fake.base_url, api, http, key=lambda: next(keys))
        for _ in range(3):
            await model.complete(ask(), listener)
    assert fake.connections == 1
    assert [seen.headers["authorization"].split()[1] for seen in fake.requests] == ["one", "two", "three"]


@each_api
async def test_a_proxy_in_the_environment_does_not_stand_between_us_and_loopback(monkeypatch, listener, api):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    own = SharedHttp()
    busy = error(429, {"error": {"message": "busy"}}, [("Retry-After", "7")])
    async with FakeProvider([busy, HELLO[api]]) as fake:
        model = model_at(fake.base_url, api, own)
        with pytest.raises(RateLimited) as raised:
            await model.complete(ask(), listener)
        assert (await model.complete(ask(), listener)).stop == "end"
    assert (raised.value.retry_after, fake.connections) == (7, 1)
    await own.aclose()


@each_api
async def test_a_server_of_ones_own_authority_is_trusted_by_the_file_that_names_it(
    tmp_path, http, listener, api
):
    tls = certificate(tmp_path / "ca.pem")
    own = SharedHttp(tmp_path / "ca.pem")
    async with FakeProvider([HELLO[api]], tls) as fake:
        with pytest.raises(CertificateUntrusted) as raised:
            await model_at(fake.base_url, api, http).complete(ask(), listener)
        assert (await model_at(fake.base_url, api, own).complete(ask(), listener)).stop == "end"
        with pytest.raises(ProviderError):
            await model_at(fake.base_url.replace("https", "http"), api, own).complete(ask(), listener)
    assert not raised.value.retryable
    await own.aclose()


@each_api
async def test_an_address_that_says_https_where_a_server_speaks_http_is_named(http, listener, api):
    async with FakeProvider([HELLO[api]]) as fake:
        with pytest.raises(ServerSpeaksHttp):
            await model_at(fake.base_url.replace("http", "https"), api, http).complete(ask(), listener)


async def test_the_time_that_an_sdk_takes_to_load_is_not_the_model_s_silence(http, listener):
    class Slow(AnthropicModel):
        def _make(self, **settings):
            time.sleep(1.5)
            return super()._make(**settings)

    async with FakeProvider([HELLO[AnthropicModel]]) as fake:
        model = model_at(fake.base_url, Slow, http, first_content=1)
        assert (await model.complete(ask(), listener)).stop == "end"


@each_api
async def test_what_was_prepared_is_not_loaded_again_by_the_first_call(http, listener, api):
    loaded = []

    class Noted(api):
        def _make(self, **settings):
            loaded.append(api)
            return super()._make(**settings)

    async with FakeProvider([HELLO[api]]) as fake:
        model = model_at(fake.base_url, Noted, http)
        await model.prepare()
        assert (loaded, fake.requests) == ([api], [])
        await model.complete(ask(), listener)
    assert loaded == [api]


async def test_the_first_call_leaves_the_garbage_collector_on(complete):
    await complete(AnthropicModel)
    assert gc.isenabled()
