"""The table of failures, row by row and shape by shape: a real server says it, the real SDKs carry it to us.

A row is what a provider says. It comes in every shape it can take: as a status, while streaming and not; as an event
of a stream that began well; as an answer with status 200. Whatever the shape, the same row has the same type.
"""

import json
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import anthropic
import openai
import pytest

from bot.extensions.anthropic.messages import AnthropicModel
from bot.extensions.openai.chat import OpenAIChatModel
from bot.extensions.openai.responses import OpenAIResponsesModel
from bot.llm.classify import RULES, classify
from bot.ports.errors import (
    ApiNotFound,
    BadRequest,
    ContentPolicy,
    ContextOverflow,
    EmptyAnswer,
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
    ServerSpeaksHttps,
    ThinkingRejected,
    ToolsUnsupported,
    Unauthorized,
    UnknownFailure,
    UnreadableAnswer,
    VisionUnsupported,
)
from bot.ports.model import AnswerRoom
from docs.generate.servers import SERVERS
from tests.bot.llm.apis import HELLO, UP_TO_SECOND_DELTA, FakeProvider, model_at
from tests.bot.llm.conftest import ask
from tests.fakes import anthropic as a
from tests.fakes import openai as o
from tests.fakes.http import Cut, Garbage, Reply, Stall, error
from threads.model import TurnEvent
from threads.wording import explain

CANARY = "canary-5417"
MESSAGES, RESPONSES, CHAT = AnthropicModel, OpenAIResponsesModel, OpenAIChatModel
RETRYABLE = {RateLimited, ModelTimeout, ModelUnavailable, ModelLoading, UnknownFailure, ModelConnection}
QUICK = {"first_content": 1.0, "idle": 1.0}
"""For the rows that wait in vain; all others may take their time."""


@dataclass(frozen=True)
class Row:
    """What a provider says: a ``status``, words for machines (``kind`` is the broad one) and a ``text`` for people.

    ``body`` replaces the JSON they make. ``only_status`` rows say nothing else, so no event of a stream can say them.
    """

    expected: type[ProviderError]
    status: int
    kind: str | None = None
    text: str = "no"
    code: str | None = None
    body: Any = None
    headers: tuple[tuple[str, str], ...] = ()
    only_status: bool = False
    retryable: bool | None = None
    retry_after: float | None = None
    passes: bool = True
    """Whether waiting helps, in every form."""
    window: int | None = None
    part: str = ""
    room: AnswerRoom | None = None


BAD = "invalid_request_error"
PAGE = f"<html><h1>Sorry</h1>{CANARY}</html>"


def by_code(error: type[ProviderError], status: int, codes: str, kind: str | None = None) -> dict[str, Row]:
    return {code: Row(error, status, kind, code=code) for code in codes.split()}


def by_text(error: type[ProviderError], status: int, texts: dict[str, str], **fields: Any) -> dict[str, Row]:
    return {name: Row(error, status, text=text, **fields) for name, text in texts.items()}


def by_kind(error: type[ProviderError], status: int, kind: str) -> dict[str, Row]:
    return {kind: Row(error, status, kind)}


def by_body(error: type[ProviderError], bodies: dict[str, tuple[int, Any]]) -> dict[str, Row]:
    return {name: Row(error, status, body=body) for name, (status, body) in bodies.items()}


NO_MONEY = {
    "no credit": "Your credit balance is too low to access the API.",
    "spend limit in words": "You have reached your specified API usage limits.",
}
SPEND_LIMIT = "You have reached your specified workspace API usage limits. You will regain access on 2026-12-01 at 00:00 UTC."
TOO_LONG = {"prompt too long": "prompt is too long: 213462 tokens > 200000 maximum"}
NO_ROOM = {
    "an answer too long": "max_tokens: 4096 > 2048, which is the maximum allowed number of output tokens",
    "prompt and answer too long": "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
}
THINKING = {
    "thinking of another conversation": "messages.1.content.0: Invalid `signature` in `thinking` block. The block is "
    "bound to a different conversation. Remove the block.",
    "thinking modified": "messages.3.content.8: `thinking` or `redacted_thinking` blocks in the latest assistant "
    "message cannot be modified.",
    "thinking left out": "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`.",
}
NO_SUCH_EFFORT = {
    "thinking switched off": "thinking.type: `disabled` is not supported",
    "no effort": "This model does not support the effort parameter.",
    "no such effort": "output_config.effort: 'low' is not supported by this model",
    "no adaptive thinking": "adaptive thinking is not supported on this model",
}
ANTHROPIC = {
    **by_kind(Unauthorized, 403, "permission_error"),
    **by_kind(PaymentRequired, 402, "billing_error"),
    **by_kind(RateLimited, 429, "rate_limit_error"),
    **by_kind(ModelTimeout, 504, "timeout_error"),
    **by_kind(ModelUnavailable, 529, "overloaded_error"),
    **by_kind(ModelUnavailable, 500, "api_error"),
    **by_kind(ModelUnavailable, 409, "conflict_error"),
    **by_kind(BadRequest, 422, BAD),
    **by_kind(UnknownFailure, 600, "surprise_error"),
    **by_code(PaymentRequired, 402, "linked_organization_suspended", BAD),
    **by_code(PaymentRequired, 400, "organization_on_hold", BAD),
    **by_code(
        PaymentRequired, 429, "enforced_spend_limit_reached contract_spend_limit_reached", "rate_limit_error"
    ),
    **by_code(RateLimited, 429, "ramp_limit_exceeded", "rate_limit_error"),
    **by_code(BadRequest, 400, "image_dimensions_too_large", BAD),
    **by_text(PaymentRequired, 400, NO_MONEY, kind=BAD),
    **by_text(ContextOverflow, 400, TOO_LONG, kind=BAD, window=200_000),
    **by_text(NoAnswerRoom, 400, NO_ROOM, kind=BAD),
    **by_text(ThinkingRejected, 400, THINKING, kind=BAD),
    **by_text(ReasoningUnsupported, 400, NO_SUCH_EFFORT, kind=BAD),
    "invalid key": Row(Unauthorized, 401, "authentication_error", "invalid x-api-key"),
    "rate limit with a time": Row(
        RateLimited, 429, "rate_limit_error", headers=(("retry-after", "7"),), retry_after=7
    ),
    "request timeout": Row(ModelTimeout, 408, "timeout_error"),
    "overloaded, 503": Row(ModelUnavailable, 503, "overloaded_error"),
    "no such model": Row(ModelNotFound, 404, "not_found_error", "model: claude-2"),
    "no such path": Row(ApiNotFound, 404, "not_found_error", "Not Found"),
    "too many bytes": Row(ContextOverflow, 413, "request_too_large", "Request exceeds the maximum size"),
    "nonsense": Row(BadRequest, 400, BAD, "messages.0: nonsense"),
    "spend limit with its end": Row(
        PaymentRequired,
        400,
        BAD,
        SPEND_LIMIT,
        headers=(("date", "Mon, 30 Nov 2026 00:00:00 GMT"),),
        retry_after=86400,
    ),
    "client closed request": Row(
        ModelConnection, 499, "client_closed_request", only_status=True, retryable=False
    ),
}
REASONING = {
    "reasoning without what it led to": "Item 'rs_0a18' of type 'reasoning' was provided without its required "
    "following item.",
    "a call without the reasoning before it": "Item 'fc_1' of type 'function_call' was provided without its required "
    "'reasoning' item: 'rs_1'.",
    "reasoning of another key": "The encrypted content gAAA...DQ== could not be verified.",
}
OPENAI = {
    **by_code(Unauthorized, 401, "invalid_api_key"),
    **by_code(Unauthorized, 403, "unsupported_country_region_territory"),
    **by_code(PaymentRequired, 429, "insufficient_quota", "insufficient_quota"),
    **by_code(
        PaymentRequired,
        429,
        "credit_balance_exhausted organization_spend_limit_exceeded project_spend_limit_exceeded "
        "organization_usage_limit_exceeded billing_hard_limit_reached",
    ),
    **by_code(RateLimited, 429, "slow_down"),
    **by_code(ModelTimeout, 500, "vector_store_timeout"),
    **by_code(ModelUnavailable, 500, "server_error"),
    **by_code(ModelUnavailable, 503, "server_is_overloaded"),
    **by_code(ContextOverflow, 400, "context_length_exceeded", BAD),
    **by_code(
        ContentPolicy,
        400,
        "content_filter content_policy_violation invalid_prompt bio_policy misalignment_policy_violation "
        "image_content_policy_violation",
    ),
    **by_code(
        BadRequest,
        400,
        "invalid_value invalid_image_format image_too_large unsupported_value unknown_parameter empty_array "
        "missing_required_parameter failed_to_download_image data_residency_mismatch",
        BAD,
    ),
    **by_code(ThinkingRejected, 400, "invalid_encrypted_content", BAD),
    **by_text(ThinkingRejected, 400, REASONING, kind=BAD),
    "no reasoning": Row(
        ReasoningUnsupported,
        400,
        BAD,
        "Unsupported parameter: 'reasoning.effort' is not supported with this model.",
        code="unsupported_parameter",
    ),
    "no such effort": Row(
        ReasoningUnsupported,
        400,
        BAD,
        "Unsupported value: 'none' is not supported with the 'x' model. Supported values are: 'low' and 'high'.",
        code="unsupported_value",
    ),
    **by_code(UnknownFailure, 600, "surprise_error"),
    "forbidden": Row(Unauthorized, 403, only_status=True),
    "rate limit": Row(
        RateLimited, 429, code="rate_limit_exceeded", headers=(("retry-after-ms", "1500"),), retry_after=1.5
    ),
    "tokens a minute": Row(
        RateLimited,
        429,
        code="rate_limit_exceeded",
        text="Request too large for gpt-x on tokens per min (TPM): Limit 30000, Requested 45000.",
        passes=False,
    ),
    "request timeout": Row(ModelTimeout, 408, only_status=True),
    "conflict": Row(ModelUnavailable, 409, only_status=True),
    "no such model": Row(ModelNotFound, 404, BAD, code="model_not_found"),
    "no such model for you": Row(ModelNotFound, 403, BAD, code="model_not_found"),
    "unprocessable": Row(BadRequest, 422, BAD),
    "the last word": Row(
        ModelUnavailable, 503, headers=(("x-should-retry", "false"),), only_status=True, retryable=False
    ),
    "client closed request": Row(ModelConnection, 499, only_status=True, retryable=False),
}
WINDOW = 8_192
TOO_LONG_BY = {
    f"{server}: {text}": Row(
        ContextOverflow, 400, text=text.format(window=WINDOW), window=WINDOW if "{window}" in text else None
    )
    for server, said in SERVERS.items()
    for text in said.too_long
}
CAPABILITIES = {"tools": ToolsUnsupported, "images": VisionUnsupported}
REFUSED_BY = {
    f"{server}: {text}": Row(
        CAPABILITIES.get(part, PartRefused),
        404 if text.startswith("No endpoints") else 400,
        text=text,
        part=part,
    )
    for server, said in SERVERS.items()
    for part, text, _ in said.refuses
}
NO_ROOM_BY = {
    f"{server}: {text}": Row(NoAnswerRoom, 400, text=text, room=AnswerRoom(tokens, window))
    for server, said in SERVERS.items()
    for text, tokens, window, _ in said.room
}
WITHHELD_BY = {
    f"{server}: {text}": Row(ModelWithheld, 404, text=text)
    for server, said in SERVERS.items()
    for text in said.withheld
}
"""What servers say that have no codes for it."""

COMPATIBLE = {
    **TOO_LONG_BY,
    **REFUSED_BY,
    **NO_ROOM_BY,
    **WITHHELD_BY,
    **by_body(
        ContextOverflow,
        {
            "Cerebras overflow": (400, ""),
            "Cerebras overflow, 413": (413, ""),
            "Gemini's list": (
                400,
                [
                    {
                        "error": {
                            "code": 400,
                            "message": f"The input token count (2) exceeds the maximum {CANARY}",
                        }
                    }
                ],
            ),
            "Ollama's own overflow": (500, {"error": f"prompt too long; exceeded context length {CANARY}"}),
            "an overflow in plain text": (400, f"the request exceeds the available context size {CANARY}"),
        },
    ),
    **by_body(
        ModelNotFound,
        {
            "vLLM has no such model": (
                404,
                {"object": "error", "message": f"The model `x.1` does not exist. {CANARY}", "code": 404},
            ),
            "OpenRouter has no such model": (
                404,
                {"error": {"message": f"No endpoints found for x/y. {CANARY}"}},
            ),
            "Azure has no such deployment": (
                404,
                {"error": {"code": "DeploymentNotFound", "message": CANARY}},
            ),
            "Ollama's own missing model": (
                404,
                {"error": f"model 'llama9.2' not found, try pulling it {CANARY}"},
            ),
        },
    ),
    **by_body(
        ApiNotFound,
        {
            "no such path": (404, f"404 page not found {CANARY}"),
            "no such path, as JSON": (404, {"detail": "Not Found", "x": CANARY}),
            "a page that takes no questions": (405, f"<h1>Method Not Allowed</h1> {CANARY}"),
            "moved": (301, f"<h1>Moved</h1> {CANARY}"),
            "moved, ask again there": (308, CANARY),
        },
    ),
    **by_body(
        BadRequest,
        {
            "no overflow, in plain text": (400, f"no {CANARY}"),
            "no overflow, in another field": (400, {"detail": CANARY}),
            "no overflow, in one word": (400, {"error": CANARY}),
            "FastAPI's word": (422, {"detail": f"Extra inputs are not permitted {CANARY}"}),
        },
    ),
    **by_text(
        VisionUnsupported,
        400,
        {
            "LM Studio without pictures": "Model does not support images. Please use a model that does.",
            "vLLM without pictures": "/models/x is not a multimodal model",
            "Ollama without pictures": "this model is missing data required for image input",
        },
        kind=BAD,
    ),
    **by_text(
        ToolsUnsupported,
        400,
        {
            "Ollama without tools": "registry.ollama.ai/library/gemma:2b does not support tools",
            "vLLM without tools": '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
            "OpenAI without tools": "'tools' is not supported with this model.",
        },
        kind=BAD,
    ),
    **by_text(
        ReasoningUnsupported,
        400,
        {
            "Ollama without thinking": '"llama3.2" does not support thinking',
            "Ollama without such thinking": 'think value "low" is not supported for this model',
            "vLLM without such an effort": "[{'loc': ('body', 'reasoning_effort'), 'msg': \"Input should be 'low'\"}]",
        },
        kind=BAD,
    ),
    "llama.cpp without tools": Row(
        ToolsUnsupported, 500, "server_error", "tools param requires --jinja flag"
    ),
    "llama.cpp without pictures": Row(
        VisionUnsupported, 500, "server_error", "image input is not supported - you may need the mmproj"
    ),
    "a picture too large": Row(BadRequest, 400, BAD, "This model does not support images over 5 MB."),
    "Ollama has no such model": Row(ModelNotFound, 404, text="model 'llama9.2' not found", only_status=True),
    "no such model, 400": Row(
        ModelNotFound, 400, text="The requested model 'gpt-9.9' does not exist.", only_status=True
    ),
    "DeepSeek without money": Row(PaymentRequired, 402, text="Insufficient Balance", only_status=True),
    "Moonshot without money": Row(PaymentRequired, 429, "exceeded_current_quota_error"),
    "llama.cpp loads": Row(
        ModelLoading, 503, "unavailable_error", "Loading model", only_status=True, retry_after=5
    ),
    "Hugging Face loads": Row(
        ModelLoading, 503, text="Model org/m is currently loading", only_status=True, retry_after=5
    ),
    "KServe loads": Row(
        ModelLoading, 503, text="Model with name m is not ready.", only_status=True, retry_after=5
    ),
    "Go wants https": Row(
        ServerSpeaksHttps, 400, text="Client sent an HTTP request to an HTTPS server.", only_status=True
    ),
    "llama.cpp overflow": Row(ContextOverflow, 400, "exceed_context_size_error"),
}
PROXIES = {
    "bad gateway": Row(ModelUnavailable, 502, body=PAGE),
    "gateway timeout": Row(ModelTimeout, 504, body=PAGE),
    "nginx: too many bytes": Row(ContextOverflow, 413, body=PAGE),
    "redirect": Row(ApiNotFound, 307, body=PAGE, headers=(("location", "http://127.0.0.1:1/"),)),
    "bad request": Row(BadRequest, 400, body=PAGE),
    "nginx wants https": Row(
        ServerSpeaksHttps, 400, body=f"<h1>The plain HTTP request was sent to HTTPS port {CANARY}</h1>"
    ),
    "Apache wants https": Row(
        ServerSpeaksHttps, 400, body=f"{CANARY}: You're speaking plain HTTP to an SSL-enabled server port."
    ),
    "log in first": Row(Unauthorized, 401, body=PAGE),
}


@dataclass(frozen=True)
class Case:
    """One row in one shape, for one API; a ``plain`` one asks the SDK itself, without a stream."""

    api: type
    name: str
    reply: Reply
    expected: type[ProviderError] | None
    retryable: bool
    retry_after: float | None = None
    began: bool = field(default=False)
    """Whether an answer had begun: then the failure tells what it used."""
    plain: bool = False
    row: Row | None = None
    """What else the failure has to tell, in every shape."""

    def __str__(self) -> str:
        return f"{self.api.__name__}, {'plain' if self.plain else 'streaming'}: {self.name}"


def _retryable(said: Row) -> bool:
    return said.passes and said.expected in RETRYABLE


def as_status(api: type, name: str, said: Row) -> Iterator[Case]:
    """Both with ``stream=True`` and without, a failed request is answered by its status."""
    if said.body is not None:
        reply = error(said.status, said.body, said.headers)
    elif api is MESSAGES:
        reply = a.fault(said.status, said.kind, f"{said.text} {CANARY}", said.code or "")
    else:
        reply = o.fault(said.status, said.code, f"{said.text} {CANARY}", said.kind or "error")
    reply = Reply(reply.steps, reply.status, (*reply.headers, *(said.headers if said.body is None else ())))
    retryable = _retryable(said) if said.retryable is None else said.retryable
    for plain in (False, True):
        yield Case(api, name, reply, said.expected, retryable, said.retry_after, plain=plain, row=said)


def as_event(api: type, name: str, said: Row) -> Iterator[Case]:
    """After 200 and half an answer, in each form that this API has for it; no header belongs to it any more."""
    if said.body is not None or said.only_status:
        return
    text, code = f"{said.text} {CANARY}", said.code or said.kind
    words = {"message": text, "code": code, "type": said.kind or "error", "param": None}
    events = {
        MESSAGES: {
            "error event": a.event(
                "error", error={"type": said.kind, "message": text, "details": {"error_code": said.code}}
            )
        },
        RESPONSES: {
            "flat error": o.data(**{**words, "type": "error", "sequence_number": 9}),
            "nested error": o.data(type="error", error=words),
            "response.failed": o.completed("failed", error={"code": code, "message": text}),
        },
        CHAT: {
            "error chunk": o.data(error=words),
            "error beside no choices": o.data(
                id="x", object="chat.completion.chunk", choices=None, error=words
            ),
        },
    }
    retry_after = 5 if said.expected is ModelLoading else None
    for form, event in events[api].items():
        reply = HELLO[api].keep(UP_TO_SECOND_DELTA[api], event)
        retryable = _retryable(said)
        case = Case(api, f"{name}, {form}", reply, said.expected, retryable, retry_after, began=True)
        yield replace(case, row=said)


def as_number(name: str, said: Row) -> Iterator[Case]:
    """Gateways put the status of what is behind them into an event, or into an answer that has no choices."""
    if said.body is not None or said.status >= 600:
        return
    words = {"code": said.status, "message": f"{said.text} {CANARY}"}
    retryable = _retryable(said) and said.status != 499
    after = 5 if said.expected is ModelLoading else None
    flat = {"object": "error", **words}
    streams = {
        "number in a chunk": o.data(error=words),
        "an error for a chunk": o.data(**flat),
        "error event": f"event: error\ndata: {json.dumps(words)}\n\n".encode(),
    }
    for form, event in streams.items():
        reply = HELLO[CHAT].keep(UP_TO_SECOND_DELTA[CHAT], event)
        yield Case(CHAT, f"{name}, {form}", reply, said.expected, retryable, after, began=True, row=said)
    bodies = {
        "JSON for a stream": {"id": "x", "object": "chat.completion", "choices": None, "error": words},
        "an error for a stream": flat,
    }
    for form, body in bodies.items():
        yield Case(CHAT, f"{name}, {form}", error(200, body), said.expected, retryable, after, row=said)


def completion(finish: str | None = "stop", **said: Any) -> Reply:
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": None, **said}}
    body = {"id": "c", "object": "chat.completion", "created": 0, "model": "fake", "choices": [choice]}
    return error(200, body, [("x-canary", CANARY)])


def item(*parts: Any) -> dict[str, Any]:
    return {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": parts}


ok = partial(error, 200)
REFUSED = {"type": "refusal", "refusal": CANARY}
CHAT_CALL = {"id": "c", "type": "function", "function": {"name": "go", "arguments": "{}"}}
BLANK_THOUGHT = a.event("content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": ""})
CYBER = {"type": "refusal", "category": "cyber"}

RETURNED = {
    MESSAGES: {
        "whole": (ok({"type": "message", "content": [{"type": "text", "text": CANARY}]}), None),
        "an error": (
            ok({"type": "error", "error": {"type": "overloaded_error", "message": CANARY}}),
            ModelUnavailable,
        ),
        "an error, no money": (
            ok({"type": "error", "error": {"type": "billing_error", "message": CANARY}}),
            PaymentRequired,
        ),
        "something else": (ok({"hello": CANARY}), UnreadableAnswer),
        "a list": (ok([CANARY]), UnreadableAnswer),
    },
    RESPONSES: {
        "whole": (
            ok({"status": "completed", "output": [item({"type": "output_text", "text": CANARY})]}),
            None,
        ),
        "whole, cut short": (
            ok({"status": "incomplete", "output": [], "incomplete_details": {"reason": CANARY}}),
            ModelUnavailable,
        ),
        "an error": (ok({"error": {"code": "insufficient_quota", "message": CANARY}}), PaymentRequired),
        "something else": (ok({"hello": CANARY}), UnreadableAnswer),
    },
    CHAT: {
        "whole": (completion(content=CANARY), None),
        "a call": (completion("tool_calls", tool_calls=[CHAT_CALL]), None),
        "out of tokens": (completion("length"), None),
        "no choices": (ok({"id": CANARY, "choices": None}), ModelUnavailable),
        "no choice": (ok({"id": CANARY, "choices": []}), ModelUnavailable),
        "an error in words": (ok({"error": CANARY}), UnknownFailure),
        "an error in the choice": (
            ok({"choices": [{"index": 0, "error": {"code": 429, "message": CANARY}}]}),
            RateLimited,
        ),
        "no finish reason": (completion(None, content=CANARY), None),
        "broken off": (completion("error", content=CANARY), ModelUnavailable),
        "filtered": (completion("content_filter", content=CANARY), ContentPolicy),
        "refused": (completion(refusal=CANARY), ContentPolicy),
        "window used up": (completion("model_context_window_exceeded", content=CANARY), ContextOverflow),
        "empty": (completion(), EmptyAnswer),
        "blank": (completion(content=""), EmptyAnswer),
        "something else": (ok({"hello": CANARY}), UnreadableAnswer),
    },
}


def broken(api: type) -> dict[str, tuple[Reply, type[ProviderError]]]:
    """What can go wrong with a stream itself."""
    hello, shown = HELLO[api], UP_TO_SECOND_DELTA[api]
    name = b"content_block_delta" if api is MESSAGES else b"x"
    said = a.stream if api is MESSAGES else o.stream

    def event(data: bytes) -> bytes:
        return b"event: %b\ndata: %b\n\n" % (name, data)

    return {
        "reset midway": (hello.keep(shown, Cut("rst")), ModelConnection),
        "hung up midway": (hello.keep(shown, Cut("fin")), ModelConnection),
        "stalled midway": (hello.keep(shown, Stall()), ModelTimeout),
        "stalled among comments": (hello.keep(shown, Stall(b": keep-alive\n\n")), ModelTimeout),
        "stalled among pings": (hello.keep(shown, Stall(a.ping())), ModelTimeout),
        "no terminal event": (hello.keep(shown), ModelUnavailable),
        "cut inside an event": (hello.keep(shown, hello.steps[shown][:-20]), ModelUnavailable),
        "broken JSON": (hello.keep(shown, event(f'{{"type": "{CANARY}'.encode())), ModelUnavailable),
        "bytes that are no text": (hello.keep(shown, event(b"\xff\xfe")), ModelUnavailable),
        "an event of another shape": (hello.keep(shown, event(b"[1]")), UnreadableAnswer),
        "no last event": (hello.keep(-1), None if api is CHAT else ModelUnavailable),
        "empty stream": (said(), ModelUnavailable),
        "page": (ok(PAGE), UnreadableAnswer),
        "words": (Reply((CANARY.encode(),), headers=(("content-type", "text/plain"),)), UnreadableAnswer),
        "an empty page": (ok(""), ModelUnavailable),
        "no HTTP": (Reply(silent=(Garbage(),)), ModelConnection),
        "hung up before a word": (Reply(silent=(Cut(),)), ModelConnection),
        "reset before a word": (Reply(silent=(Cut("rst"),)), ModelConnection),
        "silent": (Reply(silent=(Stall(),)), ModelTimeout),
        "silent after the head": (said(Stall()), ModelTimeout),
    }


def incomplete(reason: str) -> Reply:
    end = o.completed("incomplete", incomplete_details={"reason": reason})
    return o.response_answer(o.Text("x"), end=end)


CLAUDE_HELLO = HELLO[MESSAGES]
ENDINGS = {
    MESSAGES: {
        "refused": (a.answer(a.Tool("t", CANARY), stop="refusal", stop_details=CYBER), ContentPolicy),
        "window used up": (a.answer(a.Text("x"), stop="model_context_window_exceeded"), ContextOverflow),
        "empty": (a.answer(), EmptyAnswer),
        "a blank block": (a.answer(a.Text("")), EmptyAnswer),
        "stalled among blank thoughts": (a.answer(a.Think("")).keep(3, Stall(BLANK_THOUGHT)), ModelTimeout),
        "an error nobody knows": (CLAUDE_HELLO.keep(5, a.error_event("surprise_error")), UnknownFailure),
        "an error that is no JSON": (CLAUDE_HELLO.keep(5, b"event: error\ndata: oops\n\n"), UnknownFailure),
        "a delta without its block": (CLAUDE_HELLO.keep(2, *CLAUDE_HELLO.steps[3:]), UnknownFailure),
    },
    RESPONSES: {
        "refused": (o.response_answer(o.Raw(item(REFUSED))), ContentPolicy),
        "filtered": (incomplete("content_filter"), ContentPolicy),
        "incomplete": (incomplete(CANARY), ModelUnavailable),
        "empty": (o.response_answer(), EmptyAnswer),
        "failed for no reason": (o.response_answer(o.Text("x"), end=o.completed("failed")), UnknownFailure),
        "a call under a refusal": (
            o.response_answer(o.Tool("c1", "rm"), o.Raw(item(REFUSED))),
            ContentPolicy,
        ),
    },
    CHAT: {
        "refused": (o.stream(o.chunk({"refusal": CANARY}), o.chunk(finish="stop")), ContentPolicy),
        "filtered": (o.chat_answer(o.Text("x"), finish="content_filter"), ContentPolicy),
        "broken off": (o.chat_answer(o.Text("x"), finish="error"), ModelUnavailable),
        "window used up": (
            o.chat_answer(o.Text("x"), finish="model_context_window_exceeded"),
            ContextOverflow,
        ),
        "empty": (o.chat_answer(), EmptyAnswer),
        "an error in words": (HELLO[CHAT].keep(3, o.data(error=CANARY)), UnknownFailure),
        "no finish reason": (o.chat_answer(o.Text("Hello, world"), finish=None), None),
        "no finish reason and no [DONE]": (
            o.chat_answer(o.Text("Hello, world"), finish=None, done=False),
            ModelUnavailable,
        ),
        "only [DONE]": (o.stream(o.DONE), ModelUnavailable),
    },
}


def cases() -> Iterator[Case]:
    tables = {MESSAGES: ANTHROPIC, RESPONSES: OPENAI, CHAT: OPENAI | COMPATIBLE}
    for api, rows in tables.items():
        for name, said in (rows | PROXIES).items():
            yield from as_status(api, name, said)
            yield from as_event(api, name, said)
    for name, said in (OPENAI | COMPATIBLE).items():
        if said.only_status or said.window or said.part or said.room:
            yield from as_number(name, said)
    for api, answers in RETURNED.items():
        for name, (reply, expected) in answers.items():
            yield Case(api, f"{name}, JSON for a stream", reply, expected, expected in RETRYABLE)
    for api in tables:
        for name, (reply, expected) in (broken(api) | ENDINGS[api]).items():
            yield Case(api, name, reply, expected, expected in RETRYABLE or name == "page")


CASES = list(cases())


class Providers:
    """One server, and the three APIs' models and clients over it, made once."""

    def __init__(self, fake: FakeProvider, http) -> None:
        self.fake = fake
        self.models = {
            (api, quick): model_at(fake.base_url, api, http, **(QUICK if quick else {}))
            for api in (MESSAGES, RESPONSES, CHAT)
            for quick in (True, False)
        }
        common = {"api_key": "sk-x", "http_client": http(), "max_retries": 0, "timeout": 5}
        self.claude = anthropic.AsyncAnthropic(base_url=fake.base_url, **common)
        self.gpt = openai.AsyncOpenAI(base_url=f"{fake.base_url}/v1", **common)

    async def ask(self, case: Case) -> ProviderError | None:
        """Return what came of it; the server gives the case's reply to whatever is asked."""
        self.fake.requests.clear()
        self.shown = ""
        self.fake.script = lambda _: case.reply
        quick = case.expected is ModelTimeout and case.reply.status == 200
        try:
            if case.plain:
                await self._plain(case.api)
            else:
                await self.models[case.api, quick].complete(ask(), self._listen)
        except Exception as error:  # noqa: BLE001
            return classify(error)
        return None

    async def _listen(self, event: TurnEvent) -> None:
        self.shown += event.text

    async def _plain(self, api: type) -> None:
        messages = [{"role": "user", "content": "hi"}]
        if api is MESSAGES:
            await self.claude.messages.create(max_tokens=9, messages=messages, model="m")
        elif api is RESPONSES:
            await self.gpt.responses.create(input="hi", model="m")
        else:
            await self.gpt.chat.completions.create(messages=messages, model="m")


@pytest.fixture(scope="module")
async def providers(anyio_backend, http) -> AsyncIterator[Providers]:
    async with FakeProvider([]) as fake:
        yield Providers(fake, http)


@pytest.mark.parametrize("case", CASES, ids=map(str, CASES))
async def test_every_row_in_every_shape_has_its_type(providers, case):
    failure = await providers.ask(case)
    if case.expected is None:
        assert failure is None
        return
    assert type(failure) is case.expected, failure
    assert failure.retryable is case.retryable
    assert failure.retry_after == case.retry_after
    assert len(providers.fake.requests) == 1
    if case.row and isinstance(failure, ContextOverflow):
        assert failure.window == case.row.window
    if case.row and case.row.room and isinstance(failure, NoAnswerRoom):
        assert failure.room == case.row.room
    if case.row and isinstance(failure, PartRefused):
        assert failure.refusal.part == case.row.part
    assert CANARY not in explain(failure, "7f3a")
    if not case.plain:
        assert (failure.fields["provider"], failure.fields["model"]) == ("p", "m")
        assert (failure.usage is not None) >= case.began
        assert providers.shown.startswith("Hello, w") or not case.began


STATUSES = {301, 308, 400, 401, 402, 403, 404, 405, 408, 409, 413, 422, 429, 499, 500, 502, 503, 504, 529}


def body_of(case: Case) -> str:
    return b"".join(step for step in case.reply.steps if isinstance(step, bytes)).decode(errors="replace")


def test_every_code_wording_and_status_that_is_classified_occurs():
    bodies = "\n".join(map(body_of, CASES))
    for rule in RULES:
        for part in re.findall("[a-z_]{4,}", rule.codes.pattern.replace(r"\w", "") if rule.codes else ""):
            assert part in bodies
        for wording in rule.words.pattern[3:-1].split(")|(?:") if rule.words else ():
            assert wording.startswith("^") or re.search(wording, bodies, re.IGNORECASE), wording
    assert {case.reply.status for case in CASES} >= STATUSES


def test_every_reply_that_has_words_has_the_canary_among_them():
    for case in CASES:
        body = body_of(case)
        if body and case.reply.headers[0][1] != a.SSE[0][1]:
            assert CANARY in body or CANARY in str(case.reply.headers), str(case)
