"""The circuit breaker of one model, or of one account: whether calls may go out, and how many.

| from      | event                                                   | to                                 |
|-----------|---------------------------------------------------------|------------------------------------|
| closed    | calls of one thread fail, however many                  | closed: it may be that thread's    |
| closed    | then a call of another thread fails                     | in doubt                           |
| in doubt  | the `threshold`-th exhausted call in a row, or had it   | open, for the cooldown             |
| in doubt  | a call succeeds that began after the first failure      | closed                             |
| closed    | a permanent failure: auth, payment, model_not_found     | open, for 30 min                   |
| open      | 30 s before the cooldown ends (half of a shorter one)   | half-open                          |
| open      | 5 s later (60 s if permanent), without another model    | half-open, for this call           |
| half-open | one call goes out                                       | probe out                          |
| probe out | it succeeds                                             | closed                             |
| probe out | it fails                                                | open, for twice the time           |
| probe out | it is cancelled, or says nothing about the provider     | half-open, the probe is given back |

So an open circuit blocks the last candidate for a few seconds only, however long its cooldown is, and a provider that
recovers is found at once. The cooldown is the provider's Retry-After or, by kind, `COOLDOWNS_S`; it doubles up to
10 min while probes fail. No probe goes out before a Retry-After is over. A call counts when it gives up, not at each
attempt. Failures of the request (bad_request, context_overflow, content_policy, output_invalid, a limit that it alone
passes) or of our own (a full pool) never count. auth and payment are about the account: they open the breaker that
all its models share (see `bot.llm.policies.queue`).
"""

from __future__ import annotations

import math

from bot.ports.errors import ProviderError
from bot.ports.status import CircuitState

COOLDOWNS_S: dict[str, float] = {"rate_limited": 60, "timeout": 30, "unavailable": 60, "connection": 30}
"""The first cooldown of each transient failure."""
LONGEST_S = 600.0
SHORTEST_S = 1.0
PERMANENT: tuple[str, ...] = ("auth", "payment", "model_not_found")
"""Failures that last until a person acts."""
PERMANENT_S = 1800.0
PROBE_EVERY_S = 5.0
"""Seconds between two probes by calls without another model, after a transient failure."""
PROBE_PERMANENT_EVERY_S = 60.0
"""The same after a failure that lasts until a person acts."""
LEAD_S = 30.0
"""Seconds before the end of a cooldown at which a probe may go out."""


def is_transient(error: ProviderError) -> bool:
    """Return whether *error* is a failure of the provider that passes by itself."""
    return error.code in COOLDOWNS_S and not error.alone


class Breaker:
    """The state machine of the table above; pure. ``now`` is a monotonic clock in seconds."""

    def __init__(self, threshold: int) -> None:
        self._threshold = threshold
        self._exhausted = 0
        self._openings = 0
        self.failure: ProviderError | None = None
        """Why the circuit is not closed. It is shared: never raise or change it."""
        self.failed_at = -math.inf
        """The time of the last such failure."""
        self._probe_at = self._last_resort_at = -math.inf
        self.probing = self.in_doubt = False
        self.failing: str | None = None
        """The thread whose call failed last; None after a success."""
        self._failing_since = -math.inf

    def probe_at(self, *, last_resort: bool) -> float:
        """Return the time from which a circuit that is not closed may be probed."""
        return self._last_resort_at if last_resort else self._probe_at

    @property
    def state(self) -> CircuitState:
        """The circuit's state; it is half-open while its probe is out."""
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

    def succeeded(self, began_at: float, *, probe: bool) -> None:
        """Note a success. A call that began before the trouble says nothing about it."""
        if probe or (self.failure is None and began_at >= self._failing_since):
            self._exhausted = self._openings = 0
            self.failure, self.probing = None, False
            self.failing, self.in_doubt, self._failing_since = None, False, -math.inf

    def attempt_failed(self, error: ProviderError, thread: str, now: float) -> None:
        """Note that one call of a thread failed, whether it gives up or not."""
        if not is_transient(error):
            return
        if self.failing is None:
            self._failing_since = now
        self.in_doubt = self.in_doubt or self.failing not in (None, thread)
        self.failing = thread
        self._open_if_due(error, now)

    def failed(self, error: ProviderError, now: float) -> None:
        """Note that the probe failed."""
        self.probing = False
        if is_transient(error) or error.code in PERMANENT:
            self._open(error, now)

    def cancelled(self) -> None:
        """Note that the probe ended and says nothing about the provider."""
        self.probing = False

    def exhausted(self, error: ProviderError, now: float) -> None:
        """Note that a call gave up; it does not count if the circuit is open already."""
        if self.failure is not None:
            return
        if error.code in PERMANENT:
            self._open(error, now)
        elif is_transient(error):
            self._exhausted += 1
            self._open_if_due(error, now)

    def _open_if_due(self, error: ProviderError, now: float) -> None:
        if self.failure is None and self.in_doubt and self._exhausted >= self._threshold:
            self._open(error, now)

    def _open(self, error: ProviderError, now: float) -> None:
        retry_after = error.retry_after or 0.0
        if error.code in PERMANENT:
            cooldown, every = max(PERMANENT_S, retry_after), PROBE_PERMANENT_EVERY_S
        else:
            first = max(SHORTEST_S, retry_after or COOLDOWNS_S[error.code])
            # The exponent is bounded because the power is not: a circuit may stay open for weeks.
            cooldown = max(retry_after, min(LONGEST_S, first * 2 ** min(self._openings, 10)))
            every = PROBE_EVERY_S
            self._openings += 1
        self.failure, self.failed_at = error, now
        self._probe_at = now + max(retry_after, cooldown - min(LEAD_S, cooldown / 2))
        self._last_resort_at = min(self._probe_at, now + max(retry_after, every))
