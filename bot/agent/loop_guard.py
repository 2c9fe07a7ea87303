"""Stops a model that repeats one call: the third is refused, and the fourth ends the turn."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from bot.ports.errors import LoopDetected
from bot.ports.tool import failed
from threads.model import ToolCall, ToolResult

SAME_CALL = 3
"""How often a turn may make a call with the same arguments: the last one is refused, one more ends the turn."""

MOST_AT_ONCE = 64
"""Calls of one step; the rest is refused."""


class LoopGuard:
    """Counts the calls of one turn, failed ones included."""

    def __init__(self) -> None:
        self._calls: Counter[str] = Counter()

    def refusals(self, calls: Sequence[ToolCall]) -> list[ToolResult | None]:
        """Return the refusal of each call of a step, None for one that may run. Raises `LoopDetected`."""
        return [self.refusal(call) if at < MOST_AT_ONCE else _too_many(call) for at, call in enumerate(calls)]

    def refusal(self, call: ToolCall) -> ToolResult | None:
        """Return the refusal of a call, None if it may run. Raises `LoopDetected` if it was refused before."""
        canonical = json.dumps([call.name, call.arguments, call.malformed], sort_keys=True)
        self._calls[canonical] += 1
        times = self._calls[canonical]
        if times > SAME_CALL:
            raise LoopDetected(f"{call.name} called {times} times with the same arguments")
        if times < SAME_CALL:
            return None
        words = "Already tried with these arguments."
        return failed(call, "validation", words, recoverable=True, suggestion="Do it differently.")


def _too_many(call: ToolCall) -> ToolResult:
    words = f"Only the first {MOST_AT_ONCE} calls of a step are run."
    return failed(call, "rate_limit", words, recoverable=True, suggestion="Call it again in the next step.")
