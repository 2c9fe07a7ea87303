"""The common part of all wire forms: valid conversations, and strict JSON.

`fit` is deterministic and looks only backwards. So the wire form of a longer conversation begins with that of the
shorter one, byte for byte, which the providers' prompt caches need.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal

from pydantic import JsonValue
from pydantic_core import to_json

from bot.ports.errors import EmptyAnswer
from bot.ports.model import Completion, Stop, Usage
from threads.model import Block, Image, Message, Text, Thinking, ToolCall, ToolResult

EMPTY = "(empty)"
"""Replaces blank text, which providers refuse; a turn cannot be left out."""

IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
"""The media types that every provider accepts."""

CONTEXT_EXCEEDED = "model_context_window_exceeded"
"""Anthropic's stop reason, and Z.ai's finish reason, when the window is used up."""

MAX_TOKENS = 10**9
"""More tokens than any call can have; a higher count is not valid."""

_NO_NAME = re.compile(r"[^a-zA-Z0-9_-]")
"""Characters that a tool's name may not have: providers refuse a thread with a name that a model invented."""

Role = Literal["user", "assistant"]
Entry = tuple[Role, list[Block]]
"""The role of a message, and what is sent of it."""

_THOUGHTS = ("thinking", "redacted_thinking", "reasoning", None)


def fit(
    messages: Sequence[Message], model: str, ids: re.Pattern[str], *, vision: bool = True
) -> list[Message]:
    """Return the conversation in a form that *model* accepts; roles alternate, and every text is non-blank Unicode.

    Results come before texts in a user message. Thinking is only that of *model* itself. Call ids match *ids*, are
    unique, and are the same for a call and its result. An image that is missing or not from a person is replaced by
    text. Expects that ``repair`` ran, so each call has its result.
    """
    cleaned = ((message.role, _clean(message, model, vision)) for message in messages)
    # A user message without anything to send is filled before others may join it.
    sendable = (
        (role, blocks or [Text(EMPTY)]) for role, blocks in _rename(cleaned, ids) if blocks or role == "user"
    )
    return [_join(role, entries) for role, entries in groupby(sendable, key=itemgetter(0))]


def in_forms(body: dict[str, Any], forms: Mapping[str, str]) -> dict[str, Any]:
    """Return a request's body with its parts in the *forms* that the server takes; "none" leaves a part out."""
    for part, form in forms.items():
        if part == "max_tokens" and part in body:
            body = {form if name == part else name: value for name, value in body.items()}
        elif part == "system" and form == "developer" and "messages" in body:
            body["messages"] = [{**m, "role": form} if m["role"] == "system" else m for m in body["messages"]]
        elif form == "none":
            left_out = (part, "stream_options") if part == "stream" else (part,)
            body = {name: _without(value, part) for name, value in body.items() if name not in left_out}
    return body


def _without(value: Any, part: str, depth: int = 4) -> Any:
    """Return a part of a body without the marks *part*, such as ``strict``; schemas and arguments stay."""
    if depth and isinstance(value, list):
        return [_without(one, part, depth) for one in value]
    if not depth or not isinstance(value, dict):
        return value
    inner = ("function", "content", "json_schema", "format")
    kept = {
        name: one for name, one in value.items() if name != part or name not in ("strict", "cache_control")
    }
    return {name: _without(one, part, depth - 1) if name in inner else one for name, one in kept.items()}


def _join(role: Role, entries: Iterable[Entry]) -> Message:
    joined = [block for _, blocks in entries for block in blocks]
    joined.sort(key=lambda block: not isinstance(block, ToolResult))
    return Message(role, tuple(joined))


def _clean(message: Message, model: str, vision: bool) -> list[Block]:
    blocks = [block for block in message.blocks if _may_be_sent(block, model)]
    while blocks and isinstance(last := blocks[-1], Thinking) and last.raw.get("type") in _THOUGHTS:
        blocks.pop()  # Providers refuse reasoning at the end, as an interrupted answer leaves it.
    return [_cleaned(block, vision and message.role == "user") for block in blocks]


def _cleaned(block: Block, vision: bool) -> Block:
    match block:
        case Text(text):
            return Text(scrub(text))
        case ToolResult(call_id, content):
            return ToolResult(call_id, scrub(content) if content.strip() else EMPTY, block.is_error)
        case ToolCall(call_id, name, arguments):
            return ToolCall(call_id, _NO_NAME.sub("_", name)[:64] or "_", scrub_json(arguments))
        case Image(_, media_type, data):
            return block if vision and data and media_type in IMAGES else image_placeholder(block)
        case Thinking():
            return block


def image_placeholder(image: Image) -> Text:
    """Return the text that replaces an image."""
    return Text(scrub(f"(a picture that cannot be shown here: {image.file})"))


def _may_be_sent(block: Block, model: str) -> bool:
    match block:
        case Text(text):
            return bool(text.strip())
        case Thinking():
            return block.model == model and bool(block.raw)  # Without, it was marked in the text.
        case _:
            return True


def _rename(entries: Iterable[Entry], ids: re.Pattern[str]) -> Iterator[Entry]:
    """Give each call and its result a valid id; repeated ids are matched in order."""
    taken: set[str] = set()
    waiting: defaultdict[str, deque[str]] = defaultdict(deque)
    number = 0
    for role, blocks in entries:
        named: list[Block] = []
        for block in blocks:
            if isinstance(block, ToolCall):
                new = block.id
                while new in taken or not ids.fullmatch(new):
                    number += 1
                    new = f"call_{number}"
                taken.add(new)
                waiting[block.id].append(new)
                named.append(block if new == block.id else replace(block, id=new))
            elif isinstance(block, ToolResult):
                if queue := waiting[block.call_id]:
                    new = queue.popleft()
                    named.append(block if new == block.call_id else replace(block, call_id=new))
            else:
                named.append(block)
        yield role, named


def completion(model: str, blocks: Iterable[Block], usage: Usage, stop: Stop) -> Completion:
    """Return a complete answer; raises `EmptyAnswer`. *stop* is "end" also for an answer with calls."""
    # After "length" a call may be cut off and still parse: none of them is run.
    unwanted = (ToolCall,) if stop == "length" else ()
    sendable = tuple(block for block in blocks if not isinstance(block, unwanted) and block != Text(""))
    if not sendable and stop != "length":
        raise EmptyAnswer("an empty answer")
    message = Message("assistant", sendable, model=model)
    return Completion(message, usage, "tool_calls" if stop == "end" and message.calls else stop)


def scrub(text: str) -> str:
    """Join surrogate pairs and replace lone surrogates, which no provider, file or platform accepts."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def scrub_json(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Apply `scrub` to every string in *value*."""
    try:
        to_json(value)
    except ValueError:
        result: dict[str, JsonValue] = json.loads(scrub(json.dumps(value, ensure_ascii=False)))
        return result
    return value


def dump_json(value: dict[str, JsonValue]) -> str:
    """Write JSON the same way every time."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def load_json(text: str) -> JsonValue:
    """Read strict JSON; raises ValueError, also for NaN and Infinity, or RecursionError."""
    value: JsonValue = json.loads(text, parse_constant=_refuse)
    return value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def tokens(value: object) -> int | None:
    """Return a server's count of tokens; None unless it is a whole number within bounds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value <= MAX_TOKENS and value == int(value) else None


def part(event: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the object under *name*, or an empty one."""
    value = event.get(name)
    return value if isinstance(value, dict) else {}


def tool_call(call_id: str, name: str, raw: str) -> ToolCall:
    """Return a call with its parsed arguments. Blank means none; anything but a JSON object is ``malformed``."""
    try:
        arguments = load_json(raw) if raw.strip() else {}
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        return ToolCall(call_id, name, {}, malformed=scrub(raw))
    return ToolCall(call_id, name, scrub_json(arguments))
