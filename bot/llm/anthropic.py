"""Claude, and servers that speak Anthropic's Messages API: both directions of the wire.

The reader takes the raw events: the SDK's own accumulator turns tool arguments that were cut off into ``{}``.

| event               | becomes |
| message_start       | usage |
| content_block_start | an open block; what is neither text nor a call is kept as it came, to be sent back |
| content_block_delta | more of that block; text is shown at once |
| content_block_stop  | the text, if it was one, pauses |
| message_delta       | stop reason, usage |
| message_stop        | whole: without it the answer does not count |
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, assert_never, cast

from pydantic import JsonValue

from bot.errors import ContentPolicy, ContextOverflow, ModelUnavailable
from bot.llm.model import Completion, Request, Stop, ToolSpec, Usage
from bot.llm.sdk import SdkModel
from bot.llm.wire import fit, scrub, scrub_json, tool_call
from threads.model import Block, Message, Text, Thinking, ToolCall, ToolResult

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic, AsyncStream
    from anthropic.types import (
        ContentBlockParam,
        MessageDeltaUsage,
        MessageParam,
        RawContentBlockDelta,
        RawMessageStreamEvent,
        ToolParam,
    )
    from anthropic.types import Usage as StartUsage

IDS = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""What a tool call's id may be; anything else is a 400 (the API's own pattern)."""


class AnthropicModel(SdkModel["AsyncAnthropic", "RawMessageStreamEvent"]):
    """One Claude model."""

    def _build(self, api_key: str) -> AsyncAnthropic:
        from anthropic import AsyncAnthropic  # noqa: PLC0415

        from bot.llm.http import socket_timeout  # noqa: PLC0415

        return AsyncAnthropic(
            api_key=api_key,
            base_url=self._base_url,
            http_client=self._http(),
            timeout=socket_timeout(self._timeouts),
            max_retries=0,
            open_telemetry=False,
        )

    async def _open(self, client: AsyncAnthropic, request: Request) -> AsyncStream[RawMessageStreamEvent]:
        from anthropic import omit  # noqa: PLC0415

        return await client.messages.create(
            model=self._model,
            max_tokens=request.max_tokens,
            system=scrub(request.system) or omit,
            messages=to_wire(request.messages, self.name),
            tools=tools_to_wire(request.tools) or omit,
            # Without a key the call is one of a kind: writing its prompt to the cache would only cost.
            cache_control={"type": "ephemeral"} if request.cache_key else omit,
            stream=True,
        )

    def _reader(self) -> MessagesReader:
        return MessagesReader(self.name)


def to_wire(messages: Sequence[Message], model: str) -> list[MessageParam]:
    """Return the conversation in the form of the Messages API."""
    wire = [
        {"role": message.role, "content": [_block_to_wire(block) for block in message.blocks]}
        for message in fit(messages, model, IDS)
    ]
    return cast("list[MessageParam]", wire)


def _block_to_wire(block: Block) -> ContentBlockParam:
    match block:
        case Text(text):
            return {"type": "text", "text": text}
        case ToolCall(call_id, name, arguments):
            return {"type": "tool_use", "id": call_id, "name": name, "input": dict(arguments)}
        case ToolResult(call_id, content, is_error):
            return {"type": "tool_result", "tool_use_id": call_id, "content": content, "is_error": is_error}
        case Thinking():
            return cast("ContentBlockParam", block.raw)
        case _:
            assert_never(block)


def tools_to_wire(tools: Sequence[ToolSpec]) -> list[ToolParam]:
    return [
        {"name": tool.name, "description": tool.description, "input_schema": dict(tool.parameters)}
        for tool in tools
    ]


@dataclass(slots=True)
class _Open:
    """A block being written: ``raw`` as it began, ``parts`` of its text or its arguments."""

    raw: dict[str, JsonValue]
    parts: list[str] = field(default_factory=list)


class MessagesReader:
    """The state machine of the table above: pure, one answer long."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._blocks: dict[int, _Open] = {}
        self._counts: dict[str, int] = {}
        self._stop: str | None = None
        self._refusal = ""
        self._whole = False
        self.writing = False

    @property
    def usage(self) -> Usage:
        count = self._counts.get
        return Usage(
            input=count("input_tokens", 0),
            output=count("output_tokens", 0),
            cache_read=count("cache_read_input_tokens", 0),
            cache_write=count("cache_creation_input_tokens", 0),
        )

    def feed(self, event: RawMessageStreamEvent) -> str | None:
        match event.type:
            case "content_block_delta":
                return self._extend(self._blocks[event.index], event.delta)
            case "content_block_start":
                block = event.content_block
                self._blocks[event.index] = _Open(cast("dict[str, JsonValue]", block.to_dict(mode="json")))
                return self._show(block.text) if block.type == "text" else ""
            case "content_block_stop":
                self.writing = False
                return ""
            case "message_start":
                self._count(event.message.usage)
            case "message_delta":
                self._stop = event.delta.stop_reason
                if details := event.delta.stop_details:
                    self._refusal = details.category or ""
                self._count(event.usage)
            case "message_stop":
                self._whole = True
        return None

    def _extend(self, block: _Open, delta: RawContentBlockDelta) -> str | None:
        match delta.type:
            case "text_delta":
                block.parts.append(delta.text)
                return self._show(delta.text)
            case "input_json_delta":
                block.parts.append(delta.partial_json)
                return "" if delta.partial_json else None
            case "thinking_delta":
                block.parts.append(delta.thinking)
                return "" if delta.thinking else None
            case "signature_delta":
                block.raw["signature"] = delta.signature
                return ""
            case "citations_delta":
                return ""

    def _show(self, text: str) -> str | None:
        self.writing = self.writing or bool(text)
        return scrub(text) or None

    def _count(self, usage: StartUsage | MessageDeltaUsage) -> None:
        """Later counts replace earlier ones, but a null says nothing."""
        for name in (
            "input_tokens",
            "output_tokens",
            "cache_read_input_tokens",
            "cache_creation_input_tokens",
        ):
            if (count := getattr(usage, name, None)) is not None:
                self._counts[name] = count

    def finish(self) -> Completion:
        if not self._whole or self._stop is None:
            raise ModelUnavailable("the stream ended without its message_stop")
        if self._stop == "refusal":
            raise ContentPolicy(f"refused: {self._refusal or 'no category given'}")
        if self._stop == "model_context_window_exceeded":
            raise ContextOverflow("the context window was used up while answering")
        blocks = [self._close(block) for _, block in sorted(self._blocks.items())]
        blocks = [block for block in blocks if not isinstance(block, Text) or block.text]
        stop: Stop
        match self._stop:
            case "max_tokens":
                # A call may have been cut off here, and what is left of it may still parse: none of them is run.
                blocks = [block for block in blocks if not isinstance(block, ToolCall)]
                stop = "length"
            case "pause_turn":
                stop = "pause"
            case _:
                stop = "tool_calls" if any(isinstance(block, ToolCall) for block in blocks) else "end"
        if not blocks and stop != "length":
            raise ModelUnavailable(f"an empty answer, stop reason {self._stop}")
        return Completion(Message("assistant", tuple(blocks), model=self._model), self.usage, stop)

    def _close(self, block: _Open) -> Block:
        raw, written = block.raw, "".join(block.parts)
        match raw["type"]:
            case "text":
                return Text(scrub(f"{raw['text']}{written}"))
            case "tool_use" | "server_tool_use" as kind:
                call = tool_call(str(raw["id"]), str(raw["name"]), written)
                if not written and isinstance(given := raw.get("input"), dict):
                    call = ToolCall(call.id, call.name, given)
                if kind == "tool_use":
                    return call
                raw["input"] = call.arguments
            case "thinking":
                raw["thinking"] = f"{raw['thinking']}{written}"
        # Kept whole, because it goes back whole: thinking, and the blocks of tools that the server runs itself.
        return Thinking(scrub(str(raw.get("thinking", ""))), self._model, scrub_json(raw))
