"""When a feature that failed is used again."""

from __future__ import annotations

from dataclasses import dataclass

COOLDOWN_S = 600.0
"""Seconds that a feature is off after it failed."""

TRY_S = 45.0
"""Seconds that the first call after that has, before another call may try."""


@dataclass(slots=True)
class Cooldown:
    """A feature is off until ``off_until``, in seconds of the callers' clock; 0 means that it works.

    When the time is over, one call tries the feature. The other calls do without until its outcome is known.
    """

    off_until: float = 0.0

    def allows(self, now: float) -> bool:
        """Return whether the call that asks may use the feature."""
        if now < self.off_until:
            return False
        if self.off_until:
            self.off_until = now + TRY_S
        return True

    def fail(self, now: float) -> None:
        """Turn the feature off: a call that was allowed failed."""
        self.off_until = now + COOLDOWN_S

    def reset(self) -> None:
        """Turn the feature on: a call that was allowed worked."""
        self.off_until = 0.0
