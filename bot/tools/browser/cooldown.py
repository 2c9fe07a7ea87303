"""When a feature that failed is used again. Pure.

| state    | event                        | next                                   |
|----------|------------------------------|----------------------------------------|
| `on`     | a call asks                  | `on`, it may                           |
| `on`     | it failed                    | `off` until `COOLDOWN_S` from now      |
| `off`    | a call asks before the end   | `off`, it may not                      |
| `off`    | a call asks after the end    | `trying`, this one call may            |
| `off`    | an older call failed         | `off`, for no longer than it was       |
| `trying` | a call asks                  | `trying`, it may not                   |
| `trying` | it worked                    | `on`                                   |
| `trying` | it failed                    | `off` until `COOLDOWN_S` from now      |
| `trying` | it was given up              | `off`, the next call that asks may     |

What is not in the table changes nothing: a call that began before the switch went off says nothing about now.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

COOLDOWN_S = 600.0
"""Seconds that a feature is left alone after it failed."""

Outcome = Literal["worked", "failed", "given up"]


@dataclass(frozen=True, slots=True)
class Switch:
    """Whether a feature is used; ``until`` is when the next try is due, in seconds of the clock of the events."""

    state: Literal["on", "off", "trying"] = "on"
    until: float = 0.0

    def asked(self, now: float) -> tuple[Switch, bool]:
        """Return what comes next, and whether the call that asks may use it."""
        if self.state == "off" and now >= self.until:
            return Switch("trying", self.until), True
        return self, self.state == "on"

    def ended(self, how: Outcome, now: float) -> Switch:
        """Return what comes next after a call that was let through."""
        match self.state, how:
            case (("on" | "trying"), "failed"):
                return Switch("off", now + COOLDOWN_S)
            case "trying", "worked":
                return Switch()
            case "trying", "given up":
                return Switch("off", now)
            case _:
                return self
