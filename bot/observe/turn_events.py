"""The parts of a turn as events: one source for logs, metrics and spans, so that they always agree.

    turn > step > model call, model call, ...
                > tool, tool, ...

A step begins when the turn's model is called. It ends at the next call or with the turn, so the tools that the model
called belong to it. The current task's context knows the parent, so nothing has to be passed to parallel tools,
retries and parallel turns.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Literal, TypeVarTuple

from bot.ports.model import Usage
from threads.model import Outcome
from threads.wording import code_of

if TYPE_CHECKING:
    from bot.observe.http_pages import StatusPages

log = logging.getLogger(__name__)

Kind = Literal["turn", "step", "model_call", "tool"]

Args = TypeVarTuple("Args")

UNUSED = Usage()


@dataclass(slots=True, eq=False)
class Work:
    """A turn, a step, a model call or a tool call. Times are in seconds. ``name`` is its transport, model or tool.

    ``outcome`` is "ok", "partial" or an error code; ``cut`` is the code for a cancelled one. ``attempt`` counts from
    1: attempts of a turn, or calls of this model in its step. ``switched_from`` is the model that was replaced in a
    step. ``ids`` are for logs, never for labels of metrics. ``sink_state`` belongs to the sinks.
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
    models_called: list[str] = field(default_factory=list)
    steps: int = 0
    step: Work | None = None
    sink_state: object = None

    @property
    def elapsed(self) -> float:
        """Return the seconds since it began."""
        return time.perf_counter() - self.began

    def fail(self, error: BaseException) -> None:
        self.outcome = code_of(error) if isinstance(error, Exception) else self.cut


class Sink:
    """A receiver of these events that ignores them. It is called on the event loop and must not wait.

    ``pages`` are what it serves beside the health of the bot, by path: each is made of the status.
    """

    pages: StatusPages = MappingProxyType({})

    def began(self, work: Work) -> None:
        """Receive work that begins."""

    def ended(self, work: Work) -> None:
        """Receive work that is over."""

    def settled(
        self, transport: str, outcome: Outcome, seconds: float | None, ids: Mapping[str, str], /
    ) -> None:
        """Receive the outcome of the message with these ids; *seconds* after its arrival if a turn ran for it."""

    def unread(self, transport: str, kind: str) -> None:
        """Receive that a message has a part that people see, of a *kind* that the bot cannot read."""


_here: ContextVar[Work | None] = ContextVar("work", default=None)
"""The work that the current task is part of."""


def turn_ids() -> Mapping[str, str]:
    """Return the ids of the current turn; empty outside of a turn."""
    turn = _turn(_here.get())
    return turn.ids if turn is not None else {}


def _turn(here: Work | None) -> Work | None:
    """Return the turn of a piece of work; None if it has ended, because tasks may outlive their turn."""
    while here is not None and here.parent is not None:
        here = here.parent
    return None if here is None or here.over else here


class Observing:
    """Passes every event to all sinks. Without sinks it still knows the current turn."""

    def __init__(self, *sinks: Sink) -> None:
        self._sinks = sinks

    def work(
        self, kind: Kind, name: str, ids: Mapping[str, str] | None = None, attempt: int = 1
    ) -> _WorkContext:
        """Return a context manager for a piece of work. An exception sets its outcome and propagates."""
        here = _here.get()
        return _WorkContext(self, Work(kind, name, here if _turn(here) else None, ids or {}, attempt))

    def step(self, model: str) -> Work:
        """Begin the next step of the current turn and end the step before."""
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
            work.parent.models_called.append(work.name)
            work.attempt = work.parent.models_called.count(work.name)
        for sink in self._sinks:
            self._tell(sink, sink.began, work)

    def end(self, work: Work) -> None:
        work.seconds, work.over = work.elapsed, True
        for sink in self._sinks:
            self._tell(sink, sink.ended, work)

    def settled(
        self, transport: str, outcome: Outcome, seconds: float | None, ids: Mapping[str, str]
    ) -> None:
        for sink in self._sinks:
            self._tell(sink, sink.settled, transport, outcome, seconds, ids)

    def unread(self, transport: str, kind: str) -> None:
        for sink in self._sinks:
            self._tell(sink, sink.unread, transport, kind)

    def _tell(self, sink: Sink, tell: Callable[[*Args], None], *args: *Args) -> None:
        try:
            tell(*args)
        except Exception:  # the boundary of the sinks: they never fail a turn or each other
            log.exception("observe.sink_failed: it gets no more events")
            self._sinks = tuple(other for other in self._sinks if other is not sink)


class _WorkContext:
    """Begins and ends one piece of work. A class, because a generator takes three times as long."""

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
                work.step.outcome = work.outcome  # the step was cancelled too
            self._observing.end(work.step)
        _here.reset(self._token)
        self._observing.end(work)
