"""Anthropic's Messages API on loopback, for `bot.extensions.anthropic.messages`: the wire as captured.

One `Reply` answers one request.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.http import FakeHttp, Reply, error

SSE = (("content-type", "text/event-stream; charset=utf-8"), ("request-id", "req_fake"))
USAGE = {
    "input_tokens": 10,
    "cache_creation_input_tokens": 3,
    "cache_read_input_tokens": 5,
    "output_tokens": 1,
}


class FakeAnthropic(FakeHttp):
    paths = ("/v1/messages",)


@dataclass(frozen=True)
class Text:
    text: str
    pieces: int = 3


@dataclass(frozen=True)
class Tool:
    """``raw`` replaces the JSON of ``arguments``, to send what is none; ``kind`` may be that of a server's tool."""

    id: str
    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    raw: str | None = None
    kind: str = "tool_use"


@dataclass(frozen=True)
class Think:
    text: str
    signature: str = "c2ln"


@dataclass(frozen=True)
class Raw:
    """A block that comes whole, as redacted thinking does."""

    block: dict[str, Any]


Block = Text | Tool | Think | Raw


def event(name: str, **fields: Any) -> bytes:
    return f"event: {name}\ndata: {json.dumps({'type': name, **fields})}\n\n".encode()


def ping() -> bytes:
    return event("ping")


def stream(*events: bytes) -> Reply:
    return Reply(events, headers=SSE)


def answer(
    *blocks: Block,
    stop: str | None = None,
    usage: dict[str, Any] | None = None,
    end_usage: dict[str, Any] | None = None,
    stop_details: dict[str, Any] | None = None,
) -> Reply:
    """A whole answer, one step an event; the stop reason follows from the blocks if none is given."""
    start = {
        "id": "msg_fake", "type": "message", "role": "assistant", "model": "claude-fake", "content": [],
        "stop_reason": None, "stop_sequence": None, "usage": USAGE if usage is None else usage,
    }  # fmt: skip
    reason = stop or (
        "tool_use"
        if any(isinstance(block, Tool) and block.kind == "tool_use" for block in blocks)
        else "end_turn"
    )
    return stream(
        event("message_start", message=start),
        ping(),
        *(part for index, block in enumerate(blocks) for part in _events(index, block)),
        event(
            "message_delta",
            delta={"stop_reason": reason, "stop_sequence": None, "stop_details": stop_details},
            usage=end_usage or {"output_tokens": 7, "input_tokens": None, "cache_read_input_tokens": None},
        ),
        event("message_stop"),
    )


def _events(index: int, block: Block) -> list[bytes]:
    match block:
        case Text(text, pieces):
            start: dict[str, Any] = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": piece} for piece in split(text, pieces)]
        case Tool(call_id, name, arguments, raw, kind):
            start = {"type": kind, "id": call_id, "name": name, "input": {}}
            written = json.dumps(arguments) if raw is None else raw
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in split(written, 3)]
        case Think(text, signature):
            start = {"type": "thinking", "thinking": "", "signature": ""}
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in split(text, 2)]
            deltas.append({"type": "signature_delta", "signature": signature})
        case Raw(start):
            deltas = []
    return [
        event("content_block_start", index=index, content_block=start),
        *(event("content_block_delta", index=index, delta=delta) for delta in deltas),
        event("content_block_stop", index=index),
    ]


def split(text: str, pieces: int) -> list[str]:
    size = max(1, -(-len(text) // pieces))
    return [text[at : at + size] for at in range(0, len(text), size)]


def fault(status: int, kind: str, message: str = "no", code: str = "", **headers: str) -> Reply:
    """An error of the API; keyword names become headers (``retry_after="3"``)."""
    details = {"details": {"error_code": code}} if code else {}
    body = {"type": "error", "error": {"type": kind, "message": message, **details}, "request_id": "req_fake"}
    return error(
        status, body, [("request-id", "req_fake"), *((k.replace("_", "-"), v) for k, v in headers.items())]
    )


ALWAYS_THINKS = ("fable", "mythos", "opus-5-5")


def thinking_fault(body: dict[str, Any]) -> Reply | None:
    """What the API answers to a request whose thinking the model does not take; None if all is well.

    Written from the public pages on thinking and effort, apart from the product's own table.
    """
    model, thinking = body["model"], body.get("thinking", {})
    kind, effort = thinking.get("type"), body.get("output_config", {}).get("effort")
    new = re.search(r"[a-z]-(4-[678]|5|5-\d)$", model) is not None
    takes = {"adaptive": new, "enabled": not new and "claude-3-5" not in model}
    takes["between_tools"] = "sonnet-5-5" in model
    takes["disabled"] = not takes["between_tools"] and not any(name in model for name in ALWAYS_THINKS)
    text = ""
    if kind is not None and not takes[kind]:
        text = f"thinking.type: `{kind}` is not supported by this model"
    elif effort is not None and (not new or kind in ("disabled", "between_tools")):
        text = "output_config.effort: not supported here"
    elif kind == "enabled" and not 1024 <= thinking["budget_tokens"] < body["max_tokens"]:
        text = "`max_tokens` must be greater than `thinking.budget_tokens`, and that at least 1024"
    elif kind == "enabled" and _begins_without_thinking(body["messages"]):
        text = "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`."
    elif {"temperature", "top_p", "top_k"} & body.keys():
        text = "temperature, top_p and top_k: Extra inputs are not permitted"
    return fault(400, "invalid_request_error", text) if text else None


def _begins_without_thinking(messages: list[dict[str, Any]]) -> bool:
    """Whether the turn at hand has answers of the model, and the first of them does not begin with thinking."""
    first = None
    for message in reversed(messages):
        results = any(block["type"] == "tool_result" for block in message["content"])
        if message["role"] == "user" and not results:
            break
        first = message if message["role"] == "assistant" else first
    return first is not None and first["content"][0]["type"] not in ("thinking", "redacted_thinking")


def error_event(kind: str, message: str = "no") -> bytes:
    return event("error", error={"type": kind, "message": message})
