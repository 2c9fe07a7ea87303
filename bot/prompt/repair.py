"""Make any history a valid request: each tool call is followed by exactly one result, each result has its call.

A crash or a stop between a call and its result would otherwise make every later request a 400. The repair is pure,
idempotent and deterministic (no clock, no random), so that the repaired prefix stays cacheable byte for byte.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import replace

from threads.model import Message, Text, ToolCall, ToolResult

INTERRUPTED = json.dumps(
    {
        "success": False,
        "error": {
            "type": "unknown",
            "message": "Interrupted; it may or may not have run.",
            "recoverable": True,
            "suggestion": "Check what happened before you try it again.",
        },
    }
)


def repair(messages: list[Message]) -> list[Message]:
    """Return a valid history; messages that need no change are the same objects, and so is the list."""
    if _only_text(messages):
        return messages
    repaired: list[Message] = []
    position = 0
    while position < len(messages):
        message = messages[position]
        position += 1
        if message.role == "user":
            repaired += _without_results(message)
            continue
        start = position
        while position < len(messages) and messages[position].role == "user":
            position += 1
        repaired += _answered(message, messages[start:position])
    if len(repaired) == len(messages) and all(map(lambda a, b: a is b, repaired, messages)):
        return messages
    return repaired


def _only_text(messages: list[Message]) -> bool:
    """Say whether there is nothing to repair; a plain loop, since this runs over long histories at every step."""
    for message in messages:
        if not message.blocks:
            return False
        for block in message.blocks:
            if type(block) is not Text:
                return False
    return True


def _answered(assistant: Message, following: list[Message]) -> list[Message]:
    """Return the assistant's message, one message with all its results in the order asked, and what else was said."""
    if not assistant.blocks:
        return [kept for message in following for kept in _without_results(message)]
    calls = assistant.calls
    if not calls:
        return [assistant, *(kept for message in following for kept in _without_results(message))]
    if following and _matches(calls, following[0]) and not any(message.results for message in following[1:]):
        return [assistant, *following]
    results = deque(result for message in following for result in message.results)
    paired = tuple(_result_of(call, results) for call in calls)
    rest = [kept for message in following for kept in _without_results(message)]
    return [assistant, Message("user", paired), *rest]


def _matches(calls: list[ToolCall], message: Message) -> bool:
    return [call.id for call in calls] == [
        block.call_id if isinstance(block, ToolResult) else None for block in message.blocks
    ]


def _result_of(call: ToolCall, results: deque[ToolResult]) -> ToolResult:
    """Take the first result for this call's id: repeated ids are answered in order."""
    for result in results:
        if result.call_id == call.id:
            results.remove(result)
            return result
    return ToolResult(call.id, INTERRUPTED, is_error=True)


def _without_results(message: Message) -> list[Message]:
    kept = tuple(block for block in message.blocks if not isinstance(block, ToolResult))
    if len(kept) == len(message.blocks):
        return [message] if kept else []
    return [replace(message, blocks=kept)] if kept else []
