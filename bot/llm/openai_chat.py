"""Any server that speaks OpenAI's Chat Completions: Ollama, vLLM, llama.cpp, gateways. The common floor only.

| in a chunk          | becomes |
| delta.content       | text, shown at once |
| delta.reasoning…    | thinking, sent back under the very name it came by |
| delta.tool_calls    | more of a call |
| delta.refusal       | the reason of a refusal |
| finish_reason       | whole: without it the answer does not count |
| usage               | usage; it mostly comes last, in a chunk without choices |
| error               | raised |
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from pydantic import JsonValue

from bot.errors import ContentPolicy, ModelUnavailable
from bot.llm.classify import Fault, failure_of
from bot.llm.model import Completion, Request, Stop, ToolSpec, Usage
from bot.llm.sdk import SdkModel
from bot.llm.wire import dump_json, fit, scrub, tool_call
from threads.model import Block, Message, Text, Thinking, ToolCall

if TYPE_CHECKING:
    from openai import AsyncOpenAI, AsyncStream
    from openai.types import CompletionUsage
    from openai.types.chat import (
        ChatCompletionChunk,
        ChatCompletionFunctionToolParam,
        ChatCompletionMessageParam,
    )
    from openai.types.chat.chat_completion_chunk import ChoiceDelta, ChoiceDeltaToolCall

IDS = re.compile(r"[a-zA-Z0-9_-]{1,40}")
"""What a call's id may be: the API refuses more than 40 characters."""

REASONING = ("reasoning_content", "reasoning", "reasoning_text")
"""The names under which servers stream thinking; the API itself has none."""

BROKEN_OFF = ("error", "abort", "network_error", "insufficient_system_resource")
"""Finish reasons of OpenRouter, vLLM, Z.ai and DeepSeek for an answer that failed midway."""


class OpenAIChatModel(SdkModel["AsyncOpenAI", "ChatCompletionChunk"]):
    """One model of an OpenAI-compatible server; without a key a placeholder is sent, as the SDK wants one."""

    no_key = "none"

    def _build(self, api_key: str) -> AsyncOpenAI:
        from openai import AsyncOpenAI  # noqa: PLC0415

        from bot.llm.http import socket_timeout  # noqa: PLC0415

        return AsyncOpenAI(
            api_key=api_key,
            base_url=self._base_url,
            http_client=self._http(),
            timeout=socket_timeout(self._timeouts),
            max_retries=0,
        )

    async def _open(self, client: AsyncOpenAI, request: Request) -> AsyncStream[ChatCompletionChunk]:
        from openai import omit  # noqa: PLC0415

        return await client.chat.completions.create(
            model=self._model,
            max_tokens=request.max_tokens,
            messages=to_wire(request.system, request.messages, self.name),
            tools=tools_to_wire(request.tools) or omit,
            stream=True,
            stream_options={"include_usage": True},
        )

    def _reader(self) -> ChatReader:
        return ChatReader(self.name)


def to_wire(system: str, messages: Sequence[Message], model: str) -> list[ChatCompletionMessageParam]:
    """Return the conversation in the form of Chat Completions: results are messages of their own."""
    wire: list[dict[str, object]] = [{"role": "system", "content": scrub(system)}] if system.strip() else []
    for message in fit(messages, model, IDS):
        wire += [
            {"role": "tool", "tool_call_id": result.call_id, "content": result.content}
            for result in message.results
        ]
        said: dict[str, object] = {}
        if text := "\n\n".join(block.text for block in message.blocks if isinstance(block, Text)):
            said["content"] = text
        for block in message.blocks:
            if isinstance(block, Thinking):
                said |= block.raw
        if message.calls:
            said["tool_calls"] = [_call_to_wire(call) for call in message.calls]
        if said:
            wire.append({"role": message.role, **said})
    return cast("list[ChatCompletionMessageParam]", wire)


def _call_to_wire(call: ToolCall) -> dict[str, object]:
    function = {"name": call.name, "arguments": dump_json(call.arguments)}
    return {"type": "function", "id": call.id, "function": function}


def tools_to_wire(tools: Sequence[ToolSpec]) -> list[ChatCompletionFunctionToolParam]:
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": dict(tool.parameters),
            },
        }
        for tool in tools
    ]


@dataclass(slots=True)
class _OpenCall:
    index: int
    id: str = ""
    name: str = ""
    parts: list[str] = field(default_factory=list)


class ChatReader:
    """The state machine of the table above: pure, one answer long."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._text: list[str] = []
        self._thinking: dict[str, list[str]] = {}
        self._calls: list[_OpenCall] = []
        self._refusal = ""
        self._reason: str | None = None
        self.writing = False
        self.usage = Usage()

    def feed(self, event: ChatCompletionChunk) -> str | None:
        if event.usage:
            self.usage = usage_of(event.usage)
        if error := (event.model_extra or {}).get("error"):
            raise failure_of(Fault(str(error), {"error": error}))
        if not event.choices:
            return None
        choice = event.choices[0]
        self._reason = choice.finish_reason or self._reason
        return self._extend(choice.delta) if choice.delta else None

    def _extend(self, delta: ChoiceDelta) -> str | None:
        alive = False
        extra = delta.model_extra or {}
        if name := next((name for name in REASONING if extra.get(name)), None):
            self._thinking.setdefault(name, []).append(str(extra[name]))
            alive = True
        if delta.refusal:
            self._refusal += delta.refusal
            alive = True
        for call in delta.tool_calls or ():
            self._extend_call(call)
            self.writing = False
            alive = True
        if not delta.content:
            return "" if alive else None
        self._text.append(delta.content)
        self.writing = True
        return scrub(delta.content)

    def _extend_call(self, delta: ChoiceDeltaToolCall) -> None:
        """Add to the call it belongs to; some servers give all calls of an answer the index 0, or none at all."""
        index = delta.index or 0
        call = next((call for call in reversed(self._calls) if call.index == index), None)
        if call is None or (delta.id and call.id and delta.id != call.id):
            call = _OpenCall(index)
            self._calls.append(call)
        call.id = delta.id or call.id
        if delta.function:
            call.name += delta.function.name or ""
            call.parts.append(delta.function.arguments or "")

    def finish(self) -> Completion:
        if self._reason is None or self._reason in BROKEN_OFF:
            raise ModelUnavailable(f"the stream ended without its finish_reason ({self._reason or 'none'})")
        if self._refusal or self._reason == "content_filter":
            raise ContentPolicy(f"refused: {self._refusal or 'content filter'}")
        blocks = list(self._close())
        stop: Stop = "tool_calls" if any(isinstance(block, ToolCall) for block in blocks) else "end"
        if self._reason == "length":
            # A call may have been cut off here, and what is left of it may still parse: none of them is run.
            blocks = [block for block in blocks if not isinstance(block, ToolCall)]
            stop = "length"
        if not blocks and stop != "length":
            raise ModelUnavailable(f"an empty answer, finish reason {self._reason}")
        return Completion(Message("assistant", tuple(blocks), model=self._model), self.usage, stop)

    def _close(self) -> Iterator[Block]:
        for name, parts in self._thinking.items():
            text = scrub("".join(parts))
            raw: dict[str, JsonValue] = {name: text}
            yield Thinking(text, self._model, raw)
        if text := scrub("".join(self._text)):
            yield Text(text)
        for number, call in enumerate(self._calls, start=1):
            yield tool_call(call.id or f"call_{number}", call.name, "".join(call.parts))


def usage_of(usage: CompletionUsage) -> Usage:
    """Return the counts; the API's prompt includes what was read from and written to the cache."""
    details = usage.prompt_tokens_details
    read = (details.cached_tokens if details else None) or 0
    write = (details.cache_write_tokens if details else None) or 0
    return Usage(
        input=max(0, (usage.prompt_tokens or 0) - read - write),
        output=usage.completion_tokens or 0,
        cache_read=read,
        cache_write=write,
    )
