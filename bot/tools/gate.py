"""The gate that every tool call goes through, MCP included; nothing else runs a tool.

| step      | what it does                                                           | else                         |
|-----------|------------------------------------------------------------------------|------------------------------|
| find      | the tool exists and works here                                         | `ToolNotFound`, `ToolDenied` |
| validate  | the arguments match the tool's schema                                  | `ToolInvalidInput`           |
| check     | what it is about exists, if the tool can tell                          | `ToolError`                  |
| permit    | policy: allow, ask a person, deny; waiting for a person is not counted | `ToolDenied`                 |
| run       | within the tool's time; a stop of the turn ends it                     | `ToolTimeout`                |
| recover   | a person may choose how to go on after a failure; a retry begins anew  |                              |
| return    | secrets masked, outside text fenced, a long result saved to a file     |                              |

A result is data: ``{"success": true, "result": …}``, with ``errors`` per item if only a part worked, or
``{"success": false, "error": {type, message, recoverable, suggestion}}``. Calls of one step run in parallel; their
results come back in the order of the calls.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import anyio
from pydantic import JsonValue

from bot.ports.errors import ToolCrashed, ToolDenied, ToolError, ToolNotFound, ToolTimeout
from bot.ports.model import ToolSpec
from bot.ports.tool import Arguments, Checking, Tool, ToolContext, ToolOutput, arguments_of, failed
from bot.tools.labels import tool_finished, tool_started
from bot.tools.results import Results
from threads.errors import StoreUnavailable, error_fields, retry_fields
from threads.model import OnEvent, ToolCall, ToolResult

log = logging.getLogger(__name__)

GRACE_S = 2.0
"""Seconds after its deadline in which a tool can return partial output, before it is cut off."""

MAX_PARALLEL = 8
"""Calls of one step that run at once."""


class Permits(Protocol):
    """Decides which calls may run; see `bot.tools.approvals.Approvals`."""

    async def permit(self, tool: Tool, arguments: Arguments, context: ToolContext) -> None:
        """Return when the call may run. Raises `ToolDenied`."""

    def waits(self, tool: Tool, arguments: Arguments, context: ToolContext) -> bool:
        """Return whether the call waited for a person when the last process ended, so it has not run."""


@dataclass(frozen=True, slots=True)
class Choice:
    """How to go on after a failure: make the call again, or return the failure with a person's *words*.

    ``permitted``: the call was permitted and has not run, so it is not asked about again. A ``suggestion`` replaces
    that of the failure.
    """

    retry: bool = False
    permitted: bool = False
    suggestion: str = ""
    words: str = ""


LEAVE = Choice()
"""Return the failure as it is."""


class Recovers(Protocol):
    """Asks a person about failed calls; see `bot.tools.recovery.Recovery`."""

    async def choose(
        self, tool: Tool, arguments: Arguments, error: ToolError, context: ToolContext
    ) -> Choice:
        """Return what a person chooses, `LEAVE` if nobody is asked. Raises `ToolError` and `StoreUnavailable`."""


@dataclass(slots=True)
class _Attempt:
    """One attempt at a call, counted from 1. ``permitted``: nobody has to be asked about it again.

    It ``began`` when it came to run, on anyio's clock.
    """

    call: ToolCall
    context: ToolContext
    slots: anyio.Semaphore
    number: int = 1
    permitted: bool = False
    began: float | None = field(default=None, init=False)

    def log_failure(self, error: Exception) -> None:
        """Log it as an error. A denial is a decision, and none."""
        took_s = anyio.current_time() - self.began if self.began is not None else 0.0
        known = isinstance(error, ToolError)
        log.log(
            logging.INFO if isinstance(error, ToolDenied) else logging.ERROR,
            "tool.failed: %s: %s",
            self.call.name,
            error if known else "see the traceback",
            exc_info=None if known else error,
            extra={
                "tool": self.call.name,
                "call": self.call.id,
                "attempt": self.number,
                "duration_ms": round(took_s * 1000),
                **error_fields(error),
            },
        )


class Toolbox:
    """The tools of one bot, sorted by name: their order is part of the cached prompt.

    ``off`` has a sentence for each tool that cannot work here; the model sees it, and a call fails with it.
    """

    def __init__(
        self,
        tools: Sequence[Tool],
        *,
        timeout_s: Mapping[str, float],
        default_timeout_s: float,
        permits: Permits,
        mask: Callable[[str], str],
        off: Mapping[str, str],
        recovery: Recovers | None = None,
    ) -> None:
        self._tools = {tool.name: tool for tool in sorted(tools, key=lambda tool: tool.name)}
        self._timeout_s, self._default_timeout_s = timeout_s, default_timeout_s
        self._permits, self._mask, self._off = permits, mask, off
        self._results, self._recovery = Results(mask), recovery
        self.specs = tuple(self._spec(tool) for tool in self._tools.values())

    def replace(self, gone: Collection[str], tools: Sequence[Tool]) -> None:
        """Offer other tools from the next turn on. A name that is taken keeps its tool."""
        kept = {name: tool for name, tool in self._tools.items() if name not in gone}
        self._tools = dict(sorted(({tool.name: tool for tool in tools} | kept).items()))
        self.specs = tuple(self._spec(tool) for tool in self._tools.values())

    async def run(
        self, calls: Sequence[ToolCall], context: ToolContext, on_event: OnEvent
    ) -> list[ToolResult]:
        """Run the calls of one step, and return their results in the order of the calls."""
        results: dict[int, ToolResult] = {}
        slots = anyio.Semaphore(MAX_PARALLEL)
        contexts = [replace(context, call_id=call.id, images=[]) for call in calls]

        async def run_one(index: int, call: ToolCall) -> None:
            await on_event(tool_started(call, self._mask))
            result = results[index] = await self._call(_Attempt(call, contexts[index], slots))
            await on_event(tool_finished(call, result, self._mask))

        async with anyio.create_task_group() as tasks:
            for index, call in enumerate(calls):
                tasks.start_soon(run_one, index, call)
        context.images.extend(image for own in contexts for image in own.images)
        return [results[index] for index in range(len(calls))]

    def waits(self, call: ToolCall, context: ToolContext) -> bool:
        """Return whether the call waited for a person when the last process ended, so it has not run."""
        try:
            tool, arguments = self._parse(call)
        except ToolError:
            return False
        return self._permits.waits(tool, arguments, replace(context, call_id=call.id))

    async def _call(self, attempt: _Attempt) -> ToolResult:
        try:
            return await self._results.succeeded(attempt.call, await self._invoke(attempt), attempt.context)
        except Exception as error:  # noqa: BLE001 - the boundary of a tool
            return await self._failed(attempt, error)

    async def _invoke(self, attempt: _Attempt) -> JsonValue | ToolOutput:
        tool, arguments = self._parse(attempt.call)
        if not attempt.permitted:
            if isinstance(tool, Checking):
                await tool.check(arguments, attempt.context)
            await self._permits.permit(tool, arguments, attempt.context)
        async with attempt.slots:  # not before: a call that waits for a person must not block others
            attempt.began = anyio.current_time()
            return await self._run_in_time(tool, arguments, attempt.context)

    async def _failed(self, attempt: _Attempt, error: Exception) -> ToolResult:
        """Log why, for operators and the audit, and return what the model may know. A person may have it retried."""
        attempt.log_failure(error)
        call, context = attempt.call, attempt.context
        if not isinstance(error, ToolError):
            return failed(call, ToolCrashed("The tool failed."))
        choice = await self._choose(call, error, context)
        if choice.retry:
            again = replace(attempt, number=attempt.number + 1, permitted=choice.permitted)
            fields = retry_fields(error, again.number, 0.0, tool=call.name, call=call.id)
            log.warning("tool.retried: %s: a person chose so", call.name, extra=fields)
            return await self._call(again)
        return await self._results.failed(
            call, error, context, suggestion=choice.suggestion, words=choice.words
        )

    async def _choose(self, call: ToolCall, error: ToolError, context: ToolContext) -> Choice:
        if self._recovery is None:
            return LEAVE
        try:
            return await self._recovery.choose(*self._parse(call), error, context)
        except (ToolError, StoreUnavailable) as unasked:
            log.info("tool.not_recovered: %s: %s", call.name, unasked)
            return LEAVE

    def _parse(self, call: ToolCall) -> tuple[Tool, Arguments]:
        if (tool := self._tools.get(call.name)) is None:
            known = ", ".join(self._tools)
            raise ToolNotFound(f"There is no tool named {call.name[:80]!r}.", suggestion=f"Use: {known}")
        if why := self._off.get(call.name):
            raise ToolDenied(why, suggestion="Go on without it, and say so.")
        return tool, arguments_of(tool, call)

    async def _run_in_time(
        self, tool: Tool, arguments: Arguments, context: ToolContext
    ) -> JsonValue | ToolOutput:
        timeout_s = self._timeout_s.get(tool.name, self._default_timeout_s)
        deadline = anyio.current_time() + timeout_s
        with anyio.CancelScope(deadline=deadline + GRACE_S):
            return await tool(arguments, replace(context, deadline=deadline))
        raise ToolTimeout(f"The tool was stopped after {timeout_s:g} s.", suggestion="Try a smaller step.")

    def _spec(self, tool: Tool) -> ToolSpec:
        why = self._off.get(tool.name)
        description = f"{tool.description} (Off here: {why})" if why else tool.description
        return ToolSpec(tool.name, description, tool.arguments.model_json_schema())
