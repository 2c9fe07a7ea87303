"""The gate that every tool call goes through, MCP included; nothing else runs a tool.

| step      | what it does                                                            | else               |
|-----------|-------------------------------------------------------------------------|--------------------|
| known     | the tool exists, and can work here                                      | `ToolNotFound`, `ToolDenied` |
| validated | the arguments fit the tool's schema                                     | `ToolInvalidInput` |
| permitted | policy: allow, ask a person, deny; the wait for them is nobody's time    | `ToolDenied`       |
| run       | within the tool's time; a stop of the turn ends it                      | `ToolTimeout`      |
| returned  | secrets masked, outside text fenced, what is too long kept in a file     |                    |

A result is data: ``{"success": true, "result": …}``, with ``errors`` per item if only a part worked, or
``{"success": false, "error": {type, message, recoverable, suggestion}}``. Calls of one step run side by side; their
results come back in the order asked.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

import anyio
from pydantic import JsonValue, ValidationError

from bot.errors import ToolDenied, ToolError, ToolInvalidInput, ToolNotFound, ToolTimeout
from bot.llm.model import ToolSpec
from bot.tools.base import Arguments, Place, Returned, Tool
from bot.tools.results import Results, failed
from threads.model import OnEvent, ToolCall, ToolFinished, ToolResult, ToolStarted

log = logging.getLogger(__name__)

GRACE_S = 2.0
"""How long a tool that was told its time may take to hand over what it has, before it is cut off."""

MAX_PARALLEL = 8
"""Calls of one step that run at once."""


Permit = Callable[[Tool, ToolCall, Arguments, Place], Awaitable[None]]
"""Returns when the call may run; raises `ToolDenied`."""


async def freely(_tool: Tool, _call: ToolCall, _arguments: Arguments, _place: Place) -> None:
    """Permit everything."""


class Toolbox:
    """The tools of one bot, sorted by name: their order is part of the cached prompt.

    ``off`` says of tools that cannot work here why, in a sentence; the model is told, and a call fails with it.
    """

    def __init__(
        self,
        tools: Sequence[Tool],
        *,
        timeout_s: Mapping[str, float],
        default_timeout_s: float,
        permit: Permit = freely,
        mask: Callable[[str], str] = str,
        off: Mapping[str, str] | None = None,
    ) -> None:
        self._tools = {tool.name: tool for tool in sorted(tools, key=lambda tool: tool.name)}
        self._timeout_s, self._default_timeout_s = timeout_s, default_timeout_s
        self._permit, self._mask, self._off = permit, mask, off or {}
        self._results = Results(mask)
        self.specs = tuple(self._spec(tool) for tool in self._tools.values())

    async def run(self, calls: Sequence[ToolCall], place: Place, on_event: OnEvent) -> list[ToolResult]:
        """Run the calls of one step, and return their results in the order asked."""
        results: dict[int, ToolResult] = {}
        room = anyio.CapacityLimiter(MAX_PARALLEL)

        async def one(index: int, call: ToolCall) -> None:
            async with room:
                await on_event(ToolStarted(call.name, self._mask(_summary(call)), call.id))
                results[index] = await self._call(call, replace(place, call_id=call.id))
                await on_event(ToolFinished(call.name, not results[index].is_error, call.id))

        async with anyio.create_task_group() as tasks:
            for index, call in enumerate(calls):
                tasks.start_soon(one, index, call)
        return [results[index] for index in range(len(calls))]

    async def _call(self, call: ToolCall, place: Place) -> ToolResult:
        try:
            return await self._results.succeeded(call, await self._invoke(call, place), place)
        except ToolError as error:
            return await self._results.failed(call, error, place)
        except Exception:  # the boundary of a tool: the model reads that it failed, the operator reads why
            log.exception("tool failed", extra={"tool": call.name})
            return failed(call, "unknown", "The tool failed.", recoverable=False)

    async def _invoke(self, call: ToolCall, place: Place) -> JsonValue | Returned:
        tool = self._tools.get(call.name)
        if tool is None:
            known = ", ".join(self._tools)
            raise ToolNotFound(f"There is no tool named {call.name[:80]!r}.", suggestion=f"Use: {known}")
        if why := self._off.get(call.name):
            raise ToolDenied(why, suggestion="Go on without it, and say so.")
        if call.malformed:
            raise ToolInvalidInput("The arguments were not a JSON object.", suggestion="Send valid JSON.")
        try:
            arguments = tool.arguments.model_validate(call.arguments)
        except ValidationError as error:
            raise ToolInvalidInput(_faults(error), suggestion="Mend the arguments and call again.") from error
        await self._permit(tool, call, arguments, place)
        return await self._in_time(tool, arguments, place)

    async def _in_time(self, tool: Tool, arguments: Arguments, place: Place) -> JsonValue | Returned:
        timeout_s = self._timeout_s.get(tool.name, self._default_timeout_s)
        deadline = anyio.current_time() + timeout_s
        with anyio.CancelScope(deadline=deadline + GRACE_S):
            return await tool(arguments, replace(place, deadline=deadline))
        raise ToolTimeout(f"The tool was stopped after {timeout_s:g} s.", suggestion="Try a smaller step.")

    def _spec(self, tool: Tool) -> ToolSpec:
        why = self._off.get(tool.name)
        description = f"{tool.description} (Off here: {why})" if why else tool.description
        return ToolSpec(tool.name, description, tool.arguments.model_json_schema(), tool.risk)


def _faults(error: ValidationError) -> str:
    return "; ".join(f"{'.'.join(map(str, f['loc'])) or 'arguments'}: {f['msg']}" for f in error.errors())


def _summary(call: ToolCall) -> str:
    """Return a short line on what the call is about, for a status."""
    return ", ".join(f"{value}" for value in call.arguments.values() if isinstance(value, str))[:80]
