"""Wrappers that observe a run, a model and a tool, none of which knows of it.

| kind       | around                                                                     |
|------------|----------------------------------------------------------------------------|
| turn       | what the actor runs                                                        |
| step       | the outermost model of a turn, `bot.llm.policies.metering.BudgetedModel`                  |
| model call | each single attempt, with the account that pays for it: `bot.llm.policies.metering.MeteredModel` |
| tool       | each tool; also a call that a rule or a person denied, which takes no time |
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import anyio
from pydantic import JsonValue

from bot.budget.accounts import Account
from bot.observe.turn_events import Observing
from bot.ports.errors import ToolDenied, ToolError
from bot.ports.model import Completion, ModelWrapper, Request, TurnModelWrapper
from bot.ports.risk import Risk
from bot.ports.tool import Arguments, Changing, Checking, Tool, ToolContext, ToolOutput
from bot.tools.gate import Permits
from threads.journal.records import PendingMessage, Settled
from threads.model import OnEvent, Run, TextDelta, ThinkingDelta, Turn, TurnEvent


def observe_run(run: Run, observing: Observing) -> Run:
    """Return *run*, observed. Every line that it logs has the ids of the turn."""

    async def observed(turn: Turn) -> str:
        incoming = turn.incoming
        ids = {
            "thread_id": str(incoming.thread),
            "message_id": incoming.id,
            "correlation_id": turn.correlation_id,
        }
        with observing.work("turn", incoming.thread.transport, ids, turn.attempt) as work:
            try:
                return await run(turn)
            except anyio.get_cancelled_exc_class():
                if turn.timed_out:
                    work.cut = "turn_timeout"
                raise

    return observed


def observe_outcome(observing: Observing, pending: PendingMessage, end: Settled) -> None:
    """Report a message's outcome, once it is durable."""
    ids = {"thread_id": end.thread_id, "message_id": end.message_id, "correlation_id": pending.reference}
    observing.settled(pending.incoming.thread.transport, end.outcome, _took(pending, end), ids)


def _took(pending: PendingMessage, end: Settled) -> float | None:
    """Return the seconds that a message with a turn of its own took. The clock may have been set back meanwhile."""
    if pending.started is None or not pending.received.at:
        return None
    took = datetime.fromisoformat(end.at) - datetime.fromisoformat(pending.received.at)
    return max(0.0, took.total_seconds())


@dataclass(frozen=True, slots=True)
class ObservedModel(ModelWrapper):
    """A `Model` that reports each call and its cost."""

    account: Account
    observing: Observing

    async def complete(self, request: Request, on_event: OnEvent) -> Completion:
        usage, spent = self.account.usage, self.account.spent_usd
        with self.observing.work("model_call", self.name) as call:

            async def tell(event: TurnEvent) -> None:
                if call.first_content_s is None and isinstance(event, TextDelta | ThinkingDelta):
                    call.first_content_s = call.elapsed
                await on_event(event)

            try:
                completion = await self.model.complete(request, tell)
            finally:
                call.usage = self.account.usage - usage
                if spent is not None and self.account.spent_usd is not None:
                    call.cost_usd = max(0.0, self.account.spent_usd - spent)
            call.stop = completion.stop
            return completion


@dataclass(frozen=True, slots=True)
class ObservedTurnModel(TurnModelWrapper):
    """A `TurnModel` that reports each question as a step."""

    observing: Observing

    async def complete(self, request: Request, on_event: OnEvent) -> Completion:
        chosen = self.model.name
        step = self.observing.step(chosen)
        try:
            completion = await self.model.complete(request, on_event)
        except BaseException as error:
            step.fail(error)
            raise
        if self.model.name != chosen:
            step.name, step.switched_from = self.model.name, chosen
        return completion


@dataclass(frozen=True, slots=True)
class ObservedTool:
    """A `Tool` that reports its calls."""

    tool: Tool
    observing: Observing

    @property
    def name(self) -> str:
        return self.tool.name

    @property
    def description(self) -> str:
        return self.tool.description

    @property
    def risk(self) -> Risk:
        return self.tool.risk

    @property
    def arguments(self) -> type[Arguments]:
        return self.tool.arguments

    @property
    def news(self) -> str:
        return self.tool.news if isinstance(self.tool, Changing) else ""

    async def accept(self) -> None:
        if isinstance(self.tool, Changing):
            await self.tool.accept()

    async def check(self, arguments: Arguments, context: ToolContext) -> None:
        if isinstance(self.tool, Checking):
            try:
                await self.tool.check(arguments, context)
            except ToolError as error:
                with self.observing.work("tool", self.name, {"call_id": context.call_id}) as call:
                    call.fail(error)
                raise

    async def __call__(self, arguments: Arguments, context: ToolContext) -> JsonValue | ToolOutput:
        with self.observing.work("tool", self.name, {"call_id": context.call_id}) as call:
            try:
                returned = await self.tool(arguments, context)
            except anyio.get_cancelled_exc_class():
                if anyio.current_time() >= context.deadline:
                    call.cut = "tool_timeout"
                raise
            if isinstance(returned, ToolOutput) and returned.errors:
                call.outcome = "partial"
            return returned


@dataclass(frozen=True, slots=True)
class ObservedPermits:
    """`Permits` that report refusals, because a denied call never gets to its tool."""

    permits: Permits
    observing: Observing

    async def permit(self, tool: Tool, arguments: Arguments, context: ToolContext) -> None:
        try:
            await self.permits.permit(tool, arguments, context)
        except ToolDenied as error:
            with self.observing.work("tool", tool.name, {"call_id": context.call_id}) as call:
                call.fail(error)
            raise

    def waits(self, tool: Tool, arguments: Arguments, context: ToolContext) -> bool:
        return self.permits.waits(tool, arguments, context)
