"""Make any history a valid request: a person speaks first, and each call has exactly one result.

After a crash or a stop between a call and its result, every later request would fail with a 400. The repair is pure,
idempotent and deterministic, so the repaired prefix stays in the provider's cache.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import is_

from bot import wording
from bot.ports.errors import ToolError
from bot.ports.tool import dumped, error_body
from threads.model import Message, Text, ToolCall, ToolResult, known

INTERRUPTED = dumped(
    error_body(ToolError(wording.INTERRUPTED, suggestion="Check what happened before you try it again."))
)

MISSING = Message("user", (Text("(The beginning of our conversation is missing.)"),))
"""Comes before an assistant's message that would be the first, as a damaged file may leave it."""


def repair(messages: list[Message]) -> list[Message]:
    """Return a valid history: the same list if nothing changes, and the same objects where they do not change."""
    if known(messages, _valid) and not (messages and messages[0].role == "assistant"):
        return messages
    repaired = _repaired(messages)
    if repaired and repaired[0].role == "assistant":
        return [MISSING, *repaired]
    return messages if _same(repaired, messages) else repaired


def _valid(before: bool | None, new: Sequence[Message]) -> bool:
    """Return whether nothing is repaired in any part, which makes the whole valid: no part leaves a call open."""
    return before is not False and _same(_repaired(new), new)


def _same(one: Sequence[Message], other: Sequence[Message]) -> bool:
    return len(one) == len(other) and all(map(is_, one, other))


def _repaired(messages: Sequence[Message]) -> list[Message]:
    """Return the messages with one result for each call, and without empty ones."""
    entries = [message for message in messages if message.blocks]
    repaired: list[Message] = []
    position = 0
    while position < len(entries):
        message = entries[position]
        position += 1
        if message.role == "user":
            repaired += _without_results(message)
            continue
        start = position
        while position < len(entries) and entries[position].role == "user":
            position += 1
        repaired += _answered(message, entries[start:position])
    return repaired


def _answered(assistant: Message, following: list[Message]) -> list[Message]:
    """Return the assistant's message, one message with its results in order, and the rest of what people said."""
    if not (calls := assistant.calls):
        return [assistant, *_without_results(*following)]
    if following and _matches(calls, following[0]):
        return [assistant, following[0], *_without_results(*following[1:])]
    results = deque(result for message in following for result in message.results)
    paired = tuple(_result_of(call, results) for call in calls)
    return [assistant, Message("user", paired), *_without_results(*following)]


def _matches(calls: list[ToolCall], message: Message) -> bool:
    return [call.id for call in calls] == [
        block.call_id if isinstance(block, ToolResult) else None for block in message.blocks
    ]


def _result_of(call: ToolCall, results: deque[ToolResult]) -> ToolResult:
    """Take the first result with this call's id; repeated ids get theirs in order."""
    for result in results:
        if result.call_id == call.id:
            results.remove(result)
            return result
    return ToolResult(call.id, INTERRUPTED, is_error=True)


def _without_results(*messages: Message) -> Iterator[Message]:
    for message in messages:
        blocks = tuple(block for block in message.blocks if not isinstance(block, ToolResult))
        if blocks:
            yield message if len(blocks) == len(message.blocks) else replace(message, blocks=blocks)
