"""Who may call a provider, and when: the pure part of the gate. Values and ``now`` in, admissions out.

All calls of a gate stand in one line, in the order of their arrival; those to one model are a lane.

    a lane is      its head may go
    free           while fewer are out than its window
    held           when the backoff of the call that failed is over
    cautious       alone, after a failure that will pass, until a call of the lane succeeds
    shut (open)    never
    shut (probed)  as the one probe of the half-open circuit, whatever the window

A lane is shut by its own breaker or by the account's, which auth and payment open for all lanes. One probe is out at
a time for all of them, and one goes out every `PROBE_EVERY_S` at most. A hold ends for the others after as long: the
backoff of one call is no reason for all to wait, but a Retry-After is.

Of the lanes whose head may go, the one that came first goes, if the gate is not stopped by a Retry-After, fewer than
`max_parallel` are out, and the buckets hold enough; else nobody passes it.

    a ticket is    event                                 becomes
    away           `join`                                waiting
    waiting        `admit`                               out, with a permit, tokens, maybe the probe
    waiting        `leave`                               away
    out            `leave`, the call was never made      away, everything is given back
    out            `succeeded`, `failed`, `cancelled`    away, the permit and the probe are given back
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from bot.ports.errors import ModelConnection, ProviderError
from bot.ports.model import QueuePlace, Usage

from .breaker import FOR_GOOD, PROBE_EVERY_S, Breaker, passes
from .token_bucket import CongestionWindow, TokenBucket

BREATH_S = 0.01
"""How long a lane stands still after a failure, for the retry's word on how long it shall be held; and how much
longer it is then held, so that the call that failed is back in its place before the others move."""
OVERLOAD: tuple[str, ...] = ("rate_limited", "unavailable")
"""Failures that ask for fewer calls at once."""
REFUSED_BY = "refused_by"
GATE = "gate"
"""The field and its value that tell a refusal of ours from what a provider said."""
ACCOUNT: tuple[str, ...] = ("auth", "payment")
"""Failures of the account, whatever the model."""
KEPT = ("provider", "model", "status", "request_id")
"""The fields of an error that a refusal repeats."""


@dataclass(eq=False, slots=True)
class Ticket:
    """One attempt of a call. ``size`` is its estimate in tokens.

    ``last_resort`` and ``best_effort`` are the request's; ``probe`` is the breaker that it probes.
    """

    place: QueuePlace
    model: str
    size: int = 0
    last_resort: bool = True
    best_effort: bool = False
    state: Literal["away", "waiting", "out"] = "away"
    probe: Breaker | None = None
    joined_at: float = -math.inf
    trial: bool = False
    shrunk: int = 0
    shut_at_join_s: float = 0.0


class Lane:
    """The calls to one model. ``own`` is its breaker, ``account`` the one that it shares with all others."""

    def __init__(self, model: str, widest: int, threshold: int, account: Breaker) -> None:
        self.model = model
        self.own, self.account = Breaker(threshold), account
        self.window = CongestionWindow(widest)
        self.queue: list[Ticket] = []
        self.out = 0
        self.cautious = self.tried = False
        """Whether one call at a time goes out, and whether that one is out."""
        self.held_until = -math.inf
        self.trouble: ProviderError | None = None
        """The last failure that counts, until a success."""
        self.shut_s = 0.0
        """How long the lane has been shut, in all."""

    @property
    def breaker(self) -> Breaker:
        """The breaker that stands in the way, if one does."""
        return self.own if self.account.failure is None else self.account

    def concerned(self, error: ProviderError) -> Breaker:
        """Return the breaker that a failure is about."""
        return self.account if error.code in ACCOUNT else self.own

    def ready_at(self, now: float, next_probe_at: float) -> float:
        """Return when the head may go, as far as the lane is concerned; inf while that takes an event."""
        if self.breaker.failure is not None:
            probe_at = self.breaker.probe_at(last_resort=self.queue[0].last_resort)
            return max(now, self.held_until, probe_at, next_probe_at)
        if self.out >= self.window.size or (self.cautious and self.tried):
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
    ) -> None:
        self._max_parallel, self._shrink, self._threshold = max_parallel, shrink, threshold
        self._max_wait_s = max_wait_s
        self._requests = TokenBucket(requests_per_minute) if requests_per_minute else None
        self._tokens = TokenBucket(tokens_per_minute) if tokens_per_minute else None
        self._lanes: dict[str, Lane] = {}
        self._account = Breaker(threshold)
        self._probed_at = -math.inf
        self._out = 0
        self._stopped_until, self._touched = -math.inf, 0.0
        self._stopped_by: ProviderError | None = None

    def join(self, ticket: Ticket, now: float) -> None:
        self._touch(now)
        lane = self.lane(ticket.model)
        ticket.state, ticket.shut_at_join_s, ticket.joined_at = "waiting", lane.shut_s, now
        insort(lane.queue, ticket, key=_place)

    def leave(self, ticket: Ticket, now: float) -> None:
        """Take back a ticket whose call was not made."""
        self._touch(now)
        if ticket.state == "waiting":
            self._leave_queue(ticket)
            ticket.state = "away"
        elif ticket.state == "out":
            self._take(-1, -ticket.size, now)
            self.cancelled(ticket, now)

    def admit(self, now: float) -> list[Ticket]:
        """Let everybody out who may go now, in order."""
        self._touch(now)
        admitted: list[Ticket] = []
        while (ticket := self._next(now)) and self._affordable_at(ticket, now) <= now:
            self._leave_queue(ticket)
            lane = self.lane(ticket.model)
            ticket.state, ticket.shrunk = "out", lane.window.shrunk
            breaker = lane.breaker
            ticket.probe, ticket.trial = breaker if breaker.start() else None, lane.cautious
            self._probed_at = now if ticket.probe else self._probed_at
            lane.tried = lane.tried or ticket.trial
            lane.out += 1
            self._out += 1
            self._take(1, ticket.size, now)
            admitted.append(ticket)
        return admitted

    def wakes_at(self, now: float) -> float:
        """Return when `admit` may let somebody out without another event; inf when that takes one."""
        if self._out >= self._max_parallel:
            return math.inf
        later = [
            max(at, self._stopped_until)
            for lane in self._waited_for()
            if (at := lane.ready_at(now, self._next_probe_at)) > now
        ]
        if (ticket := self._next(now)) is not None:
            later.append(self._affordable_at(ticket, now))
        elif now < self._stopped_until:
            later.append(self._stopped_until)
        return min(later, default=math.inf)

    def succeeded(self, ticket: Ticket, usage: Usage, now: float) -> None:
        lane = self._settle(ticket, now)
        self._count(ticket, usage, now)
        if ticket.probe:
            lane.window.restart()
        else:
            lane.window.widen()
        lane.own.succeeded(probe=ticket.probe is not None)
        self._account.succeeded(probe=ticket.probe is self._account)
        lane.cautious = False
        lane.trouble = lane.breaker.failure

    def failed(self, ticket: Ticket, error: ProviderError, now: float) -> None:
        """One attempt failed: by itself it opens no circuit, unless it was the probe or refused for good."""
        lane = self._settle(ticket, now)
        if error.usage is not None:
            self._count(ticket, error.usage, now)
        if ticket.probe is not None and ticket.probe is lane.concerned(error) and not ticket.best_effort:
            ticket.probe.failed(_plain(error), now)
        elif ticket.probe is not None:
            ticket.probe.cancelled()
        if error.code in FOR_GOOD and not ticket.best_effort:
            # Never tried again: nobody shall slip out before the call is given up.
            self.exhausted(ticket.model, error, now)
        if not passes(error):
            return
        if ticket.trial and lane.cautious:
            lane.window.restart()
        elif self._shrink and error.code in OVERLOAD and ticket.shrunk == lane.window.shrunk:
            lane.window.halve()
        lane.cautious, lane.trouble = True, _plain(error)
        self.hold(ticket.model, error.retry_after or 0.0, error, now)

    def cancelled(self, ticket: Ticket, now: float) -> None:
        """Note that the call ended without a word about the provider."""
        self._settle(ticket, now)
        if ticket.probe is not None:
            ticket.probe.cancelled()

    def hold(self, model: str, seconds: float, error: ProviderError, now: float) -> None:
        """Keep a lane still for a retry's backoff, not for long, or the gate for the provider's Retry-After."""
        if _ours(error) or not passes(error):
            return
        self._touch(now)
        lane = self.lane(model)
        held = seconds if error.retry_after else min(seconds, PROBE_EVERY_S)
        lane.held_until = max(lane.held_until, now + held + BREATH_S)
        if error.retry_after and now + seconds > self._stopped_until:
            self._stopped_until, self._stopped_by = now + seconds, _plain(error)

    def exhausted(self, model: str, error: ProviderError, now: float) -> None:
        self._touch(now)
        if not _ours(error):
            self.lane(model).concerned(error).exhausted(_plain(error), now)

    def refusal(self, ticket: Ticket, now: float, deadline: float = math.inf) -> ProviderError | None:
        """Return why a waiting call shall not wait on, fresh to be raised; None when it may.

        Who waited while the circuit's failure for good was heard has their answer: another probe is a minute away.
        """
        self._touch(now)
        why = self.unavailable(ticket.model, now, last_resort=ticket.last_resort)
        breaker = self.lane(ticket.model).breaker
        failure = breaker.failure
        if not ticket.last_resort or not self.shut(ticket.model, now):
            return why
        opens_at, until = (
            self.opens_at(ticket.model, now, last_resort=True),
            self.patience(ticket, now, deadline),
        )
        told = failure is not None and failure.code in FOR_GOOD and breaker.failed_at > ticket.joined_at
        if now < until and opens_at <= until and not told:
            return None
        return why or (failure and _refuse(failure, opens_at - now))

    def patience(self, ticket: Ticket, now: float, deadline: float = math.inf) -> float:
        """Return until when a waiting call goes on if its lane is shut all the time."""
        lane = self.lane(ticket.model)
        return min(
            deadline, now + self._max_wait_s - ticket.place.waited_s - (lane.shut_s - ticket.shut_at_join_s)
        )

    def unavailable(self, model: str, now: float, *, last_resort: bool = False) -> ProviderError | None:
        """Return why a call could not go out now, fresh to be raised; None when it may queue."""
        lane = self.lane(model)
        breaker = lane.breaker
        admitted = breaker.admits(now, last_resort=last_resort) and now >= self._next_probe_at
        why = None if admitted else breaker.failure
        if why is None and now < self._stopped_until:
            why = self._stopped_by
        return why and _refuse(why, self.opens_at(model, now, last_resort=True) - now)

    def refused_account(self, now: float) -> ProviderError | None:
        """Return why the account is refused, if it is; shared, so never to be raised."""
        return None if self._account.admits(now, last_resort=False) else self._account.failure

    def shut(self, model: str, now: float) -> bool:
        """Return whether waiting costs patience: the circuit is not closed, or the gate is stopped."""
        return self.lane(model).breaker.failure is not None or now < self._stopped_until

    def trouble(self, model: str) -> ProviderError | None:
        """Return what holds up a lane, if it is trouble."""
        lane = self.lane(model)
        return lane.breaker.failure or lane.trouble or self._stopped_by

    def opens_at(self, model: str, now: float, *, last_resort: bool) -> float:
        """Return when a shut lane lets a call out at the earliest, *now* if it is not shut or being probed."""
        lane = self.lane(model)
        probe_at = now
        if lane.breaker.failure is not None:
            probe_at = max(lane.breaker.probe_at(last_resort=last_resort), self._probed_at + PROBE_EVERY_S)
        return max(now, self._stopped_until, probe_at)

    def expected_at(self, model: str, now: float, *, last_resort: bool = False) -> float:
        """Return when a call may be let out at the earliest, its turn in line apart."""
        return max(self.opens_at(model, now, last_resort=last_resort), self.lane(model).held_until)

    @property
    def front(self) -> Ticket | None:
        """The waiting call that came first."""
        return min((lane.queue[0] for lane in self._waited_for()), key=_place, default=None)

    @property
    def lanes(self) -> Iterable[Lane]:
        return self._lanes.values()

    def lane(self, model: str) -> Lane:
        if model not in self._lanes:
            self._lanes[model] = Lane(model, self._max_parallel, self._threshold, self._account)
        return self._lanes[model]

    def _waited_for(self) -> Iterable[Lane]:
        return (lane for lane in self._lanes.values() if lane.queue)

    def _next(self, now: float) -> Ticket | None:
        """Return who goes next if the buckets hold enough."""
        if now < self._stopped_until or self._out >= self._max_parallel:
            return None
        probe_at = self._next_probe_at
        heads = (lane.queue[0] for lane in self._waited_for() if lane.ready_at(now, probe_at) <= now)
        return min(heads, key=_place, default=None)

    @property
    def _next_probe_at(self) -> float:
        """When the next probe may go out, whatever the lane; inf while one is out."""
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
        """Put what a call really used in the place of the estimate; reading a cache is free."""
        if usage.prompt or usage.output:
            self._take(0, usage.input + usage.cache_write + usage.output - ticket.size, now)

    def _leave_queue(self, ticket: Ticket) -> None:
        lane = self.lane(ticket.model)
        lane.queue.remove(ticket)
        ticket.place.waited_s += lane.shut_s - ticket.shut_at_join_s

    def _settle(self, ticket: Ticket, now: float) -> Lane:
        """Take back the permit."""
        self._touch(now)
        lane = self.lane(ticket.model)
        ticket.state = "away"
        lane.out -= 1
        self._out -= 1
        lane.tried = lane.tried and not ticket.trial
        return lane

    def _touch(self, now: float) -> None:
        """Add up for how long lanes were shut since the last event; precedes whatever shuts or opens one."""
        stopped_s = max(0.0, min(now, self._stopped_until) - self._touched)
        for lane in self.lanes:
            lane.shut_s += now - self._touched if lane.breaker.failure else stopped_s
        self._touched = now


def _place(ticket: Ticket) -> QueuePlace:
    return ticket.place


def _ours(error: ProviderError) -> bool:
    return error.fields.get(REFUSED_BY) == GATE


def _plain(error: ProviderError, message: str = "") -> ProviderError:
    """Return the same error without its traceback, which would keep a conversation in memory."""
    plain = type(error)(message or str(error), retry_after=error.retry_after)
    plain.fields = {name: value for name in KEPT if (value := error.fields.get(name))} | plain.fields
    if isinstance(plain, ModelConnection) and isinstance(error, ModelConnection):
        plain.local = error.local
    return plain


def _refuse(failure: ProviderError, seconds: float) -> ProviderError:
    """Return an error like *failure* for a call that was not made, to come back in so many seconds."""
    refusal = _plain(failure, f"no call was made: {failure}")
    refusal.retry_after = seconds or None
    refusal.fields |= {REFUSED_BY: GATE, "retry_after": seconds}
    refusal.retryable = False
    return refusal
