"""How we stand with Discord: bad requests are counted by address, and 10,000 in ten minutes shut it out. Pure.

| what is seen                                          | what is let through                                |
|-------------------------------------------------------|----------------------------------------------------|
| less than `CAREFUL_AT` bad answers in the window      | every call                                         |
| `CAREFUL_AT` of them                                  | no cosmetic call: no typing, reaction or live edit |
| `SILENT_AT` of them                                   | nothing                                            |
| a ban (a 429 that is not Discord's own)               | nothing for 10 min, and 20, 40, 60 for the next ones |
| a good answer after a ban                             | as before, and the next ban counts as a first one  |

A bad answer is a 401, a 403, or a 429 that is not for others' use of something shared.
https://docs.discord.com/developers/topics/rate-limits#invalid-request-limit-aka-cloudflare-bans
"""

from __future__ import annotations

from collections import deque

WINDOW_S = 600.0
CAREFUL_AT, SILENT_AT = 2_000, 8_000
"""Of 10,000. Other programs may share the address, so the cosmetic calls leave them most of it."""
FIRST_BAN_S, LONGEST_BAN_S = 600.0, 3600.0
BAD = (401, 403, 429)


class InvalidRequests:
    """Times are seconds of one clock that does not go back."""

    def __init__(self) -> None:
        self._bad: deque[float] = deque(maxlen=SILENT_AT)
        self._bans = 0
        self._banned_until = 0.0

    def answered(self, now: float, status: int, *, shared: bool = False) -> None:
        """Note an answer; *shared* says that a 429 is for a limit which others use up too."""
        if status in BAD and not shared:
            self._bad.append(now)
        elif status < 300 and now >= self._banned_until:
            self._bans = 0

    def banned(self, now: float) -> float:
        """Note a ban and return for how many seconds nothing may be asked."""
        if now >= self._banned_until:
            self._banned_until = now + min(FIRST_BAN_S * 2.0 ** min(self._bans, 10), LONGEST_BAN_S)
            self._bans += 1
        return self._banned_until - now

    def wait(self, now: float, *, urgent: bool) -> float:
        """Return for how many seconds such a call must not be made; 0 if it may be made now."""
        bad = self._count(now)
        most = SILENT_AT if urgent else CAREFUL_AT
        drained = self._bad[bad - most] + WINDOW_S - now if bad >= most else 0.0
        return max(self._banned_until - now, drained, 0.0)

    def trouble(self, now: float) -> str:
        """Say for operators what is held back; blank if nothing is."""
        if (left := self._banned_until - now) > 0:
            return f"Discord has shut out this address; asking again in {left / 60:.0f} min"
        if (bad := self._count(now)) >= CAREFUL_AT:
            return f"{bad} refused requests in ten minutes; Discord shuts out an address at 10,000"
        return ""

    def _count(self, now: float) -> int:
        while self._bad and self._bad[0] <= now - WINDOW_S:
            self._bad.popleft()
        return len(self._bad)
