"""When a feature that failed is used again.

| state    | event                        | next                                   |
|----------|------------------------------|----------------------------------------|
| `on`     | a call asks                  | `on`, it may use the feature           |
| `on`     | it failed                    | `off` until `COOLDOWN_S` from now      |
| `off`    | a call asks before the end   | `off`, it may not                      |
| `off`    | a call asks after the end    | `trying`, only this call may           |
| `off`    | an older call failed         | `off`, with the same end               |
| `trying` | a call asks                  | `trying`, it may not                   |
| `trying` | it worked                    | `on`                                   |
| `trying` | it failed                    | `off` until `COOLDOWN_S` from now      |
| `trying` | it was given up              | `off`, the next call may try           |

Any other event changes nothing: a call from before the failure says nothing about now.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

COOLDOWN_S = 600.0
"""Seconds that a feature is off after it failed."""

Outcome = Literal["worked", "failed", "given up"]


@dataclass(slots=True)
class Cooldown:
    """Whether a feature is used; the next try is due at ``until``, in seconds of the callers' clock."""

    state: Literal["on", "off", "trying"] = "on"
    until: float = 0.0

    def allows(self, now: float) -> bool:
        """Return whether the call that asks may use the feature."""
        if self.state == "off" and now >= self.until:
            self.state = "trying"
            return True
        return self.state == "on"

    def record(self, outcome: Outcome, now: float) -> None:
        """Take the outcome of a call that was allowed."""
        match self.state, outcome:
            case (("on" | "trying"), "failed"):
                self.state, self.until = "off", now + COOLDOWN_S
            case "trying", "worked":
                self.state = "on"
            case "trying", "given up":
                self.state, self.until = "off", now
