"""Maps the errors of SDKs and providers to `bot.ports.errors`; pure, and without any SDK.

Exceptions are matched by their class names, so no SDK is imported. The error of a provider is a `Fault`, matched
against ``RULES`` from the top; the first rule that matches decides, so the order matters:
billing -> context -> policy -> tools, vision -> model -> reasoning -> other parts -> payment in words -> auth -> what
the status says. A provider may put it in any of three places (status, machine code, text), also in a stream with
status 200. What a refusal means is in `bot.llm.refusals`. Its text stays in ``str(error)``. Sources: both SDKs' error
types and the providers' public error pages; those of servers without codes are in docs/servers.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from bot.llm.answer_room import answer_room
from bot.llm.refusals import is_too_long, refusal_of, window_of
from bot.ports.errors import (
    ApiNotFound,
    BadRequest,
    CertificateUntrusted,
    ContentPolicy,
    ContextOverflow,
    ModelConnection,
    ModelLoading,
    ModelNotFound,
    ModelTimeout,
    ModelUnavailable,
    ModelWithheld,
    NoAnswerRoom,
    PartRefused,
    PaymentRequired,
    ProviderError,
    RateLimited,
    ReasoningUnsupported,
    ServerSpeaksHttp,
    ServerSpeaksHttps,
    ThinkingRejected,
    ToolsUnsupported,
    Unauthorized,
    UnknownFailure,
    VisionUnsupported,
)

MAX_TEXT = 2000
"""Characters of a provider's text that are kept for the operator; it may be a proxy's HTML page."""

MAX_READ = 5000
"""Characters of it that are searched, so that no pattern takes long."""

LOADING_SECONDS = 5.0
"""Seconds until a server that loads its model is asked again."""

MAX_RETRY_AFTER = 32 * 86400.0
"""Seconds: no provider's limit lasts longer than a month, so a longer wait is a mistake."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A provider's error. ``status`` is None for an event of a stream; header names are lower case."""

    text: str
    body: object = None
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rule:
    """Matches by ``codes``, or by ``statuses`` (and by ``words`` in the text, or what it ``means``, if given)."""

    error: type[ProviderError]
    codes: re.Pattern[str] | None = None
    statuses: frozenset[int | None] = frozenset()
    words: re.Pattern[str] | None = None
    means: Callable[[Fault, frozenset[str]], bool] | None = None

    def fits(self, status: int | None, codes: frozenset[str], fault: Fault) -> bool:
        if self.codes and any(self.codes.fullmatch(code) for code in codes):
            return True
        if status not in self.statuses or (self.means and not self.means(fault, codes)):
            return False
        return self.words is None or self.words.search(fault.text) is not None


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.IGNORECASE)


_THINKING = _any(
    r"bound to a different (conversation|model)",
    r"invalid `?signature`? in `?thinking`? block",
    r"`?thinking`? (or `?redacted_thinking`? )?blocks.{0,80}cannot be modified",
    r"expected `?thinking`? or `?redacted_thinking`?",
    r"encrypted content.{0,2000}could not be (verified|decrypted|parsed)",
    r"item '?rs_\w+'? of type '?reasoning'? was provided without",
    r"provided without its required '?reasoning'? item",
)
"""Refusals of reasoning that is sent back: Anthropic's four, then OpenAI's."""

_REASONING = _any(
    r"reasoning[._ ]effort",  # OpenAI, Groq, vLLM
    r"\bthinking\.type\b",  # Anthropic
    r"\beffort\b.{0,80}not support",  # Anthropic
    r"not support.{0,80}\beffort\b",  # Anthropic
    r"does not support (adaptive |extended )?(thinking|reasoning)\b",  # Ollama, Anthropic, gateways
    r"(adaptive |extended )?thinking is not supported",  # Anthropic
    r"think value .{0,40}not supported",  # Ollama
    r"supported values are:.{0,200}\bhigh\b",  # OpenAI names no parameter
)
"""Refusals of what was chosen as `reasoning`."""

_TOOLS = _any(
    r"does not support (tools|tool calling|tool use|function calling)\b",  # Ollama
    r"requires --(enable-auto-tool-choice|tool-call-parser)",  # vLLM
    r"tools param requires --jinja",  # llama.cpp
    r"no endpoints found that support tool use",  # OpenRouter
    r"\b(tools|tool calling|function calling)\W? (is|are) not (supported|enabled) (with|for|in) (this )?model",
    r"(?<!parallel )\b(tools|tool calling|function calling)\W? (is|are) not (supported|enabled) by\b",  # LiteLLM
    r"(unrecogni[sz]ed|unsupported|unknown|extra)[^.\n]{0,60}\btools\b(?![.\[]|['\"], ?\d)",
)

_VISION = _any(
    r"does not support (image inputs?|vision|images)\b(?! \w)",  # LM Studio, gateways
    r"no endpoints found that support image input",  # OpenRouter
    r"image inputs? (is|are) not supported\b",  # llama.cpp, xAI
    r"model is missing data required for image input",  # Ollama
    r"is not a multimodal model",  # vLLM
)

_NO_ENDPOINT = _any(r"no endpoints found that support")
"""OpenRouter's 404 for a model that it has, but nowhere with all that was asked for."""

_WITHHELD = _any(
    r"no endpoints (found|available) matching your",
    r"no endpoints found that can handle the requested parameters",
    r"no allowed providers are available",
)
"""What OpenRouter says of a model that it has, and that the settings of the account or of the request keep out."""

_LOADING = _any(
    r"\bloading (the )?model\b",  # llama.cpp
    r"\bmodel\b.{0,200}\b(currently|still|being) (loading|loaded|starting)\b",  # Hugging Face, LM Studio
    r"\bmodel\b.{0,200}\bis (loading|starting|not (yet )?ready)\b",  # llama-swap, KServe
)
"""What a server says until it has its model."""

_HTTPS_WANTED = _any(
    r"HTTP request to an HTTPS server",  # Go's net/http: Ollama, LocalAI, Caddy, Traefik
    r"plain HTTP request was sent to HTTPS port",  # nginx
    r"speaking plain HTTP to an SSL-enabled server port",  # Apache
)

ENCRYPTION = (
    (CertificateUntrusted, _any(r"CERTIFICATE_VERIFY_FAILED", r"certificate verify failed")),
    (
        ServerSpeaksHttp,
        _any(r"WRONG_VERSION_NUMBER", r"RECORD_LAYER_FAILURE", r"HTTP_REQUEST\b", r"packet length too long"),
    ),
)
"""Why no connection was made, by OpenSSL's words."""

_OVER_THE_LIMIT = _any(r"request too large")
"""A rate limit that the request passes by its size alone, however long it waits: OpenAI's and Groq's."""

REFUSING = frozenset({400, 406, 409, 416, 417, 422, 500, 501, 502, 503, 507, None})
"""Statuses with which servers refuse a request for what is in it; gateways and templates answer with those of 5xx."""

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
    Rule(ServerSpeaksHttps, statuses=frozenset({400, 497}), words=_HTTPS_WANTED),
    Rule(ContextOverflow, statuses=REFUSING, means=lambda fault, codes: is_too_long(fault.text, codes)),
    Rule(
        ContentPolicy,
        codes=_any(
            "content_filter|(image_)?content_policy_violation|invalid_prompt|bio_policy|misalignment_policy_violation"
        ),
    ),
    Rule(ToolsUnsupported, statuses=frozenset({400, 404, 422, 500, 501, None}), words=_TOOLS),
    Rule(VisionUnsupported, statuses=frozenset({400, 404, 422, 500, 501, None}), words=_VISION),
    Rule(
        PartRefused,
        statuses=frozenset({404}),
        words=_NO_ENDPOINT,
        means=lambda fault, _: refusal_of(fault.text, fault.body) is not None,
    ),
    Rule(ModelWithheld, statuses=frozenset({404, None}), words=_WITHHELD),
    Rule(ModelNotFound, codes=_any("model_not_found|DeploymentNotFound")),
    Rule(
        ModelNotFound,
        statuses=frozenset({404}),
        words=_any(
            r"\bmodel: ?\S",
            r"\bmodel\b.{0,200}\b(not found|does not exist)",
            r"no endpoints found",  # OpenRouter
        ),
    ),
    Rule(ApiNotFound, statuses=frozenset({404, 405, *range(300, 400)})),
    Rule(ModelNotFound, statuses=frozenset({400}), words=_any(r"\bmodel\b.{0,200}\bdoes not exist")),
    Rule(
        ThinkingRejected, codes=_any("invalid_encrypted_content"), statuses=frozenset({400}), words=_THINKING
    ),
    Rule(ReasoningUnsupported, statuses=frozenset({400, 422, None}), words=_REASONING),
    Rule(
        PartRefused, statuses=REFUSING, means=lambda fault, _: refusal_of(fault.text, fault.body) is not None
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
    Rule(ModelLoading, statuses=frozenset({None, 425, *range(500, 600)}), words=_LOADING),
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
        statuses=frozenset(range(400, 500)),
    ),
)


RAISED: tuple[tuple[frozenset[str], type[ProviderError]], ...] = (
    (frozenset({"PoolTimeout"}), ModelConnection),
    (frozenset({"UnsupportedProtocol", "InvalidURL", "NonHttpUrlClientError"}), BadRequest),
    (frozenset({"APITimeoutError", "TimeoutException", "TimeoutError"}), ModelTimeout),
    (frozenset({"APIConnectionError", "TransportError", "ClientError", "OSError"}), ModelConnection),
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
"""Errors that are known by their class: the names of an exception's classes or of its cause's; the first row wins."""


def classify(error: Exception, now: datetime | None = None) -> ProviderError:
    """Return the typed error for any exception of a model call; our own are returned unchanged.

    *now* (UTC) is used if a provider names a date and its answer has none.
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
    said = _describe(error)
    if kind is ModelConnection:
        kind = next((encryption for encryption, words in ENCRYPTION if words.search(said)), kind)
    failure = (kind or UnknownFailure)(said)
    failure.alone = "PoolTimeout" in names
    return failure


def failure_of(fault: Fault, now: datetime | None = None) -> ProviderError:
    """Return the typed error for a provider's error."""
    codes = frozenset(_codes(fault.body))
    if (status := _status(fault.status, codes)) == 499:
        # "Client closed request": we hung up, which is not a failure of the provider.
        cancelled = ModelConnection(shorten(fault.text), status=status)
        cancelled.alone, cancelled.retryable = True, False
        return cancelled
    read = replace(fault, text=fault.text[:MAX_READ])
    kind = next((rule.error for rule in RULES if rule.fits(status, codes, read)), UnknownFailure)
    may_be_room = kind in (BadRequest, PartRefused, ContextOverflow, UnknownFailure)
    room = answer_room(read.text) if may_be_room else None
    if room is not None:
        kind = NoAnswerRoom
    wait = _retry_after(fault, now)
    if kind is ModelLoading and wait is None:
        wait = LOADING_SECONDS
    failure = kind(
        shorten(fault.text),
        status=fault.status,
        retry_after=wait,
        request_id=fault.headers.get("request-id") or fault.headers.get("x-request-id"),
    )
    if isinstance(failure, NoAnswerRoom) and room is not None:
        failure.room = room
    if isinstance(failure, ContextOverflow):
        failure.window = window_of(read.text, fault.body)
    if isinstance(failure, PartRefused):
        failure.refusal = refusal_of(read.text, fault.body)
    failure.alone = kind is RateLimited and _OVER_THE_LIMIT.search(read.text) is not None
    if failure.alone or fault.headers.get("x-should-retry", "").lower() == "false":
        failure.retryable = False
    return failure


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
    """Return the whole text: the OpenAI SDK leaves out any part that is not in a field "message"."""
    text = str(error)
    message = body.get("message") if isinstance(body, Mapping) else body
    if not body or (isinstance(message, str) and message in text) or str(body) in text:
        return text
    return f"{text} - {body}"


def _codes(body: object) -> Iterator[str]:
    """Yield every machine-readable code of an error body, at any depth."""
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
"""The statuses for Anthropic's codes in events of a stream, which have no status."""


def _status(status: int | None, codes: frozenset[str]) -> int | None:
    """Return the real status: a stream has 200 whatever comes later, and some servers name one in the body."""
    if status is not None and status >= 300:
        return status
    named = (int(code) for code in codes if re.fullmatch(r"[45]\d\d", code))
    return next(named, None) or next((IMPLIED[code] for code in codes if code in IMPLIED), None)


def _retry_after(fault: Fault, now: datetime | None) -> float | None:
    """Return the seconds that a provider asks us to wait, by its headers or its text, or None."""
    headers = fault.headers
    now = _date(headers.get("date", "")) or now  # The provider's own clock: no skew between two machines.
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        if re.fullmatch(r"\d+(\.\d*)?", value := headers.get(name, "").strip()):
            return min(float(value) / unit, MAX_RETRY_AFTER)
    until = _date(headers.get("retry-after", "")) or _regained(fault.text[:MAX_READ])
    if until and now:
        return min(max(0.0, (until - now).total_seconds()), MAX_RETRY_AFTER)
    return None


def _regained(text: str) -> datetime | None:
    """Return the end of a spend limit in Anthropic's text: "You will regain access on 2026-12-01 at 00:00 UTC"."""
    if not (found := re.search(r"regain access on (\d{4}-\d\d-\d\d)(?: at (\d\d:\d\d) UTC)?", text)):
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


def _describe(error: Exception) -> str:
    causes = "" if error.__cause__ is None else f" ({type(error.__cause__).__name__}: {error.__cause__})"
    return shorten(f"{type(error).__name__}: {error}{causes}")


def shorten(text: str) -> str:
    """Cut *text* to `MAX_TEXT` characters."""
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]} … ({len(text)} characters)"
