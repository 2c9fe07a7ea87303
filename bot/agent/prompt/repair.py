"""Make any history a valid request: a person speaks first, each call has exactly one result, each result its call.

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

MISSING = Message("user", (Text("(The beginning of our conversation is missing.)"),))
"""Stands before an assistant's entry that comes first, as damage to the file may leave it."""


def repair(messages: list[Message]) -> list[Message]:
    """Return a valid history; messages that need no change are the same objects, and so is the list."""
    if _only_text(messages):
        return messages
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
    if repaired and repaired[0].role == "assistant":
        repaired.insert(0, MISSING)
    if len(repaired) == len(messages) and all(map(lambda a, b: a is b, repaired, messages)):
        return messages
    return repaired


def _only_text(messages: list[Message]) -> bool:
    """Say whether there is nothing to repair; a plain loop, since this runs over long histories at every step."""
    if messages and messages[0].role == "assistant":
        return False
    for message in messages:
        if not message.blocks:
            return False
        for block in message.blocks:
            if type(block) is not Text:
                return False
    return True


def _answered(assistant: Message, following: list[Message]) -> list[Message]:
    """Return the assistant's message, one message with all its results in the order asked, and what else was said."""
    calls = assistant.calls
    if not calls:
        return [assistant, *(kept for message in following for kept in _without_results(message))]
    if following and _matches(calls, following[0]):
        rest = [kept for message in following[1:] for kept in _without_results(message)]
        return [assistant, following[0], *rest]
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
        return [message]
    return [replace(message, blocks=kept)] if kept else []
