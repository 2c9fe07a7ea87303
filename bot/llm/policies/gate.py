"""The gate before one provider and key, shared by all threads: it limits calls to what the provider can take.

`queue` decides which call goes when; the gate wakes the waiting tasks. Each waiting call has one event. The first one
in the queue also watches the clock for all others; if it leaves, the next one does. Nothing polls.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import anyio

from bot.ports.errors import ModelLoading, ProviderError
from bot.ports.model import Completion, ModelWrapper, QueuePlace, Request, Usage
from bot.ports.status import CircuitStatus
from threads.errors import error_fields
from threads.model import OnEvent, Resumed, Waiting
from threads.wording import duration

from .queue import CallQueue, Ticket

log = logging.getLogger(__name__)

NOTICE_S = 1.0
"""Seconds: a shorter wait is not shown."""
TROUBLE = "the provider has trouble"
REASONS: Mapping[str, str] = {
    "rate_limited": "rate limited",
    "timeout": "no answer in time",
    "connection": "no connection",
    "auth": "the key is not accepted",
    "payment": "out of credit",
    "model_not_found": "not offered by its provider",
}
"""Why a call waits, in a few words for people, by the code of the failure."""
LOADING = "the model is loading"
IN_LINE = "many are asking the model at once"
LATE_S = 1e-6
"""Seconds after its time at which a waiting call checks the clock: timers may be early by a tick."""


def reason(error: ProviderError | None) -> str:
    """Return a few words for people on why a call waits."""
    if isinstance(error, ModelLoading):
        return LOADING
    return REASONS.get(error.code, TROUBLE) if error else TROUBLE


class Gate:
    """Shared by every `GatedModel` of one provider and key. Only `turn` waits or raises.

    ``key`` is the number of the key, from 1, if the provider has several; else 0.
    """

    def __init__(self, queue: CallQueue, key: int = 0) -> None:
        self.queue, self._key = queue, key
        self._numbers = itertools.count(1)
        self._wakeups: dict[QueuePlace, anyio.Event] = {}

    def unavailable(self, model: str) -> ProviderError | None:
        """Return a new error if a call to *model* cannot go out now; None if it may queue."""
        return self.queue.unavailable(model, anyio.current_time())

    def refused_account(self) -> ProviderError | None:
        """Return why no model of this key can be asked now, or None. The error is shared: never raise it."""
        return self.queue.refused_account(anyio.current_time())

    def exhausted(self, model: str, error: ProviderError) -> None:
        """Note that a call to *model* gave up."""
        with self._telling(model):
            self.queue.exhausted(model, error, anyio.current_time())
        self._changed(everybody=True)

    def hold(self, model: str, seconds: float, error: ProviderError) -> None:
        """Note that a call to *model* is retried in so many seconds; no other call goes before it."""
        self.queue.hold(model, seconds, error, anyio.current_time())
        self._changed(everybody=error.retry_after is not None)

    def describe(self, model: str) -> str:
        """Return a clause for people on what delays calls to *model*; "" if nothing does."""
        now, clauses = anyio.current_time(), []
        if (wait := self.queue.expected_at(model, now) - now) > 0 or self.queue.shut(model, now):
            again = f"in {duration(wait)}" if wait > 0 else "with the next call"
            clauses.append(f"{reason(self.queue.trouble(model))}, tried again {again}")
        if waiting := len(self.queue.lane(model).queue):
            clauses.append("1 call waits in line" if waiting == 1 else f"{waiting} calls wait in line")
        return "; ".join(clauses)

    def circuits(self) -> list[CircuitStatus]:
        """Return the state of each model that was called so far."""
        return [
            CircuitStatus(
                lane.model, lane.breaker.state, self.describe(lane.model), len(lane.queue), self._key
            )
            for lane in self.queue.lanes
        ]

    def place(self) -> QueuePlace:
        """Return the last place in the queue, for a new call and all its attempts."""
        return QueuePlace(next(self._numbers), anyio.current_time())

    async def turn(self, ticket: Ticket, on_event: OnEvent) -> None:
        """Wait in the queue until *ticket* may go out; raises a new error if waiting is of no use.

        If it raises, the ticket has left the queue and holds no permit and no probe.
        """
        self.queue.join(ticket)
        try:
            await self._wait(ticket, on_event)
        except BaseException:
            self.leave(ticket)
            raise

    def leave(self, ticket: Ticket) -> None:
        self._wakeups.pop(ticket.place, None)
        self.queue.leave(ticket, anyio.current_time())
        self._changed()

    def settle(self, ticket: Ticket, outcome: Usage | ProviderError | None) -> None:
        """Note how a call ended: its usage, its failure, or None if that says nothing about the provider."""
        with self._telling(ticket.model):
            if isinstance(outcome, Usage):
                self.queue.succeeded(ticket, outcome, anyio.current_time())
            elif outcome is not None:
                self.queue.failed(ticket, outcome, anyio.current_time())
            else:
                self.queue.cancelled(ticket)
        self._changed(everybody=isinstance(outcome, ProviderError))

    @contextmanager
    def _telling(self, model: str) -> Iterator[None]:
        """Log it if the block opens or closes the circuit of *model*."""
        before = self.queue.lane(model).breaker.failure
        yield
        after = self.queue.lane(model).breaker.failure
        which = {"model": model, "key": self._key} if self._key else {"model": model}
        title = f"{model}, key {self._key}" if self._key else model
        if after is not None and before is None:
            log.info("circuit.opened: %s: %s", title, after, extra={**error_fields(after), **which})
        elif before is not None and after is None:
            log.info("circuit.closed: %s", title, extra=which)

    async def _wait(self, ticket: Ticket, on_event: OnEvent) -> None:
        notice_at, announced = anyio.current_time() + NOTICE_S, None
        refusal = None
        self._changed()
        while ticket.state == "waiting" and refusal is None:
            now, deadline = anyio.current_time(), anyio.current_effective_deadline()
            refusal = self.queue.refusal(ticket, now, deadline)
            if refusal is None and (wait := self._noticeable(ticket, now, notice_at, announced)):
                announced = now + (wait.seconds if wait.seconds < math.inf else 0.0)
                await on_event(wait)
            elif refusal is None:
                await self._sleep(ticket, notice_at if announced is None else math.inf, deadline)
        if refusal is not None:
            self.leave(ticket)
        if announced is not None:
            await on_event(Resumed())
        if refusal is not None:
            raise refusal

    def _noticeable(
        self, ticket: Ticket, now: float, notice_at: float, announced: float | None
    ) -> Waiting | None:
        """Return a new event about the wait, or None. *announced* is the last announced end of the wait."""
        expected = self.queue.expected_at(ticket.model, now)
        if expected >= now + NOTICE_S and (announced is None or expected >= announced + NOTICE_S):
            return Waiting(reason(self.queue.trouble(ticket.model)), expected - now)
        return Waiting(IN_LINE, math.inf) if announced is None and now >= notice_at else None

    async def _sleep(self, ticket: Ticket, until: float, deadline: float) -> None:
        """Wait for a change, or until the next check."""
        now = anyio.current_time()
        if ticket is self.queue.front:
            until = min(until, self.queue.wakes_at(now))
        # Who has another model is refused at once, or waits for the lane alone.
        if ticket.last_resort and self.queue.shut(ticket.model, now):
            until = min(until, deadline, self.queue.patience(ticket))
        event = self._wakeups[ticket.place] = anyio.Event()
        with anyio.CancelScope(deadline=until + LATE_S):
            await event.wait()
        self._wakeups.pop(ticket.place, None)
        self._changed()

    def _changed(self, *, everybody: bool = False) -> None:
        """Admit calls, and wake those that the change may concern."""
        for ticket in self.queue.admit(anyio.current_time()):
            self._wake(ticket.place)
        if everybody:
            for place in list(self._wakeups):
                self._wake(place)
        elif (front := self.queue.front) is not None:
            self._wake(front.place)

    def _wake(self, place: QueuePlace) -> None:
        if event := self._wakeups.pop(place, None):
            event.set()


@dataclass(frozen=True, slots=True)
class GatedModel(ModelWrapper):
    """A `Model` behind a gate.

    ``size`` estimates the tokens of a request that count per minute: the part of its prompt that is not cached, and
    the answer. The real usage replaces the estimate afterwards.
    """

    gate: Gate
    size: Callable[[Request], int]

    async def complete(self, request: Request, on_event: OnEvent) -> Completion:
        """See `Model.complete`; raises the failure of an open circuit, not to be retried, without a call."""
        place = request.place or self.gate.place()
        flags = (request.last_resort, request.best_effort, request.other_key)
        ticket = Ticket(place, self.name, self.size(request), *flags, request.cache_key)
        await self.gate.turn(ticket, on_event)
        try:
            completion = await self.model.complete(request, on_event)
        except ProviderError as error:
            self.gate.settle(ticket, error)
            raise
        except BaseException:  # a cancellation or a bug says nothing about the provider
            self.gate.settle(ticket, None)
            raise
        self.gate.settle(ticket, completion.usage)
        return completion
