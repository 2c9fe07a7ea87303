"""The same call with the same arguments, again and again: first refused, then the end of the turn."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from bot.ports.errors import LoopDetected
from bot.ports.tool_result import failed
from threads.model import ToolCall, ToolResult

SAME_CALL = 3
"""The same call with the same arguments this often in a turn is not run again; once more ends the turn."""


MOST_AT_ONCE = 64
"""Calls of one step that are run."""


class LoopGuard:
    """Counts the calls of one turn, failed ones included."""

    def __init__(self) -> None:
        self._calls: Counter[str] = Counter()

    def refusals(self, calls: Sequence[ToolCall]) -> list[ToolResult | None]:
        """Return for each call of a step what the model reads in its place, or None. Raises `LoopDetected`."""
        return [self.refusal(call) if at < MOST_AT_ONCE else _too_many(call) for at, call in enumerate(calls)]

    def refusal(self, call: ToolCall) -> ToolResult | None:
        """Return what the model reads in place of a call that was tried often enough, or None.

        Raises `LoopDetected` when the call comes even after that.
        """
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
