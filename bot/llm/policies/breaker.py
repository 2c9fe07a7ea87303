"""The circuit breaker of one model, or of one account: whether it may be asked, and by how many.

| from      | event                                                   | to                                 |
|-----------|---------------------------------------------------------|------------------------------------|
| closed    | the `threshold`-th exhausted call in a row              | open, for the cooldown             |
| closed    | a call refused for good: auth, payment, model unknown   | open, for 30 min                   |
| open      | 30 s before the cooldown ends (half of a shorter one)   | half-open                          |
| open      | 5 s on (60 s: for good), for who has no other model     | half-open, for this call           |
| half-open | one call goes out                                       | probe out                          |
| probe out | it succeeds                                             | closed                             |
| probe out | it fails                                                | open, for twice the time           |
| probe out | it is cancelled, or says nothing about the provider     | half-open, the probe is given back |

An open circuit therefore keeps the last candidate from being asked for a few seconds only, however often its
cooldown was doubled: a provider that is back is found at once. The cooldown is the provider's Retry-After or, by
kind, `COOLDOWNS_S`; it doubles up to 10 min while probes fail. No probe goes out before a Retry-After is over. What
counts is a call that gave up, not each of its attempts. Failures that are about the request (bad_request,
context_overflow, content_policy, output_invalid) or ours (a full pool) never count. auth and payment are about the
account: they open the breaker that all its models share (see `bot.llm.policies.queue`).
"""

from __future__ import annotations

import math

from bot.ports.errors import ModelConnection, ProviderError
from bot.ports.status import CircuitState

COOLDOWNS_S: dict[str, float] = {"rate_limited": 60, "timeout": 30, "unavailable": 60, "connection": 30}
"""First cooldown by the kind of failure that will pass."""
LONGEST_S = 600.0
SHORTEST_S = 1.0
FOR_GOOD: tuple[str, ...] = ("auth", "payment", "model_not_found")
"""Failures that pass only when somebody acts."""
FOR_GOOD_S = 1800.0
PROBE_EVERY_S = 5.0
"""The least time between two calls of those who have nobody else to ask, after a failure that will pass."""
PROBE_FOR_GOOD_EVERY_S = 60.0
"""The same after one that passes only when somebody acts."""
LEAD_S = 30.0
"""How long before its end a cooldown may be probed."""


def passes(error: ProviderError) -> bool:
    """Return whether *error* tells of a provider in passing trouble."""
    return error.code in COOLDOWNS_S and not (isinstance(error, ModelConnection) and error.local)


class Breaker:
    """The state machine of the table above: pure; ``now`` is any clock that never goes back, in seconds."""

    def __init__(self, threshold: int) -> None:
        self._threshold = threshold
        self._exhausted = 0
        self._openings = 0
        self.failure: ProviderError | None = None
        """Why the circuit is not closed; shared, so never to be raised or changed."""
        self.failed_at = -math.inf
        """When that was last heard."""
        self._probe_at = self._last_resort_at = -math.inf
        self.probing = False

    def probe_at(self, *, last_resort: bool) -> float:
        """Return when a circuit that is not closed may be probed."""
        return self._last_resort_at if last_resort else self._probe_at

    @property
    def state(self) -> CircuitState:
        """Return the circuit's state; it is half-open while its probe is out."""
        if self.failure is None:
            return "closed"
        return "half-open" if self.probing else "open"

    def admits(self, now: float, *, last_resort: bool) -> bool:
        """Return whether a call may go out now."""
        return self.failure is None or (not self.probing and now >= self.probe_at(last_resort=last_resort))

    def start(self) -> bool:
        """Note that a call goes out, and return whether it is the probe."""
        self.probing = self.failure is not None
        return self.probing

    def succeeded(self, *, probe: bool) -> None:
        """Note a success; one that was under way when the circuit opened says nothing new about it."""
        if probe or self.failure is None:
            self._exhausted = self._openings = 0
            self.failure, self.probing = None, False

    def failed(self, error: ProviderError, now: float) -> None:
        """Note that the probe failed."""
        self.probing = False
        if passes(error) or error.code in FOR_GOOD:
            self._open(error, now)

    def cancelled(self) -> None:
        """Note that the probe ended without a word about the provider."""
        self.probing = False

    def exhausted(self, error: ProviderError, now: float) -> None:
        """Note that a call gave up. What was under way when the circuit opened adds nothing to it."""
        if self.failure is not None:
            return
        self._exhausted += passes(error)
        if error.code in FOR_GOOD or (passes(error) and self._exhausted >= self._threshold):
            self._open(error, now)

    def _open(self, error: ProviderError, now: float) -> None:
        asked = error.retry_after or 0.0
        if error.code in FOR_GOOD:
            cooldown, every = max(FOR_GOOD_S, asked), PROBE_FOR_GOOD_EVERY_S
        else:
            first = max(SHORTEST_S, asked or COOLDOWNS_S[error.code])
            # The exponent is bounded because the power is not: a circuit may stay open for weeks.
            cooldown = max(asked, min(LONGEST_S, first * 2 ** min(self._openings, 10)))
            every = PROBE_EVERY_S
            self._openings += 1
        self.failure, self.failed_at = error, now
        self._probe_at = now + max(asked, cooldown - min(LEAD_S, cooldown / 2))
        self._last_resort_at = min(self._probe_at, now + max(asked, every))
