"""What every provider's wire form has in common: conversations made fit to send, and JSON read and written strictly.

`fit` is deterministic and looks only backwards, so that the wire form of a longer conversation begins with the
wire form of the shorter one, byte for byte: the providers' prompt caches live on that.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from pydantic import JsonValue

from threads.model import Block, Message, Text, Thinking, ToolCall, ToolResult

EMPTY = "(empty)"
"""Stands where there is nothing to send: providers refuse blank text, and a turn cannot be left out."""

_THOUGHTS = ("thinking", "redacted_thinking", "reasoning", None)


def fit(messages: Sequence[Message], model: str, ids: re.Pattern[str]) -> list[Message]:
    """Return the conversation as *model* may be sent it; roles alternate, every text is non-blank Unicode.

    Results stand before texts in a user entry; thinking is only what *model* itself wrote; call ids match *ids*
    and are unique, the same for a call and its result. Expects that ``repair`` ran: each call has its result.
    """
    cleaned = (replace(message, blocks=tuple(_clean(message, model))) for message in messages)
    kept = (message for message in _rename(cleaned, ids) if message.blocks or message.role == "user")
    return [_join(entries) for _, entries in groupby(kept, key=lambda message: message.role)]


def _join(entries: Iterable[Message]) -> Message:
    entries = list(entries)
    blocks = [block for entry in entries for block in entry.blocks]
    if entries[0].role == "user":
        blocks.sort(key=lambda block: not isinstance(block, ToolResult))
    return Message(entries[0].role, tuple(blocks) or (Text(EMPTY),))


def _clean(message: Message, model: str) -> Iterator[Block]:
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
                yield replace(block, name=scrub(name), arguments=scrub_json(arguments))
            case Thinking():
                yield block


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


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def tool_call(call_id: str, name: str, raw: str) -> ToolCall:
    """Read a call's arguments, strictly and once. Blank means none; no JSON object means ``malformed``."""
    try:
        arguments = json.loads(raw, parse_constant=_refuse) if raw.strip() else {}
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        return ToolCall(call_id, name, {}, malformed=scrub(raw))
    return ToolCall(call_id, name, scrub_json(arguments))
