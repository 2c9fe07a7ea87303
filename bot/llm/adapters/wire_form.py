"""What every provider's wire form has in common: conversations made fit to send, and JSON read and written strictly.

`fit` is deterministic and looks only backwards, so that the wire form of a longer conversation begins with the
wire form of the shorter one, byte for byte: the providers' prompt caches live on that.
"""

from __future__ import annotations

import base64
import json
import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from pydantic import JsonValue

from bot.ports.errors import EmptyAnswer
from bot.ports.model import Completion, Stop, Usage
from threads.model import Block, Image, Message, Text, Thinking, ToolCall, ToolResult

EMPTY = "(empty)"
"""Stands where there is nothing to send: providers refuse blank text, and a turn cannot be left out."""

PICTURES = ("image/jpeg", "image/png", "image/gif", "image/webp")
"""The media types that every provider takes."""

CONTEXT_EXCEEDED = "model_context_window_exceeded"
"""Anthropic's stop reason, and Z.ai's finish reason, when the window is used up."""

MAX_TOKENS = 10**9
"""More than any call can count: what is beyond is no count."""

_NO_NAME = re.compile(r"[^a-zA-Z0-9_-]")
"""What no tool's name may hold: a model that made one up would poison its thread."""

_THOUGHTS = ("thinking", "redacted_thinking", "reasoning", None)


def fit(
    messages: Sequence[Message], model: str, ids: re.Pattern[str], *, vision: bool = True
) -> list[Message]:
    """Return the conversation as *model* may be sent it; roles alternate, every text is non-blank Unicode.

    Results stand before texts in a user entry; thinking is only what *model* itself wrote; call ids match *ids*
    and are unique, the same for a call and its result; pictures are at hand and of people, or words in their place.
    Expects that ``repair`` ran: each call has its result.
    """
    cleaned = (replace(message, blocks=tuple(_clean(message, model, vision))) for message in messages)
    named = (_filled(message) for message in _rename(cleaned, ids))
    kept = (message for message in named if message.blocks)
    return [_join(entries) for _, entries in groupby(kept, key=lambda message: message.role)]


def _filled(message: Message) -> Message:
    """Give a user entry with nothing to send its words by itself, whatever may join it later."""
    if message.blocks or message.role == "assistant":
        return message
    return replace(message, blocks=(Text(EMPTY),))


def _join(entries: Iterable[Message]) -> Message:
    entries = list(entries)
    blocks = [block for entry in entries for block in entry.blocks]
    blocks.sort(key=lambda block: not isinstance(block, ToolResult))
    return Message(entries[0].role, tuple(blocks))


def _clean(message: Message, model: str, vision: bool) -> Iterator[Block]:
    blocks = [block for block in message.blocks if _may_be_sent(block, model)]
    while blocks and isinstance(last := blocks[-1], Thinking) and last.raw.get("type") in _THOUGHTS:
        blocks.pop()  # Providers refuse reasoning that nothing follows, as a cut-off answer leaves it.
    for block in blocks:
        match block:
            case Text(text):
                yield Text(scrub(text))
            case ToolResult(_, content):
                yield replace(block, content=scrub(content) if content.strip() else EMPTY)
            case ToolCall(_, name, arguments):
                yield replace(
                    block, name=_NO_NAME.sub("_", name)[:64] or "_", arguments=scrub_json(arguments)
                )
            case Image(_, media_type, data):
                seen = vision and data and media_type in PICTURES and message.role == "user"
                yield block if seen else image_placeholder(block)
            case Thinking():
                yield block


def image_placeholder(image: Image) -> Text:
    """Return the words that stand in place of a picture that is not shown."""
    return Text(scrub(f"(a picture that cannot be shown here: {image.file})"))


def _may_be_sent(block: Block, model: str) -> bool:
    match block:
        case Text(text):
            return bool(text.strip())
        case Thinking():
            return block.model == model
        case _:
            return True


def _rename(messages: Iterable[Message], ids: re.Pattern[str]) -> Iterator[Message]:
    """Give each call an id the provider takes, and hand the same to its result, first in, first out."""
    taken: set[str] = set()
    waiting: defaultdict[str, deque[str]] = defaultdict(deque)
    number = 0
    for message in messages:
        blocks: list[Block] = []
        for block in message.blocks:
            if isinstance(block, ToolCall):
                new = block.id
                while new in taken or not ids.fullmatch(new):
                    number += 1
                    new = f"call_{number}"
                taken.add(new)
                waiting[block.id].append(new)
                blocks.append(replace(block, id=new))
            elif isinstance(block, ToolResult):
                if queue := waiting[block.call_id]:
                    blocks.append(replace(block, call_id=queue.popleft()))
            else:
                blocks.append(block)
        yield replace(message, blocks=tuple(blocks))


def data_url(image: Image) -> str:
    return f"data:{image.media_type};base64,{base64.b64encode(image.data).decode()}"


def completion(model: str, blocks: Iterable[Block], usage: Usage, stop: Stop) -> Completion:
    """Return a whole answer. *stop* is "end" also for an answer with calls; raises when there is nothing in it."""
    # Under "length" a call may have been cut off, and what is left of it may still parse: none of them is run.
    unwanted = (ToolCall,) if stop == "length" else ()
    kept = tuple(block for block in blocks if not isinstance(block, unwanted) and block != Text(""))
    if not kept and stop != "length":
        raise EmptyAnswer("an empty answer")
    message = Message("assistant", kept, model=model)
    return Completion(message, usage, "tool_calls" if stop == "end" and message.calls else stop)


def scrub(text: str) -> str:
    """Join surrogate pairs and replace lone halves, which no provider, file or platform can take."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def scrub_json(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Do as `scrub` with every string inside."""
    text = json.dumps(value, ensure_ascii=False)
    clean = scrub(text)
    if clean == text:
        return value
    result: dict[str, JsonValue] = json.loads(clean)
    return result


def dump_json(value: dict[str, JsonValue]) -> str:
    """Write JSON the same way every time."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def load_json(text: str) -> JsonValue:
    """Read JSON strictly; raises ValueError, also for numbers that are none, or RecursionError."""
    value: JsonValue = json.loads(text, parse_constant=_refuse)
    return value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def tokens(value: object) -> int | None:
    """Return a count of tokens as a server gave it; None for what is none: no number, no whole one, out of bounds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value <= MAX_TOKENS and value == int(value) else None


def part(event: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the object under *name*; an empty one where there is none."""
    value = event.get(name)
    return value if isinstance(value, dict) else {}


def tool_call(call_id: str, name: str, raw: str) -> ToolCall:
    """Read a call's arguments, strictly and once. Blank means none; no JSON object means ``malformed``."""
    try:
        arguments = load_json(raw) if raw.strip() else {}
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        return ToolCall(call_id, name, {}, malformed=scrub(raw))
    return ToolCall(call_id, name, scrub_json(arguments))
