"""The retry policy of one model call: how long to wait after a failure, or to give up.

    Retry-After of at most `max_retry_after_s`   exactly that, plus up to 10 % jitter; longer: give up
    a code that is in `retryable`                2, 4, 8 s, `max_retries` times; a local server: first at once
    rate_limited, and `llm_retry.rate_limited`   5, 10, 20, 40, 80 s, within the attempts of that schedule
    a code that is not in `retryable`            never
    a server that loads its model                each 5 s, until the turn's deadline, unless another model is free
    unknown                                      once
    anything else                                never
    rate_limited, and another key or model is free never
    a wait that would pass the turn's deadline   never: the failure says more than a time-out

Attempts are calls, the first included: "2 of 4" is the first of three retries.
`retry_delay` is the policy. `RetryingModel` follows it and tells the gate. The SDKs' own retries are off.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

import anyio

from bot.config.settings import LlmRetry, RateLimitedRetry
from bot.ports.errors import ModelLoading, ProviderError, RateLimited, UnknownFailure, model_retry_fields
from bot.ports.model import Completion, ModelWrapper, Request
from threads.model import OnEvent, Resumed, TextReset, Waiting

from .gate import Gate, reason

log = logging.getLogger(__name__)


def retry_delay(
    error: ProviderError,
    failures: int,
    settings: LlmRetry,
    random: Callable[[], float],
    *,
    local: bool = False,
) -> float | None:
    """Return the seconds to wait after the *failures*-th failure (from 1), or None to give up.

    *local* is a server on this machine; *random* returns a number from 0 to 1.
    """
    most = attempts(error, settings) or failures + 1
    if not error.retryable or error.code not in settings.retryable or failures >= most:
        return None
    if error.retry_after is not None:
        acceptable = error.retry_after <= settings.max_retry_after_s
        return error.retry_after * (1 + 0.1 * random()) if acceptable else None
    schedule = _own_schedule(error, settings) or settings
    if local and failures == 1 and schedule is settings:
        return 0.0
    steps = {"fixed": 1, "linear": failures}.get(settings.backoff, 1 << (failures - 1))
    wait = min(schedule.max_delay_ms, schedule.base_delay_ms * steps) / 1000
    return wait * (random() if settings.backoff == "jittered" else 1 + settings.jitter * (2 * random() - 1))


def attempts(error: ProviderError, settings: LlmRetry) -> int:
    """Return how often a call that fails with *error* is made at most, the first time included; 0 is no limit."""
    if isinstance(error, ModelLoading):
        return 0
    own = _own_schedule(error, settings)
    most = own.attempts if own else settings.max_retries + 1
    return min(most, 2) if isinstance(error, UnknownFailure) else most


def _own_schedule(error: ProviderError, settings: LlmRetry) -> RateLimitedRetry | None:
    return settings.rate_limited if isinstance(error, RateLimited) else None


@dataclass(frozen=True, slots=True)
class RetryingModel(ModelWrapper):
    """A `Model` with retries; each wait is visible, can be cancelled and holds no turn slot."""

    settings: LlmRetry
    random: Callable[[], float]
    gate: Gate | None = None
    local: bool = False

    async def complete(self, request: Request, on_event: OnEvent) -> Completion:
        failures = 0
        if self.gate is not None:
            request = replace(request, place=self.gate.place())
        while True:
            began = anyio.current_time()
            try:
                return await self.model.complete(request, on_event)
            except ProviderError as error:
                failures += 1
                if (wait := self._wait_after(error, failures, request)) is None:
                    if self.gate is not None and not request.best_effort:
                        self.gate.exhausted(self.name, error)
                    raise
                seconds = anyio.current_time() - began
                fields = model_retry_fields(error, failures + 1, wait, self.name, seconds)
                log.warning("model.retry: %s: %s", self.name, error, extra=fields)
                if self.gate is not None:
                    self.gate.hold(self.name, wait, error)
                waiting = Waiting(reason(error), wait, failures + 1, attempts(error, self.settings))
            back_at = anyio.current_time() + wait
            await on_event(TextReset())
            await on_event(waiting)
            await anyio.sleep_until(back_at)
            await on_event(Resumed())

    def _wait_after(self, error: ProviderError, failures: int, request: Request) -> float | None:
        if isinstance(error, RateLimited) and (request.other_key or not request.last_resort):
            return None
        if isinstance(error, ModelLoading) and not request.last_resort:
            return None
        wait = retry_delay(error, failures, self.settings, self.random, local=self.local)
        if wait is None or anyio.current_time() + wait >= anyio.current_effective_deadline():
            return None
        return wait
