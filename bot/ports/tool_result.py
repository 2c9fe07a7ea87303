"""The result of a tool for the model: JSON with one shape for success and one for failure."""

from __future__ import annotations

import json

from pydantic import JsonValue

from bot.ports.tool import ErrorType
from threads.model import ToolCall, ToolResult
from threads.store.checksummed_lines import scrub


def failed(
    call: ToolCall, kind: ErrorType, message: str, *, recoverable: bool, suggestion: str = ""
) -> ToolResult:
    """Return the result of a failed call."""
    body = error_body(kind, message, recoverable=recoverable, suggestion=suggestion)
    return ToolResult(call.id, scrub(dumped(body)), is_error=True)


def error_body(
    kind: ErrorType, message: str, *, recoverable: bool, suggestion: str = ""
) -> dict[str, JsonValue]:
    """Return ``{"success": false, "error": …}``."""
    error: dict[str, JsonValue] = {
        "type": kind,
        "message": message,
        "recoverable": recoverable,
        "suggestion": suggestion,
    }
    return {"success": False, "error": error}


def dumped(result: dict[str, JsonValue]) -> str:
    """Return the JSON of a result, with non-ASCII letters as they are."""
    return json.dumps(result, ensure_ascii=False)
