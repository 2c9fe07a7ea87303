"""Retry of one model call: how long to wait after a failure, or that it is no use.

    Retry-After of at most `max_retry_after_s`   exactly that, plus up to 10 % jitter; longer: give up
    rate_limited without                         5, 10, 20, 40, 80, 160 s, within its own attempts
    timeout, unavailable, connection             2, 4, 8 s, `max_retries` times; a local server: first at once
    unknown                                      once
    anything else                                never

`wait_after` is the policy; `Retrying` is the model that follows it. SDK retries are off: this is the one owner.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import anyio

from bot.errors import ProviderError, RateLimited, UnknownFailure
from threads.model import OnEvent, Resumed, TextReset, Waiting

from .model import Completion, Model, Request


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


_REASONS = {"rate_limited": "rate limited", "timeout": "no answer in time", "connection": "no connection"}


@dataclass(frozen=True, slots=True)
class Retrying:
    """A `Model` that tries again; each wait is visible, cancellable and holds no turn slot."""

    model: Model
    policy: RetryPolicy
    random: Callable[[], float]

    @property
    def name(self) -> str:
        return self.model.name

    async def complete(self, request: Request, on_event: OnEvent) -> Completion:
        failures = 0
        while True:
            try:
                return await self.model.complete(request, on_event)
            except ProviderError as error:
                failures += 1
                wait = wait_after(error, failures, self.policy, self.random)
                if wait is None:
                    raise
                limited = isinstance(error, RateLimited)
                attempts = (self.policy.rate_limited if limited else self.policy.transient).retries
                reason = _REASONS.get(error.code, "the provider has trouble")
            await on_event(TextReset())
            await on_event(Waiting(reason, wait, failures, attempts))
            await anyio.sleep(wait)
            await on_event(Resumed())
