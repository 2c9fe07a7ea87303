"""OpenAI's own models, over the Responses API; nothing is stored at the provider (``store=False``).

| event                           | becomes |
| response.output_text.delta      | text, shown at once |
| response.output_item.done       | a block, whole: text, call, or reasoning with its encrypted content |
| response.refusal.*              | the reason of a refusal |
| any other delta, or item.added  | a sign of life |
| response.completed, .incomplete | whole: without one of them the answer does not count |
| response.failed, error          | raised |
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, assert_never, cast

from pydantic import JsonValue

from bot.errors import ContentPolicy, ModelUnavailable
from bot.llm.classify import Fault, failure_of
from bot.llm.model import Completion, Request, Stop, ToolSpec, Usage
from bot.llm.sdk import SdkModel
from bot.llm.wire import dump_json, fit, scrub, scrub_json, tool_call
from threads.model import Block, Message, Text, Thinking, ToolCall, ToolResult

if TYPE_CHECKING:
    from openai import AsyncOpenAI, AsyncStream
    from openai.types.responses import (
        FunctionToolParam,
        Response,
        ResponseInputItemParam,
        ResponseOutputItem,
        ResponseStreamEvent,
        ResponseUsage,
    )

IDS = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""What a call's id may be here: the API refuses more than 64 characters."""

WITHOUT_REASONING = ("gpt-3", "gpt-4", "chatgpt")
"""Older families answer 400 "Encrypted content is not supported with this model" when asked for it
(github.com/NousResearch/hermes-agent/pull/24234)."""


class OpenAIResponsesModel(SdkModel["AsyncOpenAI", "ResponseStreamEvent"]):
    """One model of OpenAI."""

    def _build(self, api_key: str) -> AsyncOpenAI:
        from openai import AsyncOpenAI  # noqa: PLC0415

        from bot.llm.http import socket_timeout  # noqa: PLC0415

        _warm_up()
        return AsyncOpenAI(
            api_key=api_key,
            base_url=self._base_url,
            http_client=self._http(),
            timeout=socket_timeout(self._timeouts),
            max_retries=0,
        )

    async def _open(self, client: AsyncOpenAI, request: Request) -> AsyncStream[ResponseStreamEvent]:
        from openai import omit  # noqa: PLC0415

        return await client.responses.create(
            model=self._model,
            max_output_tokens=request.max_tokens,
            instructions=scrub(request.system) or omit,
            input=to_wire(request.messages, self.name),
            tools=tools_to_wire(request.tools) or omit,
            prompt_cache_key=cache_key(request.cache_key) or omit,
            include=omit if self._model.startswith(WITHOUT_REASONING) else ["reasoning.encrypted_content"],
            store=False,
            stream=True,
            stream_options={"include_obfuscation": False},
        )

    def _reader(self) -> ResponsesReader:
        return ResponsesReader(self.name)


def _warm_up() -> None:
    """Read one canned answer: the SDK builds its types at first use, 0.6 s that would stop the event loop."""
    import httpx2  # noqa: PLC0415
    from openai import OpenAI  # noqa: PLC0415

    event = '{"type":"response.created","response":{"id":"r","object":"response","output":[]}}'
    canned = httpx2.MockTransport(lambda _: httpx2.Response(200, text=f"data: {event}\n\n"))
    with OpenAI(
        api_key="none", base_url="http://none", http_client=httpx2.Client(transport=canned)
    ) as client:
        list(client.responses.create(model="none", input="none", stream=True))


def cache_key(key: str) -> str:
    """Return *key* in the 64 characters that the API allows."""
    return key if len(key) <= 64 else hashlib.sha256(key.encode()).hexdigest()


def to_wire(messages: Sequence[Message], model: str) -> list[ResponseInputItemParam]:
    """Return the conversation as the flat list of items of the Responses API."""
    return [
        _block_to_wire(message, block) for message in fit(messages, model, IDS) for block in message.blocks
    ]


def _block_to_wire(message: Message, block: Block) -> ResponseInputItemParam:
    match block:
        case Text(text):
            return {"role": message.role, "content": text}
        case ToolCall(call_id, name, arguments):
            return {
                "type": "function_call",
                "call_id": call_id,
                "name": name,
                "arguments": dump_json(arguments),
            }
        case ToolResult(call_id, content):
            return {"type": "function_call_output", "call_id": call_id, "output": content}
        case Thinking():
            return cast("ResponseInputItemParam", block.raw)
        case _:
            assert_never(block)


def tools_to_wire(tools: Sequence[ToolSpec]) -> list[FunctionToolParam]:
    return [
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": dict(tool.parameters),
            "strict": False,
        }
        for tool in tools
    ]


class ResponsesReader:
    """The state machine of the table above: pure, one answer long."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._blocks: list[Block] = []
        self._refusal = ""
        self._stop: Stop | None = None
        self.writing = False
        self.usage = Usage()

    def feed(self, event: ResponseStreamEvent) -> str | None:
        match event.type:
            case "response.output_text.delta":
                self.writing = self.writing or bool(event.delta)
                return scrub(event.delta) or None
            case "response.output_item.done":
                self.writing = False
                self._blocks += self._blocks_of(event.item)
                return ""
            case "response.refusal.delta":
                self._refusal += event.delta
                return ""
            case "response.completed":
                self._end(event.response, "end")
            case "response.incomplete":
                self._cut_off(event.response)
            case "response.failed":
                self._end(event.response, "end")
                error = event.response.error
                body = error.to_dict() if error else None
                raise failure_of(Fault(error.message if error else "the response failed", body))
            case "error":
                raise failure_of(Fault(event.message, event.to_dict()))
            case kind if kind == "response.output_item.added" or kind.endswith(".delta"):
                return ""
        return None

    def _blocks_of(self, item: ResponseOutputItem) -> Iterator[Block]:
        match item.type:
            case "message":
                for part in item.content:
                    if part.type == "refusal":
                        self._refusal = part.refusal or self._refusal or "no reason given"
                    elif part.text:
                        yield Text(scrub(part.text))
            case "function_call":
                yield tool_call(item.call_id, item.name, item.arguments)
            case "reasoning":
                raw = scrub_json(cast("dict[str, JsonValue]", item.to_dict(mode="json")))
                yield Thinking(scrub("\n\n".join(part.text for part in item.summary)), self._model, raw)

    def _cut_off(self, response: Response) -> None:
        reason = response.incomplete_details.reason if response.incomplete_details else None
        self._end(response, "length")
        if reason == "content_filter":
            self._refusal = self._refusal or "content filter"
        elif reason != "max_output_tokens":
            raise ModelUnavailable(f"the response is incomplete: {reason}")

    def _end(self, response: Response, stop: Stop) -> None:
        self._stop = stop
        self.usage = usage_of(response.usage)

    def finish(self) -> Completion:
        if self._stop is None:
            raise ModelUnavailable("the stream ended without its response.completed")
        if self._refusal:
            raise ContentPolicy(f"refused: {self._refusal}")
        blocks, stop = self._blocks, self._stop
        if stop == "length":
            # A call may have been cut off here, and what is left of it may still parse: none of them is run.
            blocks = [block for block in blocks if not isinstance(block, ToolCall)]
        elif any(isinstance(block, ToolCall) for block in blocks):
            stop = "tool_calls"
        if not blocks and stop != "length":
            raise ModelUnavailable("an empty answer")
        return Completion(Message("assistant", tuple(blocks), model=self._model), self.usage, stop)


def usage_of(usage: ResponseUsage | None) -> Usage:
    """Return the counts; the API's input includes what was read from and written to the cache."""
    if usage is None:
        return Usage()
    details = usage.input_tokens_details
    read = getattr(details, "cached_tokens", None) or 0
    write = getattr(details, "cache_write_tokens", None) or 0
    return Usage(
        input=max(0, (usage.input_tokens or 0) - read - write),
        output=usage.output_tokens or 0,
        cache_read=read,
        cache_write=write,
    )
