"""The queue of one provider's calls: the pure part of the gate. Values and ``now`` in, admissions out.

All calls of a gate wait in one queue, in the order of their arrival; those to one model are a lane.

    a lane is      its head may go
    free           while fewer calls are out than its window
    held           when the backoff of the failed call is over
    in doubt       alone, after transient failures of two threads, until a call of the lane succeeds
    shut (open)    never
    shut (probed)  as the one probe of the half-open circuit, whatever the window

A lane is shut by its own breaker or by the account's, which auth and payment open for all lanes. All lanes share one
probe at a time, and one goes out every `PROBE_EVERY_S` at most. A hold ends for the other calls after the same time:
the backoff of one call does not delay all others, but a Retry-After does.

Failures that only one thread sees delay nobody else, but for the Retry-After of a rate limit. The head of a lane is
not a call of the thread that failed last, if another thread waits.

Of the heads that may go, the one that came first goes, if no Retry-After stops the gate, fewer than `max_parallel`
calls are out, and the buckets hold enough. Otherwise none goes, and no call overtakes it.

    a ticket is    event                                 becomes
    away           `join`                                waiting
    waiting        `admit`                               out, with a permit, tokens, maybe the probe
    waiting        `leave`                               away
    out            `leave`, the call was never made      away, everything is given back
    out            `succeeded`, `failed`, `cancelled`    away, the permit and the probe are given back
"""

from __future__ import annotations

import copy
import math
from bisect import insort
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal

from bot.ports.errors import ProviderError, RateLimited
from bot.ports.model import QueuePlace, Usage

from .breaker import PERMANENT, PROBE_EVERY_S, Breaker, is_transient
from .token_bucket import CongestionWindow, TokenBucket

BREATH_S = 0.01
"""Seconds that a lane waits after a failure, until the retry policy holds it; and that a hold lasts longer than the
backoff, so that the failed call is back in its place before the others move."""
OVERLOAD: tuple[str, ...] = ("rate_limited", "unavailable")
"""Failures after which fewer calls go out at once."""
REFUSED_BY = "refused_by"
GATE = "gate"
"""The field, and its value, of a refusal by the gate."""
ACCOUNT: tuple[str, ...] = ("auth", "payment")
"""Failures of the account, whatever the model."""
OF_THE_KEY: tuple[str, ...] = (*ACCOUNT, "rate_limited")
"""Failures that another key of the same provider may not have."""

_place = attrgetter("place")


@dataclass(eq=False, slots=True)
class Ticket:
    """One attempt of a thread's call. ``place`` is its place in the queue, ``size`` its estimate in tokens.

    ``last_resort``, ``best_effort`` and ``other_key`` are the request's; ``probe`` is the breaker that it probes.
    """

    place: QueuePlace
    model: str
    size: int = 0
    last_resort: bool = True
    best_effort: bool = False
    other_key: bool = False
    thread: str = ""
    state: Literal["away", "waiting", "out"] = "away"
    probe: Breaker | None = None
    trial: bool = False
    shrunk: int = 0
    sent_at: float = 0.0


class Lane:
    """The calls to one model. ``own`` is its breaker, ``account`` the one that all models share."""

    def __init__(self, model: str, widest: int, threshold: int, account: Breaker) -> None:
        self.model = model
        self.own, self.account = Breaker(threshold), account
        self.window = CongestionWindow(widest)
        self.queue: list[Ticket] = []
        self.out = 0
        self.tried = False
        """Whether the one call is out that goes out in doubt."""
        self.held_until = -math.inf
        self.trouble: ProviderError | None = None
        """The last transient failure, until a success."""
        self.shut_since = -math.inf
        """When the lane was first shut since its last success."""

    @property
    def breaker(self) -> Breaker:
        """The breaker that counts: the account's if it is open, else the model's."""
        return self.own if self.account.failure is None else self.account

    def breaker_for(self, error: ProviderError) -> Breaker:
        """Return the breaker that a failure is about."""
        return self.account if error.code in ACCOUNT else self.own

    @property
    def head(self) -> Ticket:
        """The waiting call that goes next."""
        return next((ticket for ticket in self.queue if ticket.thread != self.own.failing), self.queue[0])

    def note_shut(self, now: float) -> None:
        if math.isinf(self.shut_since):
            self.shut_since = now

    def ready_at(self, now: float, next_probe_at: float) -> float:
        """Return when the lane lets its head go; inf if that needs an event."""
        if self.breaker.failure is not None:
            probe_at = self.breaker.probe_at(last_resort=self.head.last_resort)
            return max(now, self.held_until, probe_at, next_probe_at)
        if self.out >= self.window.size or (self.own.in_doubt and self.tried):
            return math.inf
        return max(now, self.held_until)


class CallQueue:
    """The state machines of the tables above."""

    def __init__(
        self,
        *,
        max_parallel: int,
        requests_per_minute: int | None,
        tokens_per_minute: int | None,
        shrink: bool,
        threshold: int,
        max_wait_s: float,
        sharers: Callable[[], int] = lambda: 1,
    ) -> None:
        self._max_parallel, self._shrink, self._threshold = max_parallel, shrink, threshold
        self._max_wait_s = max_wait_s
        self._requests = TokenBucket(requests_per_minute, sharers) if requests_per_minute else None
        self._tokens = TokenBucket(tokens_per_minute, sharers) if tokens_per_minute else None
        self._lanes: dict[str, Lane] = {}
        self._account = Breaker(threshold)
        self._probed_at = -math.inf
        self._out = 0
        self._stopped_until = -math.inf
        self._stopped_by: ProviderError | None = None

    def join(self, ticket: Ticket) -> None:
        ticket.state = "waiting"
        insort(self.lane(ticket.model).queue, ticket, key=_place)

    def leave(self, ticket: Ticket, now: float) -> None:
        """Remove a ticket whose call was not made."""
        if ticket.state == "waiting":
            self.lane(ticket.model).queue.remove(ticket)
            ticket.state = "away"
        elif ticket.state == "out":
            self._take(-1, -ticket.size, now)
            self.cancelled(ticket)

    def admit(self, now: float) -> list[Ticket]:
        """Return the tickets that may go out now, in order."""
        admitted: list[Ticket] = []
        while (ticket := self._next(now)) and self._affordable_at(ticket, now) <= now:
            lane = self.lane(ticket.model)
            lane.queue.remove(ticket)
            ticket.state, ticket.shrunk, ticket.sent_at = "out", lane.window.shrunk, now
            breaker = lane.breaker
            ticket.probe, ticket.trial = breaker if breaker.start() else None, lane.own.in_doubt
            self._probed_at = now if ticket.probe else self._probed_at
            lane.tried = lane.tried or ticket.trial
            lane.out += 1
            self._out += 1
            self._take(1, ticket.size, now)
            admitted.append(ticket)
        return admitted

    def wakes_at(self, now: float) -> float:
        """Return when `admit` may admit a call without another event; inf if it needs one."""
        if self._out >= self._max_parallel:
            return math.inf
        ready = (lane.ready_at(now, self._next_probe_at) for lane in self._waited_for())
        later = [at for at in (max(at, self._stopped_until) for at in ready) if at > now]
        if (ticket := self._next(now)) is not None:
            later.append(self._affordable_at(ticket, now))
        return min(later, default=math.inf)

    def succeeded(self, ticket: Ticket, usage: Usage, now: float) -> None:
        lane = self._settle(ticket)
        self._count(ticket, usage, now)
        if ticket.probe:
            lane.window.restart()
        else:
            lane.window.widen()
        lane.own.succeeded(ticket.sent_at, probe=ticket.probe is not None)
        self._account.succeeded(ticket.sent_at, probe=ticket.probe is self._account)
        if not lane.own.in_doubt:
            lane.shut_since, lane.trouble = -math.inf, lane.breaker.failure

    def failed(self, ticket: Ticket, error: ProviderError, now: float) -> None:
        """Note a failed attempt. A first one of a thread opens a circuit only if it is permanent."""
        lane = self._settle(ticket)
        doubted = lane.own.in_doubt
        if error.usage is not None:
            self._count(ticket, error.usage, now)
        if ticket.probe is not None and ticket.probe is lane.breaker_for(error) and not ticket.best_effort:
            ticket.probe.failed(_copy(error), now)
        elif ticket.probe is not None:
            ticket.probe.cancelled()
        if not ticket.best_effort:
            lane.own.attempt_failed(_copy(error), ticket.thread, now)
        if error.code in PERMANENT and not ticket.best_effort:
            # It is never retried, so the circuit opens before another call goes out.
            self.exhausted(ticket.model, error, now)
        if is_transient(error) and lane.own.in_doubt:
            if ticket.trial and doubted:
                lane.window.restart()
            elif self._shrink and error.code in OVERLOAD and ticket.shrunk == lane.window.shrunk:
                lane.window.halve()
            lane.trouble = _copy(error)
        self.hold(ticket.model, error.retry_after or 0.0, error, now)

    def cancelled(self, ticket: Ticket) -> None:
        """Note that the call ended and says nothing about the provider."""
        self._settle(ticket)
        if ticket.probe is not None:
            ticket.probe.cancelled()

    def hold(self, model: str, seconds: float, error: ProviderError, now: float) -> None:
        """Hold a lane for a retry's backoff, for a short time, or the gate for the provider's Retry-After."""
        lane = self.lane(model)
        # A rate limit is the key's, unless it is the request's alone: the provider's word on it is for all threads.
        stops = error.retry_after is not None and isinstance(error, RateLimited)
        if _is_refusal(error) or not is_transient(error) or not (stops or lane.own.in_doubt):
            return
        held = seconds if error.retry_after else min(seconds, PROBE_EVERY_S)
        lane.held_until = max(lane.held_until, now + held + BREATH_S)
        if error.retry_after and now + seconds > self._stopped_until:
            self._stopped_until, self._stopped_by = now + seconds, _copy(error)
            for other in self.lanes:
                other.note_shut(now)

    def exhausted(self, model: str, error: ProviderError, now: float) -> None:
        if _is_refusal(error):
            return
        lane = self.lane(model)
        lane.breaker_for(error).exhausted(_copy(error), now)
        if lane.breaker.failure is not None:
            lane.note_shut(now)

    def refusal(self, ticket: Ticket, now: float, deadline: float) -> ProviderError | None:
        """Return a new error if a waiting call should give up; None if it should wait on.

        A call that waited while a permanent failure opened the circuit gives up: the next probe is a minute away.
        """
        why = self.unavailable(ticket.model, now, last_resort=ticket.last_resort)
        if why is not None and ticket.other_key and why.code in OF_THE_KEY:
            return why
        if not ticket.last_resort or not self.shut(ticket.model, now):
            return why
        breaker = self.lane(ticket.model).breaker
        failure, opens_at = breaker.failure, self.opens_at(ticket.model, now)
        until = min(deadline, self.patience(ticket))
        permanent = (
            failure is not None and failure.code in PERMANENT and breaker.failed_at > ticket.place.since
        )
        if now < until and opens_at <= until and not permanent:
            return None
        return why or (failure and _refuse(failure, opens_at - now))

    def patience(self, ticket: Ticket) -> float:
        """Return until when a call waits if its lane stays shut: `max_wait_s` since that began, or since the call."""
        return max(ticket.place.since, self.lane(ticket.model).shut_since) + self._max_wait_s

    def unavailable(self, model: str, now: float, *, last_resort: bool = False) -> ProviderError | None:
        """Return a new error if a call cannot go out now; None if it may queue."""
        breaker = self.lane(model).breaker
        admitted = breaker.admits(now, last_resort=last_resort) and now >= self._next_probe_at
        why = None if admitted else breaker.failure
        if why is None and now < self._stopped_until:
            why = self._stopped_by
        return why and _refuse(why, self.opens_at(model, now) - now)

    def refused_account(self, now: float) -> ProviderError | None:
        """Return why the account is refused, or None. The error is shared: never raise it."""
        return None if self._account.admits(now, last_resort=False) else self._account.failure

    def shut(self, model: str, now: float) -> bool:
        """Return whether the circuit is not closed, or the gate is stopped."""
        return self.lane(model).breaker.failure is not None or now < self._stopped_until

    def trouble(self, model: str) -> ProviderError | None:
        """Return the failure that delays a lane, or None."""
        lane = self.lane(model)
        return lane.breaker.failure or lane.trouble or self._stopped_by

    def opens_at(self, model: str, now: float) -> float:
        """Return when a shut lane first admits a call without another model; *now* if it is not shut or is probed."""
        lane = self.lane(model)
        probe_at = now
        if lane.breaker.failure is not None:
            probe_at = max(lane.breaker.probe_at(last_resort=True), self._probed_at + PROBE_EVERY_S)
        return max(now, self._stopped_until, probe_at)

    def expected_at(self, model: str, now: float) -> float:
        """Return the earliest time at which a lane admits such a call, apart from its place in the queue."""
        return max(self.opens_at(model, now), self.lane(model).held_until)

    @property
    def front(self) -> Ticket | None:
        """The first waiting call."""
        return min((lane.head for lane in self._waited_for()), key=_place, default=None)

    @property
    def lanes(self) -> Iterable[Lane]:
        return self._lanes.values()

    def lane(self, model: str) -> Lane:
        if model not in self._lanes:
            self._lanes[model] = Lane(model, self._max_parallel, self._threshold, self._account)
        return self._lanes[model]

    def _waited_for(self) -> list[Lane]:
        return [lane for lane in self._lanes.values() if lane.queue]

    def _next(self, now: float) -> Ticket | None:
        """Return the next call if the buckets hold enough."""
        waiting = self._waited_for()
        if not waiting or now < self._stopped_until or self._out >= self._max_parallel:
            return None
        probe_at = self._next_probe_at
        heads = (lane.head for lane in waiting if lane.ready_at(now, probe_at) <= now)
        return min(heads, key=_place, default=None)

    @property
    def _next_probe_at(self) -> float:
        """When the next probe of any lane may go out; inf while one is out."""
        probing = self._account.probing or any(lane.own.probing for lane in self.lanes)
        return math.inf if probing else self._probed_at + PROBE_EVERY_S

    def _affordable_at(self, ticket: Ticket, now: float) -> float:
        requests = self._requests.ready_at(1, now) if self._requests else now
        return max(requests, self._tokens.ready_at(ticket.size, now) if self._tokens else now)

    def _take(self, requests: float, tokens: float, now: float) -> None:
        if self._requests:
            self._requests.take(requests, now)
        if self._tokens:
            self._tokens.take(tokens, now)

    def _count(self, ticket: Ticket, usage: Usage, now: float) -> None:
        """Replace the estimate of a call by its usage; reading from the cache is free."""
        if usage.prompt or usage.output:
            self._take(0, usage.input + usage.cache_write + usage.output - ticket.size, now)

    def _settle(self, ticket: Ticket) -> Lane:
        """Return the permit, and the lane."""
        lane = self.lane(ticket.model)
        ticket.state = "away"
        lane.out -= 1
        self._out -= 1
        lane.tried = lane.tried and not ticket.trial
        return lane


def _is_refusal(error: ProviderError) -> bool:
    return error.fields.get(REFUSED_BY) == GATE


def _copy(error: ProviderError) -> ProviderError:
    """Return a copy of an error without its traceback, which would keep a conversation in memory."""
    new = copy.copy(error)
    new.fields, new.usage = dict(error.fields), None
    return new


def _refuse(failure: ProviderError, seconds: float) -> ProviderError:
    """Return an error for a call that was not made because of *failure*; retry in so many seconds."""
    refusal = _copy(failure)
    refusal.args = (f"no call was made: {failure}",)
    refusal.retry_after = seconds or None
    refusal.fields |= {REFUSED_BY: GATE, "retry_after": seconds}
    refusal.retryable = False
    return refusal
