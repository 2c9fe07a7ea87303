"""The failed tool calls of an attempt, as typed errors. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from pydantic import JsonValue
from pydantic_core import from_json

from bot.extensions.playbooks.run_state import LONGEST_MESSAGE, Failure
from bot.ports.tool import ErrorType
from threads.model import Message, ToolResult


def unmended_errors(messages: Sequence[Message]) -> tuple[Failure, ...]:
    """Return the error of each tool whose last call failed, in the order of these calls."""
    names = {call.id: call.name for message in messages for call in message.calls}
    last: dict[str, ToolResult] = {}
    for message in messages:
        for result in message.results:
            tool = names.get(result.call_id, "a tool")
            last.pop(tool, None)
            last[tool] = result
    return tuple(failure_of(tool, result) for tool, result in last.items() if result.is_error)


def failure_of(tool: str, result: ToolResult) -> Failure:
    """Return the failed result of a tool as a typed error."""
    fields = _part(result, "error")
    kinds: tuple[ErrorType, ...] = get_args(ErrorType)
    kind: ErrorType = next((name for name in kinds if name == fields.get("type")), "unknown")
    return Failure(
        type=kind,
        message=str(fields.get("message") or "The tool failed.")[:LONGEST_MESSAGE],
        recoverable=bool(fields.get("recoverable", True)),
        suggestion=str(fields.get("suggestion") or "")[:LONGEST_MESSAGE],
        tool=tool,
    )


def exit_code_of(result: ToolResult) -> int | None:
    """Return the exit code of the command of a `shell` call, None if it did not end by itself."""
    code = _part(result, "partial" if result.is_error else "result").get("exit_code")
    return code if isinstance(code, int) else None


def _part(result: ToolResult, name: str) -> dict[str, JsonValue]:
    """Return the fields of a part of a result; none if it has no such part."""
    try:
        body = from_json(result.content)
    except ValueError:
        return {}
    part: JsonValue = body.get(name) if isinstance(body, dict) else None
    return part if isinstance(part, dict) else {}
