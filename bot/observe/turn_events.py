"""What a turn is made of, as it is watched: one seam that feeds logs, metrics and spans, so that they never disagree.

    turn > step > model call, model call, ...
                > tool, tool, ...

A step begins when the turn's model is asked, and ends when it is asked again, or with the turn: the tools that it
called belong to it. What a piece of work is a part of is known from the task it runs in, so tools side by side,
retries, and turns side by side need nothing handed on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, Protocol, TypeVarTuple

from bot.ports.model import Usage
from threads.model import Outcome
from threads.wording import code_of

log = logging.getLogger(__name__)

Kind = Literal["turn", "step", "model_call", "tool"]

Given = TypeVarTuple("Given")

UNUSED = Usage()


@dataclass(slots=True, eq=False)
class Work:
    """One piece of work; times in seconds. ``name`` is its transport, model or tool.

    ``ids`` say which one it is: nothing to count by. ``outcome`` is "ok", "partial" or an error's code; a cancelled
    one ended as ``cut`` says. ``attempt`` counts from 1: the turn's, or the calls of this model in its step.
    ``switched_from`` is the model that was to answer a step before another did. ``kept`` is the sinks' own.
    """

    kind: Kind
    name: str
    parent: Work | None = None
    ids: Mapping[str, str] = field(default_factory=dict)
    attempt: int = 1
    began: float = field(default_factory=time.perf_counter)
    seconds: float = 0.0
    outcome: str = "ok"
    cut: str = "turn_stopped"
    over: bool = False
    usage: Usage = UNUSED
    cost_usd: float | None = None
    first_content_s: float | None = None
    stop: str = ""
    switched_from: str = ""
    asked: list[str] = field(default_factory=list)
    steps: int = 0
    step: Work | None = None
    kept: object = None

    @property
    def so_far(self) -> float:
        """Return the seconds since it began."""
        return time.perf_counter() - self.began

    def fail(self, error: BaseException) -> None:
        self.outcome = code_of(error) if isinstance(error, Exception) else self.cut


class Sink(Protocol):
    """Where it is told. Called on the event loop: nothing here may wait."""

    def began(self, work: Work) -> None: ...

    def ended(self, work: Work) -> None: ...

    def settled(self, transport: str, outcome: Outcome, seconds: float | None) -> None:
        """Take note of a message's outcome, *seconds* after it came if a turn was run for it."""
        ...


_here: ContextVar[Work | None] = ContextVar("work", default=None)
"""What the code of this task works for."""


def turn_ids() -> Mapping[str, str]:
    """Return the ids of the turn that the caller works for; none outside of one."""
    turn = _turn(_here.get())
    return turn.ids if turn is not None else {}


def _turn(here: Work | None) -> Work | None:
    """Return the turn of a piece of work, None when it is over: what it has started may go on beyond it."""
    while here is not None and here.parent is not None:
        here = here.parent
    return None if here is None or here.over else here


class Observing:
    """Tells all sinks of each piece of work. Without one it only knows whose turn it is."""

    def __init__(self, *sinks: Sink) -> None:
        self._sinks = sinks

    def add(self, sink: Sink) -> None:
        """Tell this one too, from now on."""
        self._sinks = (*self._sinks, sink)

    def work(
        self, kind: Kind, name: str, ids: Mapping[str, str] | None = None, attempt: int = 1
    ) -> _Surrounding:
        """Surround a piece of work; what it raises is its outcome, and goes on unchanged."""
        here = _here.get()
        return _Surrounding(self, Work(kind, name, here if _turn(here) else None, ids or {}, attempt))

    def step(self, model: str) -> Work:
        """Begin the next step of the turn at hand, and end the one before."""
        turn = _turn(_here.get())
        step = Work("step", model, turn)
        if turn is not None:
            if turn.step is not None:
                self.end(turn.step)
            turn.steps += 1
            turn.step, step.attempt = step, turn.steps
            _here.set(step)
        self.begin(step)
        return step

    def begin(self, work: Work) -> None:
        if work.kind == "model_call" and work.parent is not None:
            work.parent.asked.append(work.name)
            work.attempt = work.parent.asked.count(work.name)
        for sink in self._sinks:
            self._tell(sink, sink.began, work)

    def end(self, work: Work) -> None:
        work.seconds, work.over = work.so_far, True
        for sink in self._sinks:
            self._tell(sink, sink.ended, work)

    def settled(self, transport: str, outcome: Outcome, seconds: float | None) -> None:
        for sink in self._sinks:
            self._tell(sink, sink.settled, transport, outcome, seconds)

    def _tell(self, sink: Sink, tell: Callable[[*Given], None], *given: *Given) -> None:
        try:
            tell(*given)
        except Exception:  # the boundary of those who only watch: they never fail a turn, nor each other
            log.exception("observe.sink_failed: it is told nothing any more")
            self._sinks = tuple(other for other in self._sinks if other is not sink)


class _Surrounding:
    """Begins and ends one piece of work. A class, for speed: a generator takes thrice as long."""

    __slots__ = ("_observing", "_token", "_work")

    def __init__(self, observing: Observing, work: Work) -> None:
        self._observing, self._work = observing, work
        self._token: Token[Work | None]

    def __enter__(self) -> Work:
        self._observing.begin(self._work)
        self._token = _here.set(self._work)
        return self._work

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        work = self._work
        if error is not None:
            work.fail(error)
        if work.step is not None:
            if error is not None and not isinstance(error, Exception):
                work.step.outcome = work.outcome  # it was cut as well
            self._observing.end(work.step)
        _here.reset(self._token)
        self._observing.end(work)
