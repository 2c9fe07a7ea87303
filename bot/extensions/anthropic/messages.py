"""Anthropic's Messages API, for Claude and compatible servers: both directions of the wire.

The reader takes raw events, because the SDK turns tool arguments that were cut off into ``{}``.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, assert_never, cast

from pydantic import JsonValue

from bot.llm.adapters.sdk import SdkModel
from bot.llm.adapters.sse import JsonEvent
from bot.llm.adapters.stream import Content, HiddenContent, Reader, content_of
from bot.llm.adapters.thought_tags import ThoughtTags
from bot.llm.adapters.wire_form import (
    CONTEXT_EXCEEDED,
    completion,
    fit,
    part,
    scrub,
    scrub_json,
    tokens,
    tool_call,
)
from bot.llm.reasoning import claude_version, efforts_of
from bot.ports.effort import Effort
from bot.ports.errors import ContentPolicy, ContextOverflow, ModelUnavailable
from bot.ports.model import Completion, Request, Stop, Usage
from threads.model import Block, Image, Message, Text, Thinking, ThinkingDelta, ToolCall, ToolResult

if TYPE_CHECKING:
    from anthropic.types import ContentBlockParam, JSONOutputFormatParam, MessageParam

IDS = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""The API's pattern for the id of a tool call; another id is a 400."""

LEAST_THINKING = 1024
"""The API's least ``budget_tokens``; it has to be less than ``max_tokens``."""

SHARES: Mapping[Effort, float] = {"low": 0.2, "medium": 0.5, "high": 0.8}
"""The part of ``max_tokens`` that a model without adaptive thinking may think. The rest is for its answer."""

Lifetime = Literal["5m", "1h"]


def thinking_to_wire(model: str, name: str, request: Request) -> Mapping[str, object]:
    """Return the ``thinking`` of a request; empty leaves it out. The forms are those of `bot.llm.reasoning`.

    A budget counts as part of ``max_tokens``, as all thinking does.
    """
    effort, adaptive = request.reasoning, supports_adaptive_thinking(model)
    if effort == "off":
        return {"type": _type_of_off(model)} if adaptive else {}
    if adaptive or (effort and not efforts_of("anthropic", model)):
        return {"type": "adaptive", "display": "summarized"}
    if effort is None or _began_without_thinking(request.messages, name):
        return {}
    budget = max(LEAST_THINKING, int(SHARES[effort] * request.max_tokens))
    return {"type": "enabled", "budget_tokens": budget} if budget < request.max_tokens else {}


def _began_without_thinking(messages: Sequence[Message], name: str) -> bool:
    """Return whether a turn with tool calls goes on that began without thinking, as after a failover.

    A model without adaptive thinking refuses to begin to think within a turn.
    """
    turn: list[Message] = []
    for message in reversed(messages):
        if message.role == "user" and not message.results:
            break
        if message.role == "assistant":
            turn.append(message)
    thought = bool(turn) and any(isinstance(one, Thinking) and one.model == name for one in turn[-1].blocks)
    return bool(turn) and not thought


def to_wire(
    messages: Sequence[Message], model: str, *, cached: bool = False, vision: bool = True
) -> list[MessageParam]:
    """Return the conversation in the form of the Messages API, with cache breakpoints if *cached*."""
    fitted = fit(messages, model, IDS, vision=vision)
    lifetimes = cache_breakpoints(fitted) if cached else {}
    wire = []
    for place, message in enumerate(fitted):
        content: list[Mapping[str, object]] = [_block_to_wire(block) for block in message.blocks]
        if lifetime := lifetimes.get(place):
            content[-1] = {**content[-1], "cache_control": {"type": "ephemeral", "ttl": lifetime}}
        wire.append({"role": message.role, "content": content})
    return cast("list[MessageParam]", wire)


def cache_breakpoints(messages: Sequence[Message]) -> dict[int, Lifetime]:
    """Return the user messages that end a cached prefix, with their lifetimes; three at most, 1 h first.

    The last two messages of people are kept for an hour, for the slow pace of a chat. In a tool loop the newest
    results are kept for five minutes, and the results before them replace the older of these messages: the provider
    finds a prefix again at a breakpoint, or at most 20 blocks before one.
    """
    users = [place for place, message in enumerate(messages) if message.role == "user"]
    people = [
        place for place in users if not all(isinstance(block, ToolResult) for block in messages[place].blocks)
    ]
    since = users[users.index(people[-1]) + 1 :] if people else users
    loop: dict[int, Lifetime] = dict.fromkeys(since[-2:], "5m")
    return {**dict.fromkeys(people[-1:] if len(loop) == 2 else people[-2:], "1h"), **loop}


def _format(schema: dict[str, JsonValue] | None) -> JSONOutputFormatParam | None:
    """Return the output format, or None if the API does not support the schema: the answer is validated anyway."""
    from anthropic import transform_schema  # noqa: PLC0415

    if schema is None:
        return None
    try:
        return {"type": "json_schema", "schema": transform_schema(schema)}
    except (TypeError, ValueError):
        return None


def _block_to_wire(block: Block) -> ContentBlockParam:
    match block:
        case Text(text):
            return {"type": "text", "text": text}
        case ToolCall(call_id, name, arguments):
            return {"type": "tool_use", "id": call_id, "name": name, "input": dict(arguments)}
        case ToolResult(call_id, content, is_error):
            return {"type": "tool_result", "tool_use_id": call_id, "content": content, "is_error": is_error}
        case Image(_, media_type, data):
            encoded = base64.b64encode(data).decode()
            source = {"type": "base64", "media_type": media_type, "data": encoded}
            return cast("ContentBlockParam", {"type": "image", "source": source})
        case Thinking(raw=raw):
            return cast("ContentBlockParam", raw)
        case _:
            assert_never(block)


@dataclass(slots=True)
class _OpenBlock:
    """An unfinished block: ``raw`` as it began, ``parts`` of its text or arguments, and thoughts among its text."""

    raw: dict[str, JsonValue]
    parts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    tags: ThoughtTags = field(default_factory=ThoughtTags)


_STOPS: dict[str, Stop] = {"max_tokens": "length", "pause_turn": "pause"}
_COUNTS = (
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "ephemeral_1h_input_tokens",
)


class MessagesReader(Reader):
    """Turns the events of one answer into a `Completion`; pure."""

    def __init__(self, model: str) -> None:
        super().__init__(model)
        self._blocks: dict[int, _OpenBlock] = {}
        self._counts: dict[str, int] = {}
        self._stop: str | None = None
        self._refusal = ""
        self._whole = False

    def feed(self, event: JsonEvent) -> Content | None:
        match event["type"]:
            case "content_block_delta":
                return self._extend(self._blocks[event["index"]], event["delta"])
            case "content_block_start":
                return self._open(event["index"], event["content_block"])
            case "content_block_stop":
                self.writing = False
                return HiddenContent(0)
            case "message_start":
                self._count(part(event["message"], "usage"))
            case "message_delta":
                delta = part(event, "delta")
                self._stop = delta.get("stop_reason") or self._stop
                self._refusal = part(delta, "stop_details").get("category") or self._refusal
                self._count(part(event, "usage"))
            case "message_stop":
                self._whole = True
            case "message":  # A whole answer, from a server that does not stream.
                for index, raw in enumerate(event["content"]):
                    self._open(index, raw)
                self._stop, self._whole = event.get("stop_reason"), True
                self._count(part(event, "usage"))
        return None

    @property
    def ended(self) -> bool:
        return self._stop is not None

    @property
    def told_end(self) -> bool:
        return self._whole

    def _extend(self, block: _OpenBlock, delta: JsonEvent) -> Content | None:
        match delta["type"]:
            case "text_delta":
                return self._show(block, delta["text"])
            case "input_json_delta":
                block.parts.append(delta["partial_json"])
                return HiddenContent(len(delta["partial_json"])) if delta["partial_json"] else None
            case "thinking_delta":
                block.parts.append(delta["thinking"])
                return ThinkingDelta(scrub(delta["thinking"])) if delta["thinking"] else None
            case "signature_delta":
                block.raw["signature"] = delta["signature"]
                return HiddenContent(len(delta["signature"]))
        return HiddenContent(0)

    def _open(self, index: int, raw: dict[str, JsonValue]) -> Content | None:
        block = self._blocks[index] = _OpenBlock(raw)
        return self._show(block, str(raw["text"] or "")) if raw["type"] == "text" else HiddenContent(0)

    def _show(self, block: _OpenBlock, text: str) -> Content | None:
        split = block.tags.add(text, block.thoughts, block.parts)
        self.writing = bool(split.text) or (self.writing and not split.all_before)
        return content_of(split, len(text))

    def _count(self, usage: JsonEvent) -> None:
        """Take later counts in place of earlier ones; an invalid count is ignored."""
        for counts in (usage, part(usage, "cache_creation")):
            valid = {name: tokens(counts.get(name)) for name in _COUNTS}
            self._counts |= {name: count for name, count in valid.items() if count is not None}
        count_of = self._counts.get
        self.usage = Usage(
            input=count_of("input_tokens", 0),
            output=count_of("output_tokens", 0),
            cache_read=count_of("cache_read_input_tokens", 0),
            cache_write=count_of("cache_creation_input_tokens", 0),
            cache_write_1h=count_of("ephemeral_1h_input_tokens", 0),
        )

    def finish(self) -> Completion:
        if not self._whole:
            raise ModelUnavailable("the stream ended without its message_stop")
        if self._stop == "refusal":
            raise ContentPolicy(f"refused: {self._refusal or 'no category given'}")
        if self._stop == CONTEXT_EXCEEDED:
            raise ContextOverflow("the context window was used up while answering")
        blocks = [part for _, block in sorted(self._blocks.items()) for part in self._close(block)]
        return completion(self._model, blocks, self.usage, _STOPS.get(self._stop or "", "end"))

    def _close(self, block: _OpenBlock) -> Iterator[Block]:
        if block.raw["type"] == "text":
            block.tags.close(block.thoughts, block.parts)
            if thought := "".join(block.thoughts):
                yield Thinking(scrub(thought), self._model)
            yield Text(scrub("".join(block.parts)))
        else:
            yield self._close_hidden(block)

    def _close_hidden(self, block: _OpenBlock) -> Block:
        raw, written = block.raw, "".join(block.parts)
        match raw["type"]:
            case "tool_use" | "server_tool_use" as kind:
                call = tool_call(str(raw["id"]), str(raw["name"]), written)
                if not written and isinstance(arguments := raw.get("input"), dict):
                    call = ToolCall(call.id, call.name, arguments)
                if kind == "tool_use":
                    return call
                raw["input"] = call.arguments
            case "thinking":
                raw["thinking"] = f"{raw['thinking']}{written}"
        # Thinking, and the blocks of tools that the server runs itself, go back unchanged.
        return Thinking(scrub(str(raw.get("thinking", ""))), self._model, scrub_json(raw))


class AnthropicModel(SdkModel):
    """One Claude model."""

    path = "/v1/messages"
    reader = MessagesReader

    def _make(self, **settings: Any) -> Any:
        from anthropic import AsyncAnthropic  # noqa: PLC0415

        return AsyncAnthropic(**settings, open_telemetry=False)

    def _body(self, request: Request) -> dict[str, object]:
        # Without a key there is no next call: writing its prompt to the cache would only cost money.
        cached = bool(request.cache_key)
        body: dict[str, object] = {"model": self.model, "max_tokens": request.max_tokens, "stream": True}
        if thinking := thinking_to_wire(self.model, self.name, request):
            body["thinking"] = thinking
        output: dict[str, object] = {}
        if thinking.get("type") == "adaptive" and request.reasoning is not None:
            output["effort"] = request.reasoning
        if schema := _format(request.output_schema):
            output["format"] = schema
        if output:
            body["output_config"] = output
        if request.tools:
            body["tools"] = [
                {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
                for tool in request.tools
            ]
            if request.tool_choice == "none":
                body["tool_choice"] = {"type": "none"}
        if request.system.strip():
            mark = {"cache_control": {"type": "ephemeral", "ttl": "1h"}} if cached else {}
            body["system"] = [{"type": "text", "text": scrub(request.system), **mark}]
        body["messages"] = to_wire(request.messages, self.name, cached=cached, vision=self.vision)
        return body


def supports_adaptive_thinking(model: str) -> bool:
    """Return whether *model* accepts ``thinking: adaptive``; others refuse it."""
    known = claude_version(model)
    return known is not None and known[1] >= (4, 6)


def _type_of_off(model: str) -> str:
    """Return the type of ``thinking`` that turns it off for a model with adaptive thinking."""
    known = claude_version(model)
    return "between_tools" if known and known[0] == "sonnet" and known[1] >= (5, 5) else "disabled"
