"""OpenAI's Responses API, Chat Completions and transcriptions on loopback: the wire as captured.

One `Reply` answers one request of `bot.extensions.openai.responses`, of `bot.extensions.openai.chat`, or for a text.
"""

import json
from typing import Any

from tests.fakes.anthropic import Raw, Text, Think, Tool, split
from tests.fakes.http import FakeHttp, Reply, error

__all__ = [
    "FakeOpenAI", "Raw", "Text", "Think", "Tool",
    "chat_answer", "chunk", "completed", "data", "fault", "response_answer", "stream", "transcript",
]  # fmt: skip

SSE = (("content-type", "text/event-stream; charset=utf-8"), ("x-request-id", "req_fake"))
DONE = b"data: [DONE]\n\n"
RESPONSE_USAGE = {
    "input_tokens": 18, "input_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 3},
    "output_tokens": 7, "output_tokens_details": {"reasoning_tokens": 2}, "total_tokens": 25,
}  # fmt: skip
CHAT_USAGE = {
    "prompt_tokens": 18, "prompt_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 3},
    "completion_tokens": 7, "total_tokens": 25,
}  # fmt: skip


class FakeOpenAI(FakeHttp):
    """All three APIs; which one a reply belongs to is the script's business."""

    prefix = "/v1"
    paths = ("/v1/responses", "/v1/chat/completions", "/v1/audio/transcriptions")


def data(**fields: Any) -> bytes:
    """One event; in Responses its name is also in the ``type`` field."""
    name = f"event: {fields['type']}\n" if "type" in fields else ""
    return f"{name}data: {json.dumps(fields)}\n\n".encode()


def stream(*events: bytes) -> Reply:
    return Reply(events, headers=SSE)


def fault(status: int, code: str | None, message: str = "no", kind: str = "error", **headers: str) -> Reply:
    """An error of the API; keyword names become headers (``retry_after="3"``)."""
    body = {"error": {"message": message, "type": kind, "param": None, "code": code}}
    return error(
        status, body, [("x-request-id", "req_fake"), *((k.replace("_", "-"), v) for k, v in headers.items())]
    )


# Transcriptions


def transcript(text: str, usage: dict[str, Any] | None = None, **fields: Any) -> Reply:
    """A transcript; *usage* as whisper-1 counts seconds and gpt-4o-transcribe tokens, None as servers that do not."""
    body = {"text": text, **({"usage": usage} if usage else {}), **fields}
    return Reply((json.dumps(body).encode(),), headers=(("content-type", "application/json"),))


def by_seconds(seconds: float) -> dict[str, Any]:
    return {"type": "duration", "seconds": seconds}


def by_tokens(audio: int, written: int) -> dict[str, Any]:
    details = {"text_tokens": 0, "audio_tokens": audio}
    counts = {"input_tokens": audio, "input_token_details": details, "output_tokens": written}
    return {"type": "tokens", **counts, "total_tokens": audio + written}


EFFORTS = {
    "gpt-4o": "",
    "gpt-5": "minimal low medium high",
    "gpt-5-pro": "high",
    "gpt-5-codex": "low medium high",
    "gpt-5.1": "none low medium high",
    "gpt-5.2-pro": "medium high xhigh",
    "gpt-5.5": "none low medium high xhigh",
    "gpt-6-astra": "low medium high xhigh max",
    "gpt-6.1-sol": "none low medium high xhigh max",
    "o3": "low medium high",
}
"""The efforts of some models, from public pages, apart from the product's own table."""


def reasoning_fault(body: dict[str, Any]) -> Reply | None:
    """What Responses answers to a request whose reasoning the model does not take; None if all is well."""
    takes, effort = EFFORTS[body["model"]].split(), body.get("reasoning", {}).get("effort")
    text = ""
    if effort is not None and not takes:
        text = "Unsupported parameter: 'reasoning.effort' is not supported with this model."
    elif effort is not None and effort not in takes:
        text = (
            f"Unsupported value: '{effort}' is not supported with the model. Supported values are: {takes}."
        )
    elif takes and effort != "none" and {"temperature", "top_p"} & body.keys():
        text = "Unsupported parameter: 'temperature' is not supported with this model."
    return fault(400, "unsupported_value", text, kind="invalid_request_error") if text else None


# Responses


def response(status: str, **fields: Any) -> dict[str, Any]:
    return {
        "id": "resp_fake", "object": "response", "created_at": 0, "model": "gpt-fake", "status": status,
        "output": [], "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "error": None,
        "incomplete_details": None, "usage": None, **fields,
    }  # fmt: skip


def completed(status: str = "completed", **fields: Any) -> bytes:
    return data(
        type=f"response.{status}",
        sequence_number=99,
        response=response(status, **{"usage": RESPONSE_USAGE, **fields}),
    )


def response_answer(*blocks: Text | Tool | Think | Raw, end: bytes | None = None) -> Reply:
    """A whole answer, one step an event; *end* replaces the terminal one."""
    return stream(
        data(type="response.created", sequence_number=0, response=response("in_progress")),
        data(type="response.in_progress", sequence_number=1, response=response("in_progress")),
        *(part for index, block in enumerate(blocks) for part in _item_events(index, block)),
        completed() if end is None else end,
    )


def _item_events(index: int, block: Text | Tool | Think | Raw) -> list[bytes]:
    where = {"output_index": index, "sequence_number": 2}
    match block:
        case Text(text, pieces):
            content = [{"type": "output_text", "text": text, "annotations": []}]
            item: dict[str, Any] = {"id": f"msg_{index}", "type": "message", "role": "assistant"}
            item |= {"status": "completed", "content": content}
            kind, deltas = "response.output_text.delta", split(text, pieces)
        case Tool(call_id, name, arguments, raw):
            written = json.dumps(arguments) if raw is None else raw
            item = {"id": f"fc_{index}", "type": "function_call", "call_id": call_id, "name": name}
            item |= {"arguments": written, "status": "completed"}
            kind, deltas = "response.function_call_arguments.delta", split(written, 3)
        case Think(text, signature):
            item = {"id": f"rs_{index}", "type": "reasoning", "encrypted_content": signature}
            item |= {"summary": [{"type": "summary_text", "text": text}]}
            kind, deltas = "response.reasoning_summary_text.delta", split(text, 2)
        case Raw(item):
            kind, deltas = "", []
    place = {"item_id": item.get("id"), "content_index": 0, "summary_index": 0, "logprobs": []}
    return [
        data(type="response.output_item.added", item=item, **where),
        *(data(type=kind, delta=delta, **place, **where) for delta in deltas),
        data(type="response.output_item.done", item=item, **where),
    ]


# Chat Completions


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **fields: Any) -> bytes:
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    head = {"id": "chatcmpl-fake", "object": "chat.completion.chunk", "created": 0, "model": "fake"}
    return data(**{**head, "choices": [choice], **fields})


def chat_answer(*blocks: Text | Tool | Think, finish: str | None = "", done: bool = True) -> Reply:
    """A whole answer, one step a chunk; *finish* None leaves the finish reason out, blank derives it."""
    parts = [chunk({"role": "assistant", "content": ""})]
    calls = 0
    for block in blocks:
        match block:
            case Text(text, pieces):
                parts += [chunk({"content": piece}) for piece in split(text, pieces)]
            case Think(text, _):
                parts += [chunk({"reasoning_content": piece}) for piece in split(text, 2)]
            case Tool(call_id, name, arguments, raw):
                written = json.dumps(arguments) if raw is None else raw
                head = {"index": calls, "id": call_id, "type": "function"}
                parts.append(chunk({"tool_calls": [{**head, "function": {"name": name, "arguments": ""}}]}))
                parts += [
                    chunk({"tool_calls": [{"index": calls, "function": {"arguments": piece}}]})
                    for piece in split(written, 3)
                ]
                calls += 1
    if finish is not None:
        parts.append(chunk(finish=finish or ("tool_calls" if calls else "stop")))
    parts.append(chunk(choices=[], usage=CHAT_USAGE))
    return stream(*parts, *([DONE] if done else []))
