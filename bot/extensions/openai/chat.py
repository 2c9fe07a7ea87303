"""OpenAI's Chat Completions, for Ollama, vLLM, llama.cpp and gateways; only what all of them support.

A server that cannot stream sends the whole answer as one chunk, with a ``message`` in place of the ``delta``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, assert_never, cast

from pydantic import JsonValue

from bot.extensions.openai.model import OpenAIModel, data_url, effort_to_wire, usage_of
from bot.llm.adapters.sse import END, JsonEvent
from bot.llm.adapters.stream import Content, HiddenContent, Reader, Restart
from bot.llm.adapters.thought_tags import ThoughtTags
from bot.llm.adapters.wire_form import (
    CONTEXT_EXCEEDED,
    completion,
    dump_json,
    fit,
    load_json,
    part,
    scrub,
    tool_call,
)
from bot.ports.errors import ContentPolicy, ContextOverflow, ModelUnavailable
from bot.ports.model import Completion, Request
from threads.model import Block, Image, Message, Text, Thinking, ThinkingDelta, ToolCall

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletionMessageParam

IDS = re.compile(r"[a-zA-Z0-9_-]{1,40}")
"""The pattern of a call's id: the API refuses more than 40 characters."""

BROKEN_OFF = frozenset({"error", "abort", "network_error", "insufficient_system_resource"})
"""Finish reasons of OpenRouter, vLLM, Z.ai and DeepSeek for an answer that failed midway."""

REASONING = ("reasoning_content", "reasoning", "reasoning_text", "thinking")
"""The fields in which servers stream thinking; the API itself has none."""


def to_wire(
    system: str, messages: Sequence[Message], model: str, *, vision: bool = True
) -> list[ChatCompletionMessageParam]:
    """Return the conversation in the form of Chat Completions, where each result is a message."""
    wire: list[dict[str, object]] = [{"role": "system", "content": scrub(system)}] if system.strip() else []
    for message in fit(messages, model, IDS, vision=vision):
        wire += [
            {"role": "tool", "tool_call_id": result.call_id, "content": result.content}
            for result in message.results
        ]
        fields: dict[str, object] = {}
        if parts := _parts(message.blocks):
            # Text alone is a string, because some servers do not support parts.
            fields["content"] = parts if len(parts) > 1 or "text" not in parts[0] else parts[0]["text"]
        for block in message.blocks:
            if isinstance(block, Thinking):
                fields |= block.raw
        if message.calls:
            fields["tool_calls"] = [_call_to_wire(call) for call in message.calls]
        if fields:
            wire.append({"role": message.role, **fields})
    return cast("list[ChatCompletionMessageParam]", wire)


def _parts(blocks: Sequence[Block]) -> list[dict[str, object]]:
    """Return images, and adjacent texts as one."""
    parts: list[dict[str, object]] = []
    seen = (block for block in blocks if isinstance(block, Text | Image))
    for kind, some in groupby(seen, key=lambda block: block.type):
        match kind:
            case "text":
                text = "\n\n".join(block.text for block in some if isinstance(block, Text))
                parts.append({"type": "text", "text": text})
            case "image":
                pictures = [data_url(block) for block in some if isinstance(block, Image)]
                parts += [{"type": "image_url", "image_url": {"url": url}} for url in pictures]
            case _:
                assert_never(kind)
    return parts


def _call_to_wire(call: ToolCall) -> dict[str, object]:
    function = {"name": call.name, "arguments": dump_json(call.arguments)}
    return {"type": "function", "id": call.id, "function": function}


MAX_LOOK = 100_000
"""Characters of a call's arguments up to which each delta is checked: every check parses all of them."""


@dataclass(slots=True, eq=False)
class _OpenCall:
    index: int
    id: str = ""
    name: str = ""
    parts: list[str] = field(default_factory=list)
    length: int = 0

    @property
    def complete(self) -> bool:
        """Whether the arguments are complete JSON."""
        if self.length > MAX_LOOK:
            return False
        try:
            load_json("".join(self.parts))
        except (ValueError, RecursionError):
            return False
        return True


class ChatReader(Reader):
    """Turns the events of one answer into a `Completion`; pure."""

    def __init__(self, model: str) -> None:
        super().__init__(model)
        self._text: list[str] = []
        self._thinking: dict[str, list[str]] = {}
        self._tags = ThoughtTags()
        self._calls: list[_OpenCall] = []
        self._by_index: dict[int, _OpenCall] = {}
        self._by_id: dict[str, _OpenCall] = {}
        self._refusal = ""
        self._reason: str | None = None
        self._done = False

    def feed(self, event: JsonEvent) -> Content | None:
        choice: JsonEvent = next(iter(event.get("choices") or ()), {})
        if usage := part(event, "usage") or part(choice, "usage"):
            self.usage = usage_of(usage, "prompt_tokens", "completion_tokens")
        self._done = self._done or event is END
        self._reason = choice.get("finish_reason") or self._reason
        return self._extend(choice.get("delta") or choice.get("message") or {})

    @property
    def ended(self) -> bool:
        return self._reason is not None

    @property
    def told_end(self) -> bool:
        return self.ended or self._done

    def _extend(self, delta: JsonEvent) -> Content | None:
        refusal = delta.get("refusal") or ""
        self._refusal += refusal
        unseen = len(refusal)
        seen: set[_OpenCall] = set()
        for call in delta.get("tool_calls") or ():
            unseen += self._extend_call(call, seen)
            self.writing = False
        name = next((name for name in REASONING if isinstance(delta.get(name), str) and delta[name]), "")
        thought = self._think(name, delta[name] if name else _text_of(delta.get("reasoning_details")))
        content = _text_of(delta.get("content"))
        thought += self._think("", _joined(delta.get("content"), "thinking"))
        split = self._tags.feed(content)
        if split.all_before:
            self._think("", "".join(self._text))
            self._text.clear()
            self.writing = False
        thought += self._think("", split.thought)
        if split.text:
            self._text.append(split.text)
            self.writing = True
        if split.all_before:
            return Restart(scrub(split.text), len(content))
        if split.text:
            return scrub(split.text)
        unseen += len(content)
        return ThinkingDelta(scrub(thought)) if thought else HiddenContent(unseen) if unseen else None

    def _think(self, name: str, thought: str) -> str:
        """Add to the thoughts of a field of the delta; a blank name is for those among the text."""
        if thought:
            self._thinking.setdefault(name, []).append(thought)
        return thought

    def _extend_call(self, delta: JsonEvent, seen: set[_OpenCall]) -> int:
        """Add to the call of the delta, and that call to *seen*, the calls of the same list.

        Returns the number of characters, at least 1: the call itself shows that the model is working.
        """
        function = part(delta, "function")
        name, arguments = function.get("name") or "", _json_of(function.get("arguments"))
        index = delta.get("index") if isinstance(delta.get("index"), int) else None
        call_id = "" if delta.get("id") is None else str(delta["id"])
        call = self._continued(index, call_id, name, seen)
        if call is None:
            call = _OpenCall(index or 0)
            self._calls.append(call)
            self._by_index[call.index] = call
        if call_id:
            call.id = call_id
            self._by_id[call_id] = call
        if name != call.name:  # Otherwise it is repeated.
            call.name += name
        call.parts.append(arguments)
        call.length += len(arguments)
        seen.add(call)
        return max(1, len(name) + len(arguments))

    def _continued(
        self, index: int | None, call_id: str, name: str, seen: set[_OpenCall]
    ) -> _OpenCall | None:
        """Return the call that a delta continues; None if it begins one.

        Some servers give all calls of an answer the index 0 or none, and one id or none. Then a name begins a call,
        unless it can be the rest of a name whose arguments have not come yet.
        """
        known = self._by_id.get(call_id)
        if known and index in (None, known.index):
            begins = name and (name != known.name or known in seen) and known.complete
            return None if begins else known
        last = self._calls[-1] if self._calls else None
        call = last if index is None else self._by_index.get(index)
        if call is None or (call_id and call.id):
            return None
        other = index is None and name != call.name
        begins = name and call.name and (other or call in seen or call.complete)
        return None if begins else call

    def finish(self) -> Completion:
        whole = self._done and (self._calls or any(text.strip() for text in self._text))
        if not (self._reason or whole) or self._reason in BROKEN_OFF:
            raise ModelUnavailable(f"the stream ended without its finish_reason ({self._reason or 'none'})")
        if self._refusal or self._reason == "content_filter":
            raise ContentPolicy(f"refused: {self._refusal or 'content filter'}")
        if self._reason == CONTEXT_EXCEEDED:
            raise ContextOverflow("the context window was used up while answering")
        return completion(
            self._model, self._close(), self.usage, "length" if self._reason == "length" else "end"
        )

    def _close(self) -> Iterator[Block]:
        unended = self._tags.thinking
        held = self._tags.finish()
        self._think("", held.thought)
        self._text.append(held.text)
        if not self._calls and self._reason != "length" and not "".join(self._text).strip():
            self._text = [self._answer_among_thoughts(unended=unended)]
        for name, parts in self._thinking.items():
            text = scrub("".join(parts))
            raw: dict[str, JsonValue] = {name: text} if name else {}
            yield Thinking(text, self._model, raw)
        if text := scrub("".join(self._text)):
            yield Text(text)
        for number, call in enumerate(self._calls, start=1):
            yield tool_call(call.id or f"call_{number}", call.name, "".join(call.parts))

    def _answer_among_thoughts(self, *, unended: bool) -> str:
        """Take the answer out of the thoughts: parsers of servers put all text there if no mark ends the thought.

        A thought that was marked and ended is one.
        """
        name = next((name for name in self._thinking if name or unended), None)
        if name is None:
            return ""
        whole, tags = "".join(self._thinking.pop(name)), ThoughtTags()
        split = tags.feed(whole)
        rest = tags.finish()
        thought, text = split.thought + rest.thought, split.text + rest.text
        if not text.strip():
            return thought
        self._think(name, thought)
        return text


def _json_of(arguments: object) -> str:
    """Return a call's arguments as text; some servers send the object itself."""
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    return json.dumps(arguments, ensure_ascii=False)


def _text_of(content: object) -> str:
    """Return the text of a content; some servers send parts."""
    return content if isinstance(content, str) else _joined(content, "text")


def _joined(parts: object, name: str) -> str:
    """Return the texts under *name* in a list of parts; each may be parts again."""
    if not isinstance(parts, list):
        return ""
    return "".join(_text_of(piece.get(name)) for piece in parts if isinstance(piece, dict))


class OpenAIChatModel(OpenAIModel):
    """One model of an OpenAI-compatible server; the SDK needs a key, so there is a placeholder."""

    path = "/chat/completions"
    reader = ChatReader
    no_key = "none"

    def _body(self, request: Request) -> dict[str, object]:
        body: dict[str, object] = {
            "model": self.model,
            "max_tokens": request.max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if request.reasoning is not None:
            body["reasoning_effort"] = effort_to_wire(request.reasoning)
        if (schema := request.output_schema) is not None:
            form = {"name": "answer", "schema": schema, "strict": False}
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        if request.tools:
            functions = [
                {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
                for tool in request.tools
            ]
            body["tools"] = [{"type": "function", "function": function} for function in functions]
            if request.tool_choice == "none":
                body["tool_choice"] = "none"
        body["messages"] = to_wire(request.system, request.messages, self.name, vision=self.vision)
        return body
