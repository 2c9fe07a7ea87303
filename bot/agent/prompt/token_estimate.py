"""How long a conversation is, in tokens, before anybody has counted it: a likely figure, and one never exceeded.

Both start from the newest count that a provider gave (``Message.tokens``), so that only what came after is guessed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence

from bot.ports.model import Request, ToolSpec
from threads.model import Image, Message, Text, Thinking, ToolCall, ToolResult

_PER_CHARACTER = 1 / 3.5
_PER_FURTHER_BYTE = (1 / 1.2 - _PER_CHARACTER) / 2
"""What each byte beyond a character's first adds: with it a CJK character, three bytes, costs 1/1.2 of a token."""

_PIECE, _IMAGE = 4, 1_600
"""Likely tokens of the marks around one text or call, and of one picture."""

_MOST_PIECE, _MOST_IMAGE, _MOST_REQUEST = 32, 10_000, 1_000
"""The same, at the very most; the last is what providers add to a request on their own account."""

_ANSWER = 1_000
"""Likely tokens of an answer that may be longer."""


def estimate(text: str) -> int:
    """Return about how many tokens *text* has: 3.5 characters each, 1.2 in scripts of three bytes a character."""
    characters = len(text)
    return math.ceil(characters * _PER_CHARACTER + (_bytes(text) - characters) * _PER_FURTHER_BYTE)


_LIKELY = (estimate, _PIECE, _IMAGE)


def size_of(system: str, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> int:
    """Return about how many tokens a prompt has: the newest real count, and the estimate of what follows it."""
    return sum(_size(system, messages, tools, _LIKELY))


def request_size(request: Request) -> int:
    """Return about how many tokens the prompt of *request* has."""
    return size_of(request.system, request.messages, request.tools)


def uncached_size(request: Request, model: str) -> int:
    """Return about how many tokens of a call *model* has not read before, its answer included.

    What that model has counted it has read, and most likely kept in its cache.
    """
    _, guessed = _size(request.system, request.messages, request.tools, _LIKELY, model)
    return guessed + min(request.max_tokens, _ANSWER)


def most_tokens(request: Request, model: str = "") -> int:
    """Return what the prompt of *request* will not exceed: no tokenizer makes more tokens than there are bytes.

    With *model* given only that model's own counts are believed, as others count differently.
    """
    measure = (_bytes, _MOST_PIECE, _MOST_IMAGE)
    schema = _bytes(json.dumps(request.output_schema)) if request.output_schema else 0
    return (
        _MOST_REQUEST + schema + sum(_size(request.system, request.messages, request.tools, measure, model))
    )


def _size(
    system: str,
    messages: Sequence[Message],
    tools: Sequence[ToolSpec],
    measure: tuple[Callable[[str], int], int, int],
    model: str = "",
) -> tuple[int, int]:
    """Return the newest real count, and what the prompt measures that follows it."""
    of_text, per_piece, per_image = measure
    counted, start = _counted(messages, model)
    pieces = [] if counted else [*([system] if system else ()), *map(_tool, tools)]
    images = 0
    for message in messages[start:]:
        for block in message.blocks:
            if isinstance(block, Image):
                images += 1
            else:
                pieces.append(_written(block))
    return counted, sum(map(of_text, pieces)) + per_piece * len(pieces) + per_image * images


def _counted(messages: Sequence[Message], model: str) -> tuple[int, int]:
    """Return the newest real count, and the place of the first message after it."""
    for place in range(len(messages), 0, -1):
        message = messages[place - 1]
        if message.tokens > 0 and (not model or message.model == model):
            return message.tokens, place
    return 0, 0


def _written(block: Text | Thinking | ToolCall | ToolResult) -> str:
    if isinstance(block, Text):
        return block.text
    if isinstance(block, ToolResult):
        return f"{block.call_id}{block.content}"
    if isinstance(block, ToolCall):
        return f"{block.id}{block.name}{json.dumps(block.arguments, ensure_ascii=False)}"
    return json.dumps(block.raw, ensure_ascii=False)


def _tool(tool: ToolSpec) -> str:
    return f"{tool.name}{tool.description}{json.dumps(tool.parameters, ensure_ascii=False)}"


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
