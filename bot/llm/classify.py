"""From whatever an SDK or a provider says went wrong to one error of `bot.ports.errors`; pure, and free of any SDK.

Exceptions are known by their class names, so that nothing has to be imported to read them. What a provider *said*
is a `Fault`, matched against ``RULES`` from the top; the first rule that fits decides, and the order is the point:
billing -> context -> policy -> tools, vision -> model -> payment in words -> auth -> what the status says. A provider
may say it in any of three places (status, machine code, text), also inside a stream whose status was 200. Its words
stay in ``str(error)``. Sources: both SDKs' error types and the providers' public error pages; the wordings of servers
without codes were gathered from public issue trackers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from bot.ports.errors import (
    BadRequest,
    ContentPolicy,
    ContextOverflow,
    ModelConnection,
    ModelNotFound,
    ModelTimeout,
    ModelUnavailable,
    PaymentRequired,
    ProviderError,
    RateLimited,
    ThinkingRejected,
    ToolsUnsupported,
    Unauthorized,
    UnknownFailure,
    VisionUnsupported,
)

MAX_TEXT = 2000
"""Characters of a provider's words kept for the operator: an HTML page of a proxy is not worth more."""

MAX_READ = 5000
"""Characters of them that are searched for what they mean: no pattern may take long over a flood."""

LOADING_SECONDS = 5.0
"""A local server that answers "Loading model" is worth asking again this soon."""

MAX_RETRY_AFTER = 32 * 86400.0
"""Seconds: no limit of any provider lasts longer than a month, so a longer wait is a slip of theirs."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What a provider said. ``status`` is None when only a stream's event spoke; header names are lower case."""

    text: str
    body: object = None
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rule:
    """Fits by ``codes``, or by ``statuses`` (with ``words`` in the text, if any are given)."""

    error: type[ProviderError]
    codes: re.Pattern[str] | None = None
    statuses: frozenset[int | None] = frozenset()
    words: re.Pattern[str] | None = None

    def fits(self, status: int | None, codes: frozenset[str], text: str) -> bool:
        if self.codes and any(self.codes.fullmatch(code) for code in codes):
            return True
        return status in self.statuses and (self.words is None or self.words.search(text) is not None)


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.IGNORECASE)


_OVERFLOW = _any(
    r"prompt is too long",  # Anthropic
    r"exceed context limit",  # Anthropic, input and max_tokens together
    r"input is too long for requested model",  # Bedrock
    r"exceeds the context window",  # OpenAI
    r"maximum context length",  # vLLM, OpenRouter, Mistral, DeepSeek
    r"input token count.*exceeds the maximum",  # Gemini
    r"maximum prompt length is \d",  # xAI
    r"reduce the length of the messages",  # Groq
    r"exceeds the available context size",  # llama.cpp
    r"greater than the context length",  # LM Studio
    r"token count.*exceeds the limit of \d",  # Copilot
    r"context window exceeds limit",  # MiniMax
    r"exceeded model token limit",  # Kimi
    r"exceeded (max )?context length",  # Ollama
    r"context[_ ]length[_ ]exceeded",
    r"model_context_window_exceeded",  # Z.ai
    r"too many tokens(?!,? (?:per|please wait))",  # But not where tokens a minute are meant.
    r"token limit exceeded",
    r"^error code: 400$",  # Cerebras: no body at all
)

_THINKING = _any(
    r"bound to a different (conversation|model)",
    r"invalid `?signature`? in `?thinking`? block",
    r"`?thinking`? (or `?redacted_thinking`? )?blocks.{0,80}cannot be modified",
    r"expected `?thinking`? or `?redacted_thinking`?",
    r"encrypted content.{0,2000}could not be (verified|decrypted|parsed)",
    r"item '?rs_\w+'? of type '?reasoning'? was provided without",
    r"provided without its required '?reasoning'? item",
)
"""How reasoning that is sent back is refused: Anthropic's four ways, then OpenAI's."""

_TOOLS = _any(
    r"does not support (tools|tool calling|tool use|function calling)\b",  # Ollama
    r"tool choice requires --enable-auto-tool-choice",  # vLLM
    r"tools param requires --jinja",  # llama.cpp
    r"no endpoints found that support tool use",  # OpenRouter
    r"\b(tools|tool calling|function calling)\W? (is|are) not supported (with|by|for|in) this model",  # OpenAI, Groq
)

_VISION = _any(
    r"does not support (image inputs?|vision|images)\b(?! \w)",  # LM Studio, gateways
    r"no endpoints found that support image input",  # OpenRouter
    r"image inputs? (is|are) not supported\b",  # llama.cpp, xAI
    r"model is missing data required for image input",  # Ollama
    r"is not a multimodal model",  # vLLM
)

RULES = (
    Rule(
        PaymentRequired,
        codes=_any(
            r"billing_error|linked_organization_\w+|organization_on_hold",
            r"(enforced|contract)_spend_limit_reached",
            r"insufficient_quota|credit_balance_exhausted|billing_hard_limit_reached",
            r"(organization|project)_spend_limit_exceeded|organization_usage_limit_exceeded",
            r"exceeded_current_quota_error",
        ),
        statuses=frozenset({402}),
    ),
    Rule(
        ContextOverflow,
        codes=_any("context_length_exceeded|exceed_context_size_error|request_too_large"),
        statuses=frozenset({413}),
    ),
    Rule(ContextOverflow, statuses=frozenset({400, 422, 500, None}), words=_OVERFLOW),
    Rule(
        ContentPolicy,
        codes=_any(
            "content_filter|(image_)?content_policy_violation|invalid_prompt|bio_policy|misalignment_policy_violation"
        ),
    ),
    Rule(ToolsUnsupported, statuses=frozenset({400, 404, 422, 500, 501, None}), words=_TOOLS),
    Rule(VisionUnsupported, statuses=frozenset({400, 404, 422, 500, 501, None}), words=_VISION),
    Rule(ModelNotFound, codes=_any("model_not_found")),
    Rule(
        ModelNotFound,
        statuses=frozenset({404}),
        words=_any(r"\bmodel: ?\S", r"\bmodel\b.{0,200}\b(not found|does not exist)"),
    ),
    Rule(ModelNotFound, statuses=frozenset({400}), words=_any(r"\bmodel\b.{0,200}\bdoes not exist")),
    Rule(
        ThinkingRejected, codes=_any("invalid_encrypted_content"), statuses=frozenset({400}), words=_THINKING
    ),
    Rule(
        PaymentRequired,
        statuses=frozenset({400, 403, 429, None}),
        words=_any(
            r"credit balance is too low",
            r"reached your specified (workspace )?api usage limits",
            r"insufficient balance",
        ),
    ),
    Rule(
        Unauthorized,
        codes=_any(
            "authentication_error|invalid_api_key|permission_error|unsupported_country_region_territory"
        ),
        statuses=frozenset({401, 403}),
    ),
    Rule(
        RateLimited,
        codes=_any("rate_limit_error|rate_limit_exceeded|ramp_limit_exceeded|slow_down"),
        statuses=frozenset({429}),
    ),
    Rule(ModelTimeout, codes=_any("timeout_error|vector_store_timeout"), statuses=frozenset({408, 504})),
    Rule(
        ModelUnavailable,
        codes=_any("overloaded_error|api_error|server_error|server_is_overloaded|conflict_error"),
        statuses=frozenset({409, *range(500, 600)}),
    ),
    Rule(
        BadRequest,
        codes=_any(
            r"not_found_error|data_residency_mismatch",
            r"(invalid|unsupported|unknown|missing|empty|failed_to_download|image)_\w+",
        ),
        statuses=frozenset(range(300, 500)),
    ),
)


RAISED: tuple[tuple[frozenset[str], type[ProviderError]], ...] = (
    (frozenset({"PoolTimeout"}), ModelConnection),
    (frozenset({"UnsupportedProtocol", "InvalidURL"}), BadRequest),
    (frozenset({"APITimeoutError", "TimeoutException", "TimeoutError"}), ModelTimeout),
    (frozenset({"APIConnectionError", "TransportError", "OSError"}), ModelConnection),
    (
        frozenset(
            {
                "JSONDecodeError",
                "RecursionError",
                "UnicodeDecodeError",
                "DecodingError",
                "APIResponseValidationError",
            }
        ),
        ModelUnavailable,
    ),
)
"""What says all by its class: names of classes of the exception or of its cause, the first row that fits."""


def classify(error: Exception, now: datetime | None = None) -> ProviderError:
    """Return the typed error for anything raised while a model was asked; ours pass through unchanged.

    *now* (UTC) is only used where a provider names a date and its answer bears none of its own.
    """
    if isinstance(error, ProviderError):
        return error
    if isinstance(error.__cause__, ProviderError):
        return error.__cause__  # Raised by our own guard below the SDK, see `bot.llm.adapters.body_limit`.
    names = {kind.__name__ for raised in (error, error.__cause__) for kind in type(raised).__mro__}
    kind = next((kind for known, kind in RAISED if names & known), None)
    if kind is None and "APIError" in names:
        return failure_of(_fault_of(error), now)
    if names & {"TypeError", "OpenAIError"} and re.search("authentication method|api_key", str(error)):
        kind = Unauthorized  # So the SDKs report a missing key, before anything is sent.
    failure = (kind or UnknownFailure)(_describe(error))
    return _local(failure) if "PoolTimeout" in names else failure


def failure_of(fault: Fault, now: datetime | None = None) -> ProviderError:
    """Return the typed error for what a provider said."""
    codes = frozenset(_codes(fault.body))
    status = _status(fault.status, codes)
    if status == 499:
        # "Client closed request": we were told that we hung up, which is nobody's failure.
        return _final(_local(ModelConnection(shorten(fault.text), status=status)))
    words = fault.text[:MAX_READ]
    kind = next((rule.error for rule in RULES if rule.fits(status, codes, words)), UnknownFailure)
    failure = kind(
        shorten(fault.text),
        status=fault.status,
        retry_after=_retry_after(fault, now),
        request_id=fault.headers.get("request-id") or fault.headers.get("x-request-id"),
    )
    return _final(failure) if fault.headers.get("x-should-retry", "").lower() == "false" else failure


def _fault_of(error: Exception) -> Fault:
    response = getattr(error, "response", None)
    body = getattr(error, "body", None)
    return Fault(
        text=_text_of(error, body),
        body=body,
        status=getattr(error, "status_code", None),
        headers=dict(response.headers) if response is not None else {},
    )


def _text_of(error: Exception, body: object) -> str:
    """Return all that was said: the OpenAI SDK leaves out of its text whatever stands in no field "message"."""
    text = str(error)
    said = body.get("message") if isinstance(body, Mapping) else body
    if not body or (isinstance(said, str) and said in text) or str(body) in text:
        return text
    return f"{text} - {body}"


def _codes(body: object) -> Iterator[str]:
    """Yield every machine-readable word of an error body, whatever its nesting."""
    if isinstance(body, list):
        body = body[0] if body else None
    if not isinstance(body, Mapping):
        return
    for key in ("code", "type", "error_code"):
        if isinstance(value := body.get(key), str | int):
            yield str(value)
    for key in ("error", "details"):
        yield from _codes(body.get(key))


IMPLIED = {"invalid_request_error": 400, "not_found_error": 404}
"""The statuses that Anthropic's words stand for, where an event of a stream can have none."""


def _status(status: int | None, codes: frozenset[str]) -> int | None:
    """Return the status that counts: a stream began with 200 whatever came later, and some servers name one."""
    if status is not None and status >= 300:
        return status
    named = (int(code) for code in codes if re.fullmatch(r"[45]\d\d", code))
    return next(named, None) or next((IMPLIED[code] for code in codes if code in IMPLIED), None)


def _retry_after(fault: Fault, now: datetime | None) -> float | None:
    """Return the seconds a provider asks us to wait, from its header or its words; what is no number says nothing."""
    headers = fault.headers
    now = _date(headers.get("date", "")) or now  # The provider's own clock: no skew between two machines.
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        if re.fullmatch(r"\d+(\.\d*)?", value := headers.get(name, "").strip()):
            return min(float(value) / unit, MAX_RETRY_AFTER)
    until = _date(headers.get("retry-after", "")) or _regained(fault.text[:MAX_READ])
    if until and now:
        return min(max(0.0, (until - now).total_seconds()), MAX_RETRY_AFTER)
    return LOADING_SECONDS if "loading model" in fault.text[:MAX_READ].lower() else None


def _regained(text: str) -> datetime | None:
    """Return when a spend limit ends, as Anthropic writes it: "You will regain access on 2026-12-01 at 00:00 UTC"."""
    found = re.search(r"regain access on (\d{4}-\d\d-\d\d)(?: at (\d\d:\d\d) UTC)?", text)
    if not found:
        return None
    try:
        return datetime.fromisoformat(f"{found[1]}T{found[2] or '00:00'}+00:00")
    except ValueError:
        return None


def _date(text: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)


def _local(failure: ProviderError) -> ProviderError:
    if isinstance(failure, ModelConnection):
        failure.local = True
    return failure


def _final(failure: ProviderError) -> ProviderError:
    failure.retryable = False
    return failure


def _describe(error: Exception) -> str:
    causes = "" if error.__cause__ is None else f" ({type(error.__cause__).__name__}: {error.__cause__})"
    return shorten(f"{type(error).__name__}: {error}{causes}")


def shorten(text: str) -> str:
    """Cut *text* to what is worth keeping for the operator."""
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]} … ({len(text)} characters)"
