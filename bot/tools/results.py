"""Results for the model: JSON of one shape, masked, fenced, and of limited length."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict

from pydantic import JsonValue

from bot.ports.errors import ToolError
from bot.ports.outside_text import fenced
from bot.ports.tool import ItemError, ToolContext, ToolOutput, dumped, error_body
from threads.errors import StoreUnavailable
from threads.model import ToolCall, ToolResult
from threads.store.checksummed_lines import scrub

MAX_RESULT = 50_000
"""Characters of one result; of a longer one the two ends are returned, and a file has all of it."""

HEAD, TAIL = 20_000, 8_000
MAX_MESSAGE, MAX_ITEMS = 20_000, 20
"""Characters of an error message, and errors of single items in a result."""

PERSON = "person"
"""The field of a failure with a person's words, which are not text from outside."""


class Results:
    """Writes results; *mask* removes secrets from a text."""

    def __init__(self, mask: Callable[[str], str]) -> None:
        self._mask = mask

    async def succeeded(
        self, call: ToolCall, value: JsonValue | ToolOutput, context: ToolContext
    ) -> ToolResult:
        returned = value if isinstance(value, ToolOutput) else ToolOutput(value)
        result: dict[str, JsonValue] = {"success": True, "result": returned.result}
        context.images.extend(returned.images)
        if returned.errors:
            errors, more = returned.errors[:MAX_ITEMS], len(returned.errors) - MAX_ITEMS
            others = [ItemError("others", "unknown", f"{more} more failed.")] if more > 0 else []
            result["errors"] = [asdict(error) for error in (*errors, *others)]
        return await self._result(call, result, returned.origin, context)

    async def failed(
        self, call: ToolCall, error: ToolError, context: ToolContext, *, suggestion: str = "", words: str = ""
    ) -> ToolResult:
        """Return a failure, with the *words* of a person about it. A *suggestion* replaces the error's own."""
        body = error_body(error, self._mask(str(error))[:MAX_MESSAGE], suggestion)
        if words:
            body[PERSON] = words
        if error.partial is not None:
            body["partial"] = error.partial
        return await self._result(call, body, error.origin, context, is_error=True)

    async def _result(
        self,
        call: ToolCall,
        result: dict[str, JsonValue],
        origin: str,
        context: ToolContext,
        *,
        is_error: bool = False,
    ) -> ToolResult:
        key = "partial" if is_error else "result"
        if key in result and len(dumped(result)) > MAX_RESULT:
            # A call after text from outside was read can return that text.
            outside = bool(origin) or context.tainted
            result = {**result, key: await self._truncate(result[key], context, outside=outside)}
        if origin:
            result = {
                name: value if name == PERSON else fenced(value, origin, call.id)
                for name, value in result.items()
            }
        return ToolResult(call.id, scrub(self._mask(dumped(result))), is_error, outside=bool(origin))

    async def _truncate(self, value: JsonValue, context: ToolContext, *, outside: bool) -> JsonValue:
        """Return the two ends of a long value, its numbers, and the path of the file that has all of it."""
        whole = self._mask(
            value if isinstance(value, str) else json.dumps(value, indent=1, ensure_ascii=False)
        )
        facts = value if isinstance(value, dict) else {}
        cut: dict[str, JsonValue] = {
            **{name: fact for name, fact in facts.items() if isinstance(fact, int | float)},
            "head": whole[:HEAD],
            "left_out": max(0, len(whole) - HEAD - TAIL),
            "tail": whole[HEAD:][-TAIL:],
        }
        try:
            cut["file"] = await context.spill(f"{context.stem}.txt", scrub(whole), outside=outside)
            cut["next"] = "read_file reads all of it, in parts."
        except StoreUnavailable:
            cut["next"] = "The rest could not be saved: ask for a part of it."
        return cut
