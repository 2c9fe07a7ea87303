"""Discord's rate limits: fixed windows per bucket and major parameter, and one for everything.

The numbers are those that Discord's headers typically tell; none is documented. Off, the headers are there all the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tests.fakes.discord.ids import Json


class Rate(NamedTuple):
    most: int
    seconds: float


POSTING, REACTING, THREADING = Rate(5, 5.0), Rate(1, 0.25), Rate(50, 300.0)
RATES = {
    "POST /channels/{}/messages": POSTING,
    "PATCH /channels/{}/messages/{}": POSTING,
    "DELETE /channels/{}/messages/{}": Rate(5, 1.0),
    "GET /channels/{}/messages": Rate(20, 10.0),
    "POST /channels/{}/typing": POSTING,
    "PUT /channels/{}/messages/{}/reactions/{}/@me": REACTING,
    "DELETE /channels/{}/messages/{}/reactions/{}/@me": REACTING,
    "POST /channels/{}/messages/{}/threads": THREADING,
    "POST /webhooks/{}/{}": POSTING,
    "PATCH /webhooks/{}/{}/messages/{}": POSTING,
    "PUT /applications/{}/commands": Rate(5, 20.0),
}
OTHER, GENEROUS, GLOBAL, OLD_EDITS = Rate(50, 1.0), Rate(1000, 1.0), Rate(50, 1.0), Rate(3, 20.0)
_SHARED = {
    "DELETE /channels/{}/messages/{}/reactions/{}/@me": "PUT /channels/{}/messages/{}/reactions/{}/@me"
}
Scope = Literal["user", "global"]


@dataclass
class Window:
    ends: float = 0.0
    used: int = 0


class Verdict(NamedTuple):
    headers: dict[str, str]
    wait: float = 0.0
    scope: Scope = "user"


class Buckets:
    def __init__(
        self, clock: Callable[[], float], wall: Callable[[], float], *, on: bool, scale: float
    ) -> None:
        self.on, self.scale = on, scale
        self._clock, self._wall = clock, wall
        self._windows: dict[tuple[str, str], Window] = {}

    def take(self, route: str, major: str, *, exempt: bool = False) -> Verdict:
        """Count a call; ``wait`` is 0 when it may pass. *exempt*: interactions do not count for all together."""
        rate = (RATES.get(route, OTHER)) if self.on else GENEROUS
        if self.on and not exempt and (wait := self._spend(("", ""), GLOBAL)):
            return Verdict({"X-RateLimit-Global": "true", "X-RateLimit-Scope": "global"}, wait, "global")
        wait = self._spend((_SHARED.get(route, route), major), rate) if self.on else 0.0
        headers = self._headers(route, major, rate)
        if wait:
            headers["X-RateLimit-Scope"] = "user"
        return Verdict(headers, wait)

    def old_edit(self, channel: str) -> float:
        """Seconds to wait before a message older than an hour may be edited again."""
        return self._spend(("old", channel), OLD_EDITS)

    def _spend(self, key: tuple[str, str], rate: Rate) -> float:
        now = self._clock()
        window = self._windows.setdefault(key, Window())
        if now >= window.ends:
            window.ends, window.used = now + rate.seconds / self.scale, 0
        if window.used >= rate.most:
            return window.ends - now
        window.used += 1
        return 0.0

    def _headers(self, route: str, major: str, rate: Rate) -> dict[str, str]:
        shared = _SHARED.get(route, route)
        window = self._windows.get((shared, major), Window(self._clock() + 1.0, 1))
        left = max(0.0, window.ends - self._clock())
        return {
            "X-RateLimit-Limit": str(rate.most),
            "X-RateLimit-Remaining": str(max(0, rate.most - window.used)),
            "X-RateLimit-Reset": f"{self._wall() + left:.3f}",
            "X-RateLimit-Reset-After": f"{left:.3f}",
            "X-RateLimit-Bucket": hashlib.blake2s(shared.encode(), digest_size=16).hexdigest(),
        }


def body_of_429(wait: float, *, is_global: bool) -> Json:
    """The body of a 429."""
    return {"message": "You are being rate limited.", "retry_after": round(wait, 3), "global": is_global}
