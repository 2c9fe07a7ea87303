"""Retry of one model call: how long to wait after a failure, or that it is no use.

    Retry-After of at most `max_retry_after_s`   exactly that, plus up to 10 % jitter; longer: give up
    rate_limited without                         5, 10, 20, 40, 80, 160 s, within its own attempts
    timeout, unavailable, connection             2, 4, 8 s, `max_retries` times; a local server: first at once
    unknown                                      once
    anything else                                never
    rate_limited, and another model can be asked never
    a wait that would pass the turn's deadline   never: the failure is worth more than a time-out

`wait_after` is the policy; `Retrying` is the model that follows it, and tells the gate. SDK retries are off: this is
the one owner.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

import anyio

from bot.ports.errors import ProviderError, RateLimited, UnknownFailure
from bot.ports.model import Completion, Model, Request
from threads.errors import retry_fields
from threads.model import OnEvent, Resumed, TextReset, Waiting

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Schedule:
    """How often and how long; waits in seconds. ``jitter`` is the share by which a wait may vary."""

    retries: int = 3
    base_s: float = 2.0
    longest_s: float = 30.0
    growth: Literal["exponential", "linear", "jittered"] = "exponential"
    jitter: float = 0.2

    def wait(self, failures: int, random: Callable[[], float]) -> float | None:
        """Return the wait after the *failures*-th failure (from 1), or ``None`` when the retries are used up."""
        if failures > self.retries:
            return None
        steps = failures if self.growth == "linear" else 2 ** (failures - 1)
        wait = min(self.longest_s, self.base_s * steps)
        if self.growth == "jittered":
            return wait * random()
        return wait * (1 + self.jitter * (2 * random() - 1))


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    transient: Schedule = field(default_factory=Schedule)
    rate_limited: Schedule = field(default_factory=lambda: Schedule(retries=6, base_s=5.0, longest_s=160.0))
    max_retry_after_s: float = 120.0
    local: bool = False


def wait_after(
    error: ProviderError, failures: int, policy: RetryPolicy, random: Callable[[], float]
) -> float | None:
    """Return how many seconds to wait before the next try, or ``None`` to give up."""
    if not error.retryable:
        return None
    schedule = policy.rate_limited if isinstance(error, RateLimited) else policy.transient
    wait = schedule.wait(failures, random)
    if wait is None or (isinstance(error, UnknownFailure) and failures > 1):
        return None
    if error.retry_after is not None:
        return (
            error.retry_after * (1 + 0.1 * random())
            if error.retry_after <= policy.max_retry_after_s
            else None
        )
    if policy.local and failures == 1 and not isinstance(error, RateLimited):
        return 0.0
    return wait


TROUBLE = "the provider has trouble"
_REASONS: dict[str, str] = {
    "rate_limited": "rate limited",
    "timeout": "no answer in time",
    "connection": "no connection",
    "auth": "the key is not accepted",
    "payment": "out of credit",
    "model_not_found": "not known to its provider",
}


def reason(error: ProviderError | None) -> str:
    """Return in a few words, for people, why a call has to wait."""
    return _REASONS.get(error.code, TROUBLE) if error else TROUBLE


class RetryGate(Protocol):
    """What is told of retries: the calls of all threads to a provider go through it."""

    def ticket(self, model: str) -> object:
        """Return what a new call to *model* shows at each attempt, so that it keeps its place in line."""
        ...

    def hold(self, model: str, seconds: float, error: ProviderError) -> None:
        """Note that a call to *model* failed with *error* and will be made again in so many seconds."""
        ...

    def exhausted(self, model: str, error: ProviderError) -> None:
        """Note that a call to *model* was given up."""
        ...


@dataclass(frozen=True, slots=True)
class Retrying:
    """A `Model` that tries again; each wait is visible, cancellable and holds no turn slot."""

    model: Model
    policy: RetryPolicy
    random: Callable[[], float]
    gate: RetryGate | None = None

    @property
    def name(self) -> str:
        return self.model.name

    async def complete(self, request: Request, on_event: OnEvent) -> Completion:
        failures = 0
        if self.gate is not None:
            request = replace(request, ticket=self.gate.ticket(self.name))
        while True:
            try:
                return await self.model.complete(request, on_event)
            except ProviderError as error:
                failures += 1
                wait = self._wait_after(error, failures, request)
                if wait is None:
                    if self.gate is not None and not request.best_effort:
                        self.gate.exhausted(self.name, error)
                    raise
                fields = retry_fields(error.code, failures + 1, wait, model=self.name)
                log.info("model.retry: %s: %s", self.name, error, extra=fields)
                if self.gate is not None:
                    self.gate.hold(self.name, wait, error)
                told = Waiting(reason(error), wait, failures, self._attempts(error))
            back_at = anyio.current_time() + wait
            await on_event(TextReset())
            await on_event(told)
            await anyio.sleep_until(back_at)
            await on_event(Resumed())

    def _wait_after(self, error: ProviderError, failures: int, request: Request) -> float | None:
        if isinstance(error, RateLimited) and not request.last_resort:
            return None
        wait = wait_after(error, failures, self.policy, self.random)
        if wait is None or anyio.current_time() + wait >= anyio.current_effective_deadline():
            return None
        return wait

    def _attempts(self, error: ProviderError) -> int:
        return (self.policy.rate_limited if isinstance(error, RateLimited) else self.policy.transient).retries
