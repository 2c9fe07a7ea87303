"""What a tool is, and the gate that every call goes through: validation, time limit, output cap, structured result.

A result is data: ``{"success": true, "result": …}`` or ``{"success": false, "error": {type, message, recoverable,
suggestion}}``. Calls of one step run side by side; their results come back in the order asked.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol

import anyio
from pydantic import BaseModel, JsonValue, ValidationError

from bot.errors import ToolDenied, ToolError, ToolInvalidInput, ToolNotFound, ToolTimeout
from bot.llm.model import ToolSpec
from threads.errors import TransportRejected
from threads.lines import scrub
from threads.model import OnEvent, ToolCall, ToolFinished, ToolResult, ToolStarted

log = logging.getLogger(__name__)

MAX_RESULT = 50_000
"""Characters of one result; a tool that has more says how to get the rest."""

ErrorType = Literal["timeout", "permission", "not_found", "rate_limit", "validation", "unknown"]


async def nowhere(_call_id: str, _file: Path, _name: str) -> None:
    raise TransportRejected("there is no thread to post to")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a call runs: the thread's own workspace folder, which may not exist yet.

    ``attach`` posts a file to the thread: the call's id, the file, its name. Raises `threads.errors.PostFailed`.
    """

    workspace: Path
    attach: Callable[[str, Path, str], Awaitable[None]] = nowhere
    call_id: str = ""


class Tool(Protocol):
    """Something a model may ask for. ``arguments`` is the pydantic model of its input."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def risk(self) -> Literal["read", "write", "exec", "net"]: ...

    @property
    def arguments(self) -> type[BaseModel]: ...

    async def __call__(self, arguments: BaseModel, place: Place) -> JsonValue:
        """Return what the model should read; raises `bot.errors.ToolError`."""
        ...


def spec_of(tool: Tool) -> ToolSpec:
    return ToolSpec(tool.name, tool.description, tool.arguments.model_json_schema(), tool.risk)


class Toolbox:
    """The tools of one bot, sorted by name: their order is part of the cached prompt."""

    def __init__(
        self, tools: Sequence[Tool], *, timeout_s: Mapping[str, float], default_timeout_s: float
    ) -> None:
        self._tools = {tool.name: tool for tool in sorted(tools, key=lambda tool: tool.name)}
        self._timeout_s, self._default_timeout_s = timeout_s, default_timeout_s
        self.specs = tuple(spec_of(tool) for tool in self._tools.values())

    async def run(self, calls: Sequence[ToolCall], place: Place, on_event: OnEvent) -> list[ToolResult]:
        results: dict[int, ToolResult] = {}

        async def one(index: int, call: ToolCall) -> None:
            await on_event(ToolStarted(call.name, _summary(call), call.id))
            results[index] = await self._call(call, place)
            await on_event(ToolFinished(call.name, not results[index].is_error, call.id))

        async with anyio.create_task_group() as tasks:
            for index, call in enumerate(calls):
                tasks.start_soon(one, index, call)
        return [results[index] for index in range(len(calls))]

    async def _call(self, call: ToolCall, place: Place) -> ToolResult:
        try:
            return succeeded(call, await self._invoke(call, replace(place, call_id=call.id)))
        except ToolError as error:
            return failed(call, _type_of(error), str(error), recoverable=True, suggestion=error.suggestion)
        except Exception:  # the boundary of a tool: the model reads that it failed, the operator reads why
            log.exception("tool failed", extra={"tool": call.name})
            return failed(call, "unknown", "The tool failed.", recoverable=False)

    async def _invoke(self, call: ToolCall, place: Place) -> JsonValue:
        tool = self._tools.get(call.name)
        if tool is None:
            known = ", ".join(self._tools)
            raise ToolNotFound(f"There is no tool named {call.name[:80]!r}.", suggestion=f"Use: {known}")
        if call.malformed:
            raise ToolInvalidInput("The arguments were not a JSON object.", suggestion="Send valid JSON.")
        try:
            arguments = tool.arguments.model_validate(call.arguments)
        except ValidationError as error:
            raise ToolInvalidInput(_faults(error), suggestion="Mend the arguments and call again.") from error
        timeout_s = self._timeout_s.get(call.name, self._default_timeout_s)
        with anyio.move_on_after(timeout_s):
            return await tool(arguments, place)
        raise ToolTimeout(f"The tool was stopped after {timeout_s:g} s.", suggestion="Try a smaller step.")


def _faults(error: ValidationError) -> str:
    return "; ".join(f"{'.'.join(map(str, f['loc'])) or 'arguments'}: {f['msg']}" for f in error.errors())


def succeeded(call: ToolCall, result: JsonValue) -> ToolResult:
    content = json.dumps({"success": True, "result": result}, ensure_ascii=False)
    if len(content) > MAX_RESULT:
        message = f"The result has {len(content)} characters; at most {MAX_RESULT} can be returned."
        return failed(call, "validation", message, recoverable=True, suggestion="Ask for a part of it.")
    return ToolResult(call.id, scrub(content))


def failed(
    call: ToolCall, kind: ErrorType, message: str, *, recoverable: bool, suggestion: str = ""
) -> ToolResult:
    error = {"type": kind, "message": message, "recoverable": recoverable, "suggestion": suggestion}
    content = json.dumps({"success": False, "error": error}, ensure_ascii=False)
    return ToolResult(call.id, scrub(content), is_error=True)


def _type_of(error: ToolError) -> ErrorType:
    kinds: dict[type[ToolError], ErrorType] = {
        ToolTimeout: "timeout",
        ToolDenied: "permission",
        ToolNotFound: "not_found",
        ToolInvalidInput: "validation",
    }
    return kinds.get(type(error), "unknown")


def _summary(call: ToolCall) -> str:
    """Return a short line on what the call is about, for a status."""
    return ", ".join(f"{value}" for value in call.arguments.values() if isinstance(value, str))[:80]
