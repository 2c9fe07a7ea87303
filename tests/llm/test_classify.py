"""The table of failures, row by row: what each provider says, sent by a real server to the real SDK."""

from datetime import UTC, datetime

import anthropic
import anyio
import httpx2
import openai
import pytest

from bot.errors import (
    BadRequest,
    ContentPolicy,
    ContextOverflow,
    ModelConnection,
    ModelNotFound,
    ModelTimeout,
    ModelUnavailable,
    PaymentRequired,
    RateLimited,
    Unauthorized,
    UnknownFailure,
)
from bot.llm.anthropic import AnthropicModel
from bot.llm.classify import MAX_TEXT, Fault, classify, failure_of
from bot.llm.openai import OpenAIChatModel, OpenAIResponsesModel
from bot.llm.stream import StreamTimeouts
from tests.fakes import anthropic as a
from tests.fakes import openai as o
from tests.fakes.http import FakeHttp, Reply, Stall, error
from tests.llm.conftest import ask
from threads.wording import explain

pytestmark = pytest.mark.anyio


class Anything(FakeHttp):
    paths = ("/v1/messages", "/v1/responses", "/v1/chat/completions")


BAD = "invalid_request_error"
ANTHROPIC = {
    "401": (a.fault(401, "authentication_error", "invalid x-api-key"), Unauthorized),
    "403": (a.fault(403, "permission_error"), Unauthorized),
    "402": (a.fault(402, "billing_error"), PaymentRequired),
    "402 linked": (a.fault(402, BAD, code="linked_organization_suspended"), PaymentRequired),
    "400 no credit": (
        a.fault(400, BAD, "Your credit balance is too low to access the Anthropic API."),
        PaymentRequired,
    ),
    "400 spend limit": (
        a.fault(400, BAD, "You have reached your specified workspace API usage limits."),
        PaymentRequired,
    ),
    "400 on hold": (a.fault(400, BAD, code="organization_on_hold"), PaymentRequired),
    "429 enforced": (a.fault(429, "rate_limit_error", code="enforced_spend_limit_reached"), PaymentRequired),
    "429 contract": (a.fault(429, "rate_limit_error", code="contract_spend_limit_reached"), PaymentRequired),
    "429": (a.fault(429, "rate_limit_error"), RateLimited),
    "429 ramp": (a.fault(429, "rate_limit_error", code="ramp_limit_exceeded"), RateLimited),
    "408": (a.fault(408, "timeout_error"), ModelTimeout),
    "504": (a.fault(504, "timeout_error"), ModelTimeout),
    "529": (a.fault(529, "overloaded_error"), ModelUnavailable),
    "503": (a.fault(503, "overloaded_error"), ModelUnavailable),
    "500": (a.fault(500, "api_error"), ModelUnavailable),
    "502 page": (error(502, "<html>Bad Gateway</html>"), ModelUnavailable),
    "409": (a.fault(409, "conflict_error"), ModelUnavailable),
    "404 model": (a.fault(404, "not_found_error", "model: claude-2"), ModelNotFound),
    "404 path": (a.fault(404, "not_found_error", "Not Found"), BadRequest),
    "400 too long": (
        a.fault(400, BAD, "prompt is too long: 213462 tokens > 200000 maximum"),
        ContextOverflow,
    ),
    "400 too long with max_tokens": (
        a.fault(400, BAD, "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"),
        ContextOverflow,
    ),
    "413": (a.fault(413, "request_too_large"), ContextOverflow),
    "413 page": (error(413, "<html>Request Entity Too Large</html>"), ContextOverflow),
    "400": (a.fault(400, BAD, "messages.0: nonsense"), BadRequest),
    "400 image": (a.fault(400, BAD, code="image_dimensions_too_large"), BadRequest),
    "400 thinking": (a.fault(400, BAD, "The block is bound to a different conversation"), BadRequest),
    "422": (a.fault(422, BAD), BadRequest),
    "499": (a.fault(499, "client_closed_request"), ModelConnection),
    "redirect": (Reply((), 307, (("location", "http://127.0.0.1:1/"),)), BadRequest),
}
OPENAI = {
    "401": (o.fault(401, "invalid_api_key"), Unauthorized),
    "403": (o.fault(403, "unsupported_country_region_territory"), Unauthorized),
    "429 quota": (o.fault(429, "insufficient_quota"), PaymentRequired),
    "429 quota by type": (o.fault(429, None, kind="insufficient_quota"), PaymentRequired),
    "429 credit": (o.fault(429, "credit_balance_exhausted"), PaymentRequired),
    "429 organization": (o.fault(429, "organization_spend_limit_exceeded"), PaymentRequired),
    "429 project": (o.fault(429, "project_spend_limit_exceeded"), PaymentRequired),
    "429 usage": (o.fault(429, "organization_usage_limit_exceeded"), PaymentRequired),
    "429 hard limit": (o.fault(429, "billing_hard_limit_reached"), PaymentRequired),
    "402 DeepSeek": (o.fault(402, None, "Insufficient Balance"), PaymentRequired),
    "429 Moonshot": (o.fault(429, None, kind="exceeded_current_quota_error"), PaymentRequired),
    "429": (o.fault(429, "rate_limit_exceeded"), RateLimited),
    "429 slow": (o.fault(429, "slow_down"), RateLimited),
    "429 tokens a minute": (
        o.fault(429, "rate_limit_exceeded", "Request too large: too many tokens per min"),
        RateLimited,
    ),
    "408": (o.fault(408, None), ModelTimeout),
    "504 page": (error(504, "<html>Gateway Timeout</html>"), ModelTimeout),
    "500": (o.fault(500, "server_error"), ModelUnavailable),
    "503": (o.fault(503, "server_is_overloaded"), ModelUnavailable),
    "502 page": (error(502, "<html>Bad Gateway</html>"), ModelUnavailable),
    "404 model": (o.fault(404, "model_not_found"), ModelNotFound),
    "403 model": (o.fault(403, "model_not_found"), ModelNotFound),
    "404 Ollama": (o.fault(404, None, "model 'llama9.2' not found"), ModelNotFound),
    "404 vLLM": (
        error(404, {"object": "error", "message": "The model `x.1` does not exist.", "code": 404}),
        ModelNotFound,
    ),
    "400 model": (o.fault(400, None, "The requested model 'gpt-9.9' does not exist."), ModelNotFound),
    "404 path": (error(404, "404 page not found"), BadRequest),
    "400 overflow": (o.fault(400, "context_length_exceeded"), ContextOverflow),
    "400 vLLM": (
        error(400, {"message": "This model's maximum context length is 4096 tokens.", "code": 400}),
        ContextOverflow,
    ),
    "400 llama.cpp": (o.fault(400, None, kind="exceed_context_size_error"), ContextOverflow),
    "400 Gemini": (
        error(
            400,
            [{"error": {"code": 400, "message": "The input token count (2) exceeds the maximum number"}}],
        ),
        ContextOverflow,
    ),
    "400 Groq": (o.fault(400, None, "Please reduce the length of the messages"), ContextOverflow),
    "400 xAI": (o.fault(400, None, "This model's maximum prompt length is 131072"), ContextOverflow),
    "400 Cerebras": (error(400, ""), ContextOverflow),
    "413 nginx": (error(413, "<html>Request Entity Too Large</html>"), ContextOverflow),
    "400 filter": (o.fault(400, "content_filter"), ContentPolicy),
    "400 policy": (o.fault(400, "content_policy_violation"), ContentPolicy),
    "400 prompt": (o.fault(400, "invalid_prompt"), ContentPolicy),
    "400": (o.fault(400, "invalid_value", "max_tokens is too large"), BadRequest),
    "422": (error(422, {"detail": "Extra inputs are not permitted"}), BadRequest),
    "409": (o.fault(409, None), ModelUnavailable),
}
ROWS = [
    pytest.param(kind, reply, expected, id=f"{kind.__name__}: {name}")
    for kind, rows in ((AnthropicModel, ANTHROPIC), (OpenAIResponsesModel, OPENAI), (OpenAIChatModel, OPENAI))
    for name, (reply, expected) in rows.items()
]


async def failure(http, kind, reply, *, now=None, base_url=None, key="sk-canary"):
    async def deaf(event) -> None: ...

    async with Anything([reply]) as fake:
        url = base_url or fake.base_url + ("" if kind is AnthropicModel else "/v1")
        model = kind(
            "p", "m", api_key=lambda: key, base_url=url, http=http, timeouts=StreamTimeouts(), now=now
        )
        with pytest.raises(Exception) as caught:
            await model.complete(ask(), deaf)
    return caught.value


@pytest.mark.parametrize(("kind", "reply", "expected"), ROWS)
async def test_every_row_of_the_table_has_its_type(http, kind, reply, expected):
    error = await failure(http, kind, reply)
    assert type(error) is expected
    assert error.fields["provider"] == "p"
    assert error.fields["status"] == reply.status
    assert error.__cause__ is not None


@pytest.mark.parametrize("kind", [AnthropicModel, OpenAIResponsesModel, OpenAIChatModel])
async def test_a_provider_s_words_never_reach_a_person(http, kind):
    error = await failure(http, kind, o.fault(400, "x", "canary in the payload"))
    assert "canary" in str(error)
    assert "canary" not in explain(error, "7f3a")


NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
RETRY_AFTER = {
    "seconds": ([("retry-after", "7")], 7),
    "a float": ([("retry-after", "0.5")], 0.5),
    "milliseconds": ([("retry-after-ms", "1500"), ("retry-after", "9")], 1.5),
    "a date": ([("retry-after", "Sat, 21 Nov 2026 12:02:00 GMT")], 120),
    "a date, by the server's clock": (
        [("retry-after", "Sat, 21 Nov 2026 13:02:00 GMT"), ("date", "Sat, 21 Nov 2026 13:00:00 GMT")],
        120,
    ),
    "the past": ([("retry-after", "Sat, 21 Nov 2026 11:00:00 GMT")], 0),
    "a minus": ([("retry-after", "-3")], 0),
    "nonsense": ([("retry-after", "soon")], None),
    "no number": ([("retry-after", "nan")], None),
    "nothing": ([], None),
}


@pytest.mark.parametrize(("headers", "seconds"), RETRY_AFTER.values(), ids=RETRY_AFTER)
@pytest.mark.parametrize("kind", [AnthropicModel, OpenAIChatModel])
async def test_the_provider_s_word_on_waiting_is_understood(http, kind, headers, seconds):
    caught = await failure(http, kind, error(429, {}, headers), now=lambda: NOW)
    assert type(caught) is RateLimited
    assert caught.retry_after == seconds
    assert caught.fields.get("retry_after") == seconds


def test_a_spend_limit_that_names_its_end_says_how_long_to_wait():
    text = (
        "You have reached your specified API usage limits. You will regain access on 2026-11-22 at 00:00 UTC."
    )
    assert failure_of(Fault(text, {}, 400), NOW).retry_after == 12 * 3600
    assert failure_of(Fault(text, {}, 400)).retry_after is None
    assert failure_of(Fault(text.replace("11-22", "19-99"), {}, 400), NOW).retry_after is None


def test_a_local_server_that_loads_its_model_is_asked_again_soon():
    failed = failure_of(Fault("Loading model", {"error": {"code": 503}}, 503))
    assert (type(failed), failed.retry_after) == (ModelUnavailable, 5)


@pytest.mark.parametrize("kind", [AnthropicModel, OpenAIResponsesModel])
async def test_x_should_retry_false_is_the_last_word(http, kind):
    assert not (await failure(http, kind, error(500, {}, [("x-should-retry", "false")]))).retryable
    assert (await failure(http, kind, error(500, {}, [("x-should-retry", "true")]))).retryable
    assert (await failure(http, kind, error(500, {}))).retryable


@pytest.mark.parametrize("kind", [AnthropicModel, OpenAIResponsesModel, OpenAIChatModel])
async def test_a_refused_connection_and_a_useless_address_are_told_apart(http, kind):
    refused = await failure(http, kind, Reply(), base_url="http://127.0.0.1:1")
    assert (type(refused), refused.local) == (ModelConnection, False)
    assert type(await failure(http, kind, Reply(), base_url="ftp://127.0.0.1")) is BadRequest


@pytest.mark.parametrize("key", [None, "", " ", "sk-canary\nX: y", "sk-canáry"])
@pytest.mark.parametrize("kind", [AnthropicModel, OpenAIResponsesModel])
async def test_a_key_that_cannot_be_sent_is_unauthorized_and_not_shown(http, kind, key):
    error = await failure(http, kind, Reply(), key=key)
    assert type(error) is Unauthorized
    assert error.fields == {"provider": "p", "model": "m"}
    assert "can" not in str(error).replace("can hold", "")
    assert error.__cause__ is None


async def test_the_sdks_own_word_on_a_missing_key_is_unauthorized(monkeypatch, http, tmp_path):
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(openai.OpenAIError) as missing:
        openai.AsyncOpenAI(http_client=http())
    assert type(classify(missing.value)) is Unauthorized
    claude = anthropic.AsyncAnthropic(http_client=http(), base_url="http://127.0.0.1:1")
    with pytest.raises(TypeError) as missing:
        await claude.messages.create(max_tokens=1, messages=[], model="m")
    assert type(classify(missing.value)) is Unauthorized


async def test_our_own_full_pool_is_not_the_provider_s_fault():
    limits = httpx2.Limits(max_connections=1)
    timeout = httpx2.Timeout(5, pool=0.05)
    async with Anything([a.stream(Stall())]) as fake, httpx2.AsyncClient(limits=limits) as client:
        common = {"api_key": "k", "base_url": fake.base_url, "http_client": client, "timeout": timeout}
        claude = anthropic.AsyncAnthropic(**common, max_retries=0)
        gpt = openai.AsyncOpenAI(**common, max_retries=0)
        messages = [{"role": "user", "content": "hi"}]
        stream = await claude.messages.create(max_tokens=1, messages=messages, model="m", stream=True)
        async with stream:
            for call in (
                claude.messages.create(max_tokens=1, messages=messages, model="m"),
                gpt.chat.completions.create(messages=messages, model="m"),
            ):
                with pytest.raises(Exception) as caught:
                    await call
                error = classify(caught.value)
                assert isinstance(error, ModelConnection)
                assert error.local


async def test_a_silent_socket_is_a_timeout():
    async with Anything(lambda seen: Reply(silent=(Stall(),))) as fake, httpx2.AsyncClient() as client:
        common = {"api_key": "k", "base_url": fake.base_url, "http_client": client, "max_retries": 0}
        messages = [{"role": "user", "content": "hi"}]
        claude = anthropic.AsyncAnthropic(**common, timeout=0.05)
        gpt = openai.AsyncOpenAI(**{**common, "base_url": fake.base_url + "/v1"}, timeout=0.05)
        for call in (
            claude.messages.create(max_tokens=1, messages=messages, model="m"),
            gpt.chat.completions.create(messages=messages, model="m"),
        ):
            with pytest.raises(Exception) as caught, anyio.fail_after(5):
                await call
            assert type(classify(caught.value)) is ModelTimeout


def test_what_has_no_name_is_worth_one_more_try_and_keeps_its_own_words():
    error = classify(RuntimeError("odd"))
    assert type(error) is UnknownFailure
    assert error.retryable
    assert "RuntimeError: odd" in str(error)
    assert type(classify(TypeError("int() argument"))) is UnknownFailure


def test_an_error_that_has_its_name_already_is_left_alone():
    error = RateLimited("x")
    assert classify(error) is error


def test_a_page_is_cut_before_it_floods_the_log():
    assert len(str(failure_of(Fault("x" * 100_000, None, 502)))) < MAX_TEXT + 50


def test_billing_is_told_before_overflow_and_overflow_before_policy():
    both = {"code": "insufficient_quota", "type": "context_length_exceeded"}
    assert type(failure_of(Fault("", both, 429))) is PaymentRequired
    both = {"code": "content_filter", "type": "context_length_exceeded"}
    assert type(failure_of(Fault("", both, 400))) is ContextOverflow
    assert type(failure_of(Fault("", {"code": "content_filter"}, 401))) is ContentPolicy
