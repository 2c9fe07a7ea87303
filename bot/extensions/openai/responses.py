"""OpenAI's own models, over the Responses API; nothing is stored at the provider (``store=False``)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, assert_never, cast

from pydantic import JsonValue

from bot.extensions.openai.model import OpenAIModel, data_url, effort_to_wire, usage_of
from bot.llm.adapters.sse import JsonEvent
from bot.llm.adapters.stream import Content, HiddenContent, Reader, content_of
from bot.llm.adapters.thought_tags import ThoughtTags
from bot.llm.adapters.wire_form import completion, dump_json, fit, part, scrub, scrub_json, tool_call
from bot.llm.classify import Fault, failure_of
from bot.ports.errors import ContentPolicy, ModelUnavailable
from bot.ports.model import Completion, Request, Stop
from threads.model import Block, Image, Message, Text, Thinking, ThinkingDelta, ToolCall, ToolResult

if TYPE_CHECKING:
    from openai.types.responses import ResponseInputImageParam, ResponseInputItemParam

IDS = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""The pattern of a call's id: the API refuses more than 64 characters."""

WITHOUT_REASONING = ("gpt-3", "gpt-4", "chatgpt")
"""Older families answer a request for reasoning with 400 "Encrypted content is not supported with this model"
(github.com/NousResearch/hermes-agent/pull/24234)."""


def cache_key(key: str) -> str:
    """Return *key*, or its hash if it is longer than the 64 characters of the API."""
    return key if len(key) <= 64 else hashlib.sha256(key.encode()).hexdigest()


def to_wire(messages: Sequence[Message], model: str, *, vision: bool = True) -> list[ResponseInputItemParam]:
    """Return the conversation as the flat list of items of the Responses API.

    The phase of a text, commentary or final answer, is stored as thinking before it: newer models need it back.
    """
    return [
        item for message in fit(messages, model, IDS, vision=vision) for item in _message_to_wire(message)
    ]


def _message_to_wire(message: Message) -> Iterator[ResponseInputItemParam]:
    phase: dict[str, JsonValue] = {}
    for block in message.blocks:
        if isinstance(block, Thinking) and "phase" in block.raw:
            phase = block.raw
            continue
        item = _block_to_wire(message, block)
        yield cast("ResponseInputItemParam", {**item, **phase}) if isinstance(block, Text) else item
        phase = {}


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
        case Image():
            picture: ResponseInputImageParam = {
                "type": "input_image",
                "image_url": data_url(block),
                "detail": "auto",
            }
            return {"role": message.role, "content": [picture]}
        case Thinking(raw=raw):
            return cast("ResponseInputItemParam", raw)
        case _:
            assert_never(block)


class ResponsesReader(Reader):
    """Turns the events of one answer into a `Completion`; pure."""

    def __init__(self, model: str) -> None:
        super().__init__(model)
        self._blocks: list[Block] = []
        self._tags = ThoughtTags()
        self._refusal = ""
        self._stop: Stop | None = None

    def feed(self, event: JsonEvent) -> Content | None:
        if "output" in event:  # A whole answer, from a server that does not stream.
            event = {"type": f"response.{event.get('status', 'completed')}", "response": event}
        match event["type"]:
            case "response.output_text.delta":
                split = self._tags.feed(event["delta"])
                self.writing = bool(split.text) or (self.writing and not split.all_before)
                return content_of(split, len(event["delta"]))
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                return ThinkingDelta(scrub(event["delta"])) if event["delta"] else None
            case "response.output_item.done":
                self.writing, self._tags = False, ThoughtTags()
                self._blocks += self._blocks_of(event["item"])
                return HiddenContent(0)
            case "response.refusal.delta":
                self._refusal += event["delta"]
                return HiddenContent(len(event["delta"]))
            case "response.completed":
                self._end(event["response"], "end")
            case "response.incomplete":
                self._cut_off(event["response"])
            case "response.failed":
                self._count(event["response"])
                error = event["response"].get("error") or {}
                raise failure_of(Fault(error.get("message") or "the response failed", error or None))
            case kind if kind == "response.output_item.added" or kind.endswith(".delta"):
                return HiddenContent(len(str(event.get("delta", ""))))
        return None

    @property
    def ended(self) -> bool:
        return self._stop is not None

    def _blocks_of(self, item: JsonEvent) -> Iterator[Block]:
        match item["type"]:
            case "message":
                for piece in item["content"]:
                    if piece["type"] == "refusal":
                        self._refusal = piece["refusal"] or self._refusal or "no reason given"
                    elif text := piece.get("text"):
                        yield from self._texts_of(text, item.get("phase"))
            case "function_call":
                yield tool_call(item["call_id"], item["name"], item["arguments"])
            case "reasoning":
                summary = "\n\n".join(piece["text"] for piece in item.get("summary") or ())
                yield Thinking(scrub(summary), self._model, scrub_json(item))

    def _texts_of(self, text: str, phase: str | None) -> Iterator[Block]:
        tags, thoughts, texts = ThoughtTags(), list[str](), list[str]()
        tags.add(text, thoughts, texts)
        tags.close(thoughts, texts)
        if thought := "".join(thoughts):
            yield Thinking(scrub(thought), self._model)
        if phase:
            yield Thinking("", self._model, {"phase": phase})
        yield Text(scrub("".join(texts)))

    def _cut_off(self, response: JsonEvent) -> None:
        reason = (response.get("incomplete_details") or {}).get("reason")
        self._end(response, "length")
        if reason == "content_filter":
            self._refusal = self._refusal or "content filter"
        elif reason != "max_output_tokens":
            raise ModelUnavailable(f"the response is incomplete: {reason}")

    def _end(self, response: JsonEvent, stop: Stop) -> None:
        self._stop = stop
        self._count(response)
        if not self._blocks:
            for item in response.get("output") or ():
                self._blocks += self._blocks_of(item)

    def _count(self, response: JsonEvent) -> None:
        self.usage = usage_of(part(response, "usage"), "input_tokens", "output_tokens")

    def finish(self) -> Completion:
        if self._stop is None:
            raise ModelUnavailable("the stream ended without its response.completed")
        if self._refusal:
            raise ContentPolicy(f"refused: {self._refusal}")
        return completion(self._model, self._blocks, self.usage, self._stop)


class OpenAIResponsesModel(OpenAIModel):
    """One model of OpenAI."""

    path = "/responses"
    reader = ResponsesReader

    def _body(self, request: Request) -> dict[str, object]:
        body: dict[str, object] = {
            "model": self.model,
            "max_output_tokens": request.max_tokens,
            "store": False,
            "stream": True,
            "stream_options": {"include_obfuscation": False},
        }
        if not self.model.startswith(WITHOUT_REASONING):
            body["include"] = ["reasoning.encrypted_content"]
        if request.reasoning is not None:
            body["reasoning"] = {"effort": effort_to_wire(request.reasoning)}
        if request.temperature is not None and not self._reasons(request):
            body["temperature"] = request.temperature
        if request.cache_key:
            body["prompt_cache_key"] = cache_key(request.cache_key)
        if (schema := request.output_schema) is not None:
            body["text"] = {
                "format": {"type": "json_schema", "name": "answer", "schema": schema, "strict": False}
            }
        if request.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters,
                    "strict": False,
                }
                for tool in request.tools
            ]
            if request.tool_choice == "none":
                body["tool_choice"] = "none"
        if request.system.strip():
            body["instructions"] = scrub(request.system)
        body["input"] = to_wire(request.messages, self.name, vision=self.vision)
        return body

    def _body_with_params(self, request: Request) -> dict[str, object]:
        body = super()._body_with_params(request)
        if self._reasons(request):
            body.pop("top_p", None)
        return body

    def _reasons(self, request: Request) -> bool:
        """Return whether the model may reason. It refuses ``temperature`` and ``top_p`` then."""
        return request.reasoning != "off" and not self.model.startswith(WITHOUT_REASONING)
