"""From whatever an SDK *returned* to what is wrong with it, if anything; pure, and free of any SDK.

Neither SDK looks at what a 200 holds: a proxy's page comes back as a ``str``, a gateway's error as an answer without
choices, a refusal as a success. The same is said of whole answers here as the readers say of streamed ones.

| an answer                                                 | is |
| with an error inside                                      | what `failure_of` makes of it |
| without its end: no stop or finish reason, not completed  | `ModelUnavailable` |
| refused or filtered                                       | `ContentPolicy` |
| out of context                                            | `ContextOverflow` |
| with neither text nor a call, though it was not cut off   | `EmptyAnswer` |
| no answer at all: text, a list, None                      | `ModelUnavailable` |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bot.errors import ContentPolicy, ContextOverflow, EmptyAnswer, ModelUnavailable, ProviderError
from bot.llm.classify import Fault, failure_of, shorten

Body = Mapping[str, object]

BROKEN_OFF = frozenset({"error", "abort", "network_error", "insufficient_system_resource"})
"""Finish reasons of OpenRouter, vLLM, Z.ai and DeepSeek for an answer that failed midway."""

OVERFLOW = "model_context_window_exceeded"
"""Anthropic's stop reason, and Z.ai's finish reason, when the window is used up."""


def failure_in(answer: object, headers: Mapping[str, str] | None = None) -> ProviderError | None:
    """Return what is wrong with a whole *answer*, as the SDK gave it or as parsed JSON; None if nothing is."""
    body = _body(answer)
    if body is None:
        return ModelUnavailable(shorten(f"no answer but {type(answer).__name__}: {answer}"))
    if error := body.get("error"):
        return failure_of(Fault(_words(error), body, headers=headers or {}))
    if "choices" in body:
        return _in_choices(body)
    if "status" in body and "output" in body:
        return _in_response(body)
    if "content" in body:
        return _in_message(body)
    return ModelUnavailable(shorten(f"no answer in {sorted(body)}"))


def _in_message(body: Body) -> ProviderError | None:
    """Anthropic's Messages."""
    reason = body.get("stop_reason")
    if reason == "refusal":
        return ContentPolicy(f"refused: {_part(body, 'stop_details').get('category') or 'no category given'}")
    if reason == OVERFLOW:
        return ContextOverflow("the context window was used up while answering")
    if reason is None:
        return ModelUnavailable("the answer has no stop_reason")
    kinds = {
        block.get("type")
        for block in _parts(body, "content")
        if block.get("type") != "text" or block.get("text")
    }
    if kinds <= {"thinking", "redacted_thinking"} and reason not in {"max_tokens", "pause_turn"}:
        return EmptyAnswer(f"an empty answer, stop reason {reason}")
    return None


def _in_choices(body: Body) -> ProviderError | None:
    """Chat Completions."""
    choice = next(_parts(body, "choices"), None)
    if choice is None:
        return ModelUnavailable("the answer has no choices")
    if error := choice.get("error"):
        return failure_of(Fault(_words(error), choice))
    return _in_choice(choice.get("finish_reason"), _part(choice, "message"))


def _in_choice(reason: object, message: Body) -> ProviderError | None:
    refusal = message.get("refusal") or ("content filter" if reason == "content_filter" else None)
    if refusal:
        return ContentPolicy(shorten(f"refused: {refusal}"))
    if reason == OVERFLOW:
        return ContextOverflow("the context window was used up while answering")
    if reason is None or reason in BROKEN_OFF:
        return ModelUnavailable(f"the answer was broken off: finish_reason {reason}")
    if not message.get("content") and not message.get("tool_calls") and reason != "length":
        return EmptyAnswer(f"an empty answer, finish reason {reason}")
    return None


def _in_response(body: Body) -> ProviderError | None:
    """OpenAI's Responses."""
    items = [item for item in _parts(body, "output") if item.get("type") != "reasoning"]
    parts = [part for item in items for part in _parts(item, "content")]
    reason = _part(body, "incomplete_details").get("reason")
    refusal = next((part["refusal"] for part in parts if part.get("refusal")), None)
    if refusal or reason == "content_filter":
        return ContentPolicy(shorten(f"refused: {refusal or 'content filter'}"))
    if body["status"] == "incomplete" and reason == "max_output_tokens":
        return None
    if body["status"] != "completed":
        return ModelUnavailable(f"the response is {body['status']}: {reason or 'no reason given'}")
    if all(item.get("type") == "message" for item in items) and not any(part.get("text") for part in parts):
        return EmptyAnswer("an empty answer")
    return None


def _body(answer: object) -> Body | None:
    """Return *answer* as its JSON, extra fields included; both SDKs' objects have the same way to say it."""
    if callable(as_dict := getattr(answer, "to_dict", None)):
        answer = as_dict(mode="json")
    return answer if isinstance(answer, Mapping) else None


def _part(body: Body, name: str) -> Body:
    part = body.get(name)
    return part if isinstance(part, Mapping) else {}


def _parts(body: Body, name: str) -> Iterator[Body]:
    parts = body.get(name)
    return (part for part in parts if isinstance(part, Mapping)) if isinstance(parts, list) else iter(())


def _words(error: object) -> str:
    words = error.get("message") if isinstance(error, Mapping) else None
    return words if isinstance(words, str) else str(error)
