"""Recovery chosen by a person: what to do about a failed call that the model cannot repair by itself.

| code              | what a person may choose            | asked at the failure |
|-------------------|-------------------------------------|----------------------|
| mcp_unavailable   | retry, go on without                | first                |
| tool_timeout      | retry, other input, go on without   | second               |
| tool_rate_limited | retry, go on without                | second               |
| tool_not_found    | other input, go on without          | second               |

Where the model may help itself, it has the first try: a person is asked when the same tool fails in the same way
again in one turn. Never asked: invalid arguments, what a rule or a person denied, scheduled messages, more than
`MOST_RECOVERIES` times in a turn, and once somebody chose to go on without or did not answer in time. Nobody there
means that the model gets the failure, as without this module.

A retry goes through the gate as any call does, so a call that needs an approval is approved again. A missing sign-in
at an MCP server has a question of its own, with the link; see `bot.tools.mcp.sign_in`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from cachetools import LRUCache

from bot.ports import wording
from bot.ports.errors import ToolError
from bot.ports.tool import Arguments, Tool, ToolContext
from bot.tools.gate import LEAVE, Choice, Permits
from bot.tools.questions import DurableQuestions, Failure, Prompt, call_key, need_choice, place_of
from bot.tools.quote import plain_line, quote
from threads.model import ThreadId
from threads.scheduled_messages import due_of

MOST_RECOVERIES = 3
"""Questions about failed calls in one turn."""

MOST_TURNS = 1_000
"""Turns whose failures are counted."""

LONGEST_SUBJECT = 200
"""Characters of a call's subject in the question."""

Way = Literal["retry", "other input", "go on without"]


@dataclass(frozen=True, slots=True)
class Offer:
    """``may_have_run``: the call may have had effects before it failed. ``at``: the failure at which to ask."""

    ways: tuple[Way, ...]
    at: int
    may_have_run: bool = False


OFFERS: Mapping[str, Offer] = {
    "mcp_unavailable": Offer(("retry", "go on without"), 1, may_have_run=True),
    "tool_timeout": Offer(("retry", "other input", "go on without"), 2, may_have_run=True),
    "tool_rate_limited": Offer(("retry", "go on without"), 2),
    "tool_not_found": Offer(("other input", "go on without"), 2),
}


class Recovery:
    """Asks about failed calls, and as `Permits` brings back a failure that a restart found open.

    Without *asks* it never asks.
    """

    def __init__(self, permits: Permits, questions: DurableQuestions, *, asks: bool) -> None:
        self._permits, self._questions, self._asks = permits, questions, asks
        self._failures: LRUCache[tuple[ThreadId, str, str, str], int] = LRUCache(MOST_TURNS)
        self._left_alone: LRUCache[tuple[ThreadId, str], None] = LRUCache(MOST_TURNS)

    async def permit(self, tool: Tool, arguments: Arguments, context: ToolContext) -> None:
        """Return when the call may run. Raises the failure of a call that ran before a restart."""
        if failure := self._failure(call_key(tool.name, arguments, context)):
            raise _StoredFailure(failure)
        await self._permits.permit(tool, arguments, context)

    def waits(self, tool: Tool, arguments: Arguments, context: ToolContext) -> bool:
        waits = self._permits.waits(tool, arguments, context)
        return waits or self._failure(call_key(tool.name, arguments, context)) is not None

    async def choose(
        self, tool: Tool, arguments: Arguments, error: ToolError, context: ToolContext
    ) -> Choice:
        """Return what a person chooses. Returns `LEAVE` if the failure is none for a person, or nobody is there.

        Raises `ToolDenied` if the disk refuses.
        """
        key = call_key(tool.name, arguments, context)
        ways = self._ways(tool, error, context, again=self._failure(key) is not None)
        if not ways:
            return LEAVE
        prompt = _prompt(tool, arguments, error, ways)
        answer = await self._questions.ask(key, context, prompt)
        turn = context.thread, context.message_id
        if answer is None or not answer.by:
            self._left_alone[turn] = None
            return LEAVE
        place = place_of(prompt.labels, answer.words)
        if place is None:
            return Choice(suggestion=OTHER_INPUT, words=answer.words)
        way = ways[place]
        if way == "go on without":
            self._left_alone[turn] = None
            return Choice(suggestion=WITHOUT, words=wording.RECOVERY_LABELS[way])
        await self._questions.use(key)
        return Choice(retry=True)

    def _ways(self, tool: Tool, error: ToolError, context: ToolContext, *, again: bool) -> tuple[Way, ...]:
        """Return what a person may choose now. *again*: the question is open already."""
        offer, turn = OFFERS.get(error.code), (context.thread, context.message_id)
        if offer is None or not self._asks or due_of(context.message_id) or turn in self._left_alone:
            return ()
        failed = (*turn, tool.name, error.code)
        self._failures[failed] = self._failures.get(failed, 0) + 1
        may_ask = self._failures[failed] >= offer.at
        may_ask = may_ask and self._questions.count(context, "recovery") < MOST_RECOVERIES
        return offer.ways if again or may_ask else ()

    def _failure(self, key: str) -> Failure | None:
        record = self._questions.find(key)
        return record.failure if record else None


class _StoredFailure(ToolError):
    """A failure from before a restart, with the code that it had."""

    def __init__(self, failure: Failure) -> None:
        self.code = failure.code
        super().__init__(failure.message, suggestion=failure.suggestion, origin=failure.origin)


OTHER_INPUT = "A person was asked about this failure and wrote how to go on; see `person`."
WITHOUT = "A person was asked about this failure and chose to go on without this call. Do not make it again."


def _prompt(tool: Tool, arguments: Arguments, error: ToolError, ways: tuple[Way, ...]) -> Prompt:
    labels = tuple(wording.RECOVERY_LABELS[way] for way in ways)
    subject = plain_line(arguments.subject())[:LONGEST_SUBJECT]
    risky = OFFERS[error.code].may_have_run and tool.risk != "read" and "retry" in ways
    other = "other input" in ways
    return Prompt(
        "recovery",
        wording.tool_failed(
            tool.name, error.code, quote(subject) if subject else "", risky=risky, other=other
        ),
        labels,
        other,
        f"{tool.name}: {wording.RECOVERABLE[error.code]}",
        _need_input(labels) if other else need_choice(labels),
        Failure(code=error.code, message=str(error), suggestion=error.suggestion, origin=error.origin),
    )


def _need_input(labels: tuple[str, ...]) -> Callable[[str], str]:
    """Return the fault of words that are blank, or only say that there is other input."""
    other = labels.index(wording.RECOVERY_LABELS["other input"])
    return lambda words: "" if words.strip() and place_of(labels, words) != other else wording.WRITE_INPUT
