"""Stops a model that repeats one call, and says when a tool that ran out of time is why a turn ends.

Of the same call, the third is refused, and the fourth ends the turn.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from bot.ports.errors import LoopDetected, ToolInvalidInput, ToolRateLimited, ToolTimeout
from bot.ports.tool import failed, timed_out
from threads.model import ToolCall, ToolResult, Turn
from threads.wording import code_of

SAME_CALL = 3
"""How often a turn may make a call with the same arguments: the last one is refused, one more ends the turn."""

_BLAMED_STEPS = {"step_limit": 1, "output_invalid": 1, "loop_detected": SAME_CALL}
"""How many of the last steps can be the reason of such an end."""

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
        if (times := self._calls[canonical]) > SAME_CALL:
            raise LoopDetected(f"{call.name} called {times} times with the same arguments")
        if times < SAME_CALL:
            return None
        tried = ToolInvalidInput("Already tried with these arguments.", suggestion="Do it differently.")
        return failed(call, tried)


@contextmanager
def blaming_timeouts(turn: Turn) -> Iterator[None]:
    """Raise `ToolTimeout` in place of the error that ends a turn, if a tool that ran out of time is the reason.

    | the turn ends because                   | and                                      |
    |-----------------------------------------|------------------------------------------|
    | its own time is over                    | tools are running                        |
    | it has no answer, or too many steps     | a call of its last step ran out of time  |
    | a call was repeated                     | one of its last calls ran out of time    |
    """
    try:
        yield
    except BaseException as error:
        if _ends_by_timeout(error, turn):
            raise ToolTimeout("the turn ended because a tool ran out of time") from error
        raise


def _ends_by_timeout(error: BaseException, turn: Turn) -> bool:
    steps = [message for message in turn.messages if message.calls or message.results]
    if not isinstance(error, Exception):
        return turn.timed_out and bool(steps) and bool(steps[-1].calls)
    last = _BLAMED_STEPS.get(code_of(error), 0)
    done = [message.results for message in steps if message.results][-last:] if last else []
    return any(timed_out(result) for results in done for result in results)


def _too_many(call: ToolCall) -> ToolResult:
    words = f"Only the first {MOST_AT_ONCE} calls of a step are run."
    return failed(call, ToolRateLimited(words, suggestion="Call it again in the next step."))
