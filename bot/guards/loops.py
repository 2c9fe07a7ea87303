"""The same call with the same arguments, again and again: first refused, then the end of the turn."""

from __future__ import annotations

import json
from collections import Counter

from bot.errors import LoopDetected
from bot.tools.results import failed
from threads.model import ToolCall, ToolResult

SAME_CALL = 3
"""The same call with the same arguments this often in a turn is not run again; once more ends the turn."""


class LoopGuard:
    """Counts the calls of one turn, failed ones included."""

    def __init__(self) -> None:
        self._calls: Counter[str] = Counter()

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
