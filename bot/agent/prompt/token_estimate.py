"""Estimates of a conversation's length in tokens: a likely figure, and an upper bound.

Both start from the newest count of a provider (``Message.tokens``) and estimate only what follows it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence

from bot.ports.model import Request, ToolSpec
from threads.model import Image, Message, Text, Thinking, ToolCall, ToolResult

_PER_CHARACTER = 1 / 3.5
_PER_FURTHER_BYTE = (1 / 1.2 - _PER_CHARACTER) / 2
"""Tokens for each byte after a character's first: a CJK character of three bytes has 1/1.2 of a token."""

_PIECE, _IMAGE = 4, 1_600
"""Likely tokens of the marks around one text or call, and of one image."""

_MOST_PIECE, _MOST_IMAGE, _MOST_REQUEST = 32, 10_000, 1_000
"""The same as upper bounds; the last is for what providers add to a request themselves."""

_ANSWER = 1_000
"""Likely tokens of an answer."""


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
    """Return about how many tokens of a call are not in the cache of *model*, its answer included.

    A prompt that this model has counted is most likely in its cache.
    """
    _, guessed = _size(request.system, request.messages, request.tools, _LIKELY, model)
    return guessed + min(request.max_tokens, _ANSWER)


def most_tokens(request: Request, model: str = "") -> int:
    """Return an upper bound of the prompt of *request*: no tokenizer makes more tokens than there are bytes.

    With *model* only the counts of that model are used, because others count differently.
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
    """Return the newest real count, and the measure of the rest of the prompt."""
    of_text, per_piece, per_image = measure
    counted, start = _counted(messages, model)
    pieces = [] if counted else [*([system] if system else ()), *(tool.text for tool in tools)]
    images = 0
    for message in messages[start:]:
        for block in message.blocks:
            if isinstance(block, Image):
                images += 1
            else:
                pieces.append(_text_of(block))
    return counted, of_text("".join(pieces)) + per_piece * len(pieces) + per_image * images


def _counted(messages: Sequence[Message], model: str) -> tuple[int, int]:
    """Return the newest real count, and the index of the first message after it."""
    for place in range(len(messages), 0, -1):
        message = messages[place - 1]
        if message.tokens > 0 and (not model or message.model == model):
            return message.tokens, place
    return 0, 0


def _text_of(block: Text | Thinking | ToolCall | ToolResult) -> str:
    if isinstance(block, Text):
        return block.text
    if isinstance(block, ToolResult):
        return f"{block.call_id}{block.content}"
    if isinstance(block, ToolCall):
        return f"{block.id}{block.name}{json.dumps(block.arguments, ensure_ascii=False)}"
    return json.dumps(block.raw, ensure_ascii=False)


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
