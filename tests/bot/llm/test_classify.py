"""What goes beside the type of a failure: how long to wait, whose fault it is, what may be shown of it."""

from datetime import UTC, datetime

import anthropic
import httpx2
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.extensions.anthropic.messages import AnthropicModel
from bot.extensions.openai.chat import OpenAIChatModel
from bot.extensions.openai.responses import OpenAIResponsesModel
from bot.llm.classify import MAX_RETRY_AFTER, MAX_TEXT, Fault, classify, failure_of
from bot.ports.errors import (
    BadRequest,
    ContentPolicy,
    ContextOverflow,
    ModelConnection,
    OutputInvalid,
    PartRefused,
    PaymentRequired,
    ProviderError,
    RateLimited,
    Unauthorized,
    UnknownFailure,
)
from tests.bot.llm.apis import FakeProvider, each_api
from tests.fakes import anthropic as a
from tests.fakes.http import Reply, Stall, error


@pytest.fixture
def failure(complete):
    """Return the error that a call ends with."""

    async def failure(api, reply, **options):
        with pytest.raises(ProviderError) as caught:
            await complete(api, reply=reply, **options)
        return caught.value

    return failure


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
    "zero": ([("retry-after", "0")], 0),
    "a minus": ([("retry-after", "-3")], None),
    "nonsense": ([("retry-after", "soon")], None),
    "no number": ([("retry-after", "nan")], None),
    "no end": ([("retry-after", "inf")], None),
    "a programmer's number": ([("retry-after", "1_0")], None),
    "a power": ([("retry-after", "1e3")], None),
    "nonsense, then sense": ([("retry-after-ms", "soon"), ("retry-after", "3")], 3),
    "an age": ([("retry-after", "4294967295")], MAX_RETRY_AFTER),
    "a number without end": ([("retry-after", "9" * 400)], MAX_RETRY_AFTER),
    "a date in an age": ([("retry-after", "Sat, 21 Nov 9026 12:02:00 GMT")], MAX_RETRY_AFTER),
    "a date beyond all": ([("retry-after", "Sat, 21 Nov 99999 12:02:00 GMT")], None),
    "an odd time zone": ([("retry-after", "Sat, 21 Nov 2026 12:02:00 +9999")], None),
    "a time zone beyond all": ([("retry-after", "Sat, 21 Nov 2026 12:02:00 +" + "9" * 30)], None),
    "nothing": ([], None),
}


@pytest.mark.parametrize(("headers", "seconds"), RETRY_AFTER.values(), ids=RETRY_AFTER)
@pytest.mark.parametrize("api", [AnthropicModel, OpenAIChatModel])
async def test_the_provider_s_word_on_waiting_is_understood(failure, api, headers, seconds):
    caught = await failure(api, error(429, {}, headers), now=lambda: NOW)
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


@each_api
async def test_a_refused_connection_and_a_useless_address_are_told_apart(failure, api):
    refused = await failure(api, Reply(), base_url="http://127.0.0.1:1")
    assert (type(refused), refused.alone) == (ModelConnection, False)
    assert type(await failure(api, Reply(), base_url="ftp://127.0.0.1")) is BadRequest


@pytest.mark.parametrize("key", [None, "", " ", "sk-canary\nX: y", "sk-canáry"])
@pytest.mark.parametrize("api", [AnthropicModel, OpenAIResponsesModel])
async def test_a_key_that_cannot_be_sent_is_unauthorized_and_not_shown(failure, api, key):
    error = await failure(api, Reply(), key=lambda: key)
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
    async with FakeProvider([a.stream(Stall())]) as fake, httpx2.AsyncClient(limits=limits) as client:
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
                assert error.alone


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


@given(st.text() | st.from_regex(r"[A-Z][a-z]{2}, \d+ [A-Z][a-z]{2} \d+ \d+:\d+:\d+ \S+", fullmatch=True))
def test_no_word_on_waiting_breaks_the_reading_of_it(word):
    headers = {"retry-after": word, "retry-after-ms": word, "date": word}
    waiting = failure_of(Fault("You will regain access on 2026-11-22", {}, 429, headers), NOW).retry_after
    assert waiting is None or 0 <= waiting <= MAX_RETRY_AFTER


@given(
    st.recursive(
        st.none() | st.text() | st.integers(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(st.sampled_from(["code", "type", "error", "details", "error_code"]), inner)
        ),
    ),
    st.none() | st.integers(100, 999),
)
def test_no_body_breaks_the_reading_of_it(body, status):
    assert isinstance(failure_of(Fault("", body, status)), ProviderError)


@pytest.mark.parametrize(
    "text", ["Too many tokens per minute", "too many tokens, please wait before trying again"]
)
def test_tokens_a_minute_are_no_overflow_even_without_a_status(text):
    assert type(failure_of(Fault(text, {"type": "rate_limit_error"}))) is RateLimited


def test_what_our_own_guard_says_passes_through_the_sdk_that_wraps_it():
    guard = OutputInvalid("too large")
    wrapped = RuntimeError("Connection error.")
    wrapped.__cause__ = guard
    assert classify(wrapped) is guard


OTHER_LENGTHS = (
    "Rate limit exceeded: 30000 tokens per minute",
    "Too many tokens, please wait before trying again.",
    "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 6000000 bytes > 5242880 bytes",
    "Invalid 'input[3].call_id': string too long. Expected a string with maximum length 64.",
    "Invalid 'tools': array too long. Expected an array with maximum length 128, but got one of length 150.",
    "max_tokens must be at most 4096",
    "The maximum tokens you requested exceeds the model limit of 32768",
    "Input should be greater than 0",
    "image dimensions exceed max allowed size: 8000 pixels",
    "tools.0.custom.name: String should have at most 64 characters",
    "tools.0.custom.input_schema: property 'pattern' is not supported",
    "Unknown parameter: 'messages[3].reasoning'",
    "Invalid value for 'content': expected a string",
)


@pytest.mark.parametrize("text", OTHER_LENGTHS)
@pytest.mark.parametrize("status", [400, 500, None])
def test_another_limit_or_another_fault_is_neither_too_long_nor_a_part_to_leave_out(text, status):
    assert not isinstance(failure_of(Fault(text, {}, status)), ContextOverflow | PartRefused)


def test_the_window_that_a_refusal_names_is_read_from_its_fields_too():
    body = {"error": {"type": "exceed_context_size_error", "n_prompt_tokens": 9000, "n_ctx": 4096}}
    assert failure_of(Fault("no", body, 400)).window == 4096
    assert failure_of(Fault("prompt is too long: 9 tokens > 7 maximum", {}, 400)).window is None
    assert failure_of(Fault("a context window of 128k tokens is exceeded", {}, 400)).window == 128_000


def test_a_refusal_says_which_form_to_send_instead():
    def instead(text: str, **fields: object) -> tuple[str, str]:
        refusal = failure_of(Fault(text, {"error": fields}, 400)).refusal
        return refusal.part, refusal.instead

    said = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    assert instead(said) == ("max_tokens", "max_completion_tokens")
    assert instead("Unrecognized request argument supplied: max_completion_tokens") == (
        "max_tokens",
        "max_tokens",
    )
    assert instead("System role not supported") == ("system", "user")
    assert instead("'system' role is not supported, use 'developer' instead") == ("system", "developer")
    assert instead("no", code="unsupported_parameter", param="top_k") == ("top_k", "none")


WINDOWS = {
    "litellm.ContextWindowExceededError: OpenAIException - request (5031 tokens) exceeds the available context size "
    "(2048 tokens), try increasing it": 2048,
    "The estimated number of input and maximum output tokens (442000) exceeded this model context window limit "
    "(262144)": 262_144,
}
"""A LiteLLM that was asked, and Cloudflare (PostHog/posthog#76192)."""


@pytest.mark.parametrize(("text", "window"), WINDOWS.items())
def test_what_was_sent_is_not_taken_for_the_window(text, window):
    failure = failure_of(Fault(text, status=400))
    assert isinstance(failure, ContextOverflow)
    assert failure.window == window
