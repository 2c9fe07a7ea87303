"""What goes wrong with the bot's calls in Discord, and how often."""

from __future__ import annotations

from tests.crash.chance import Chance, Step
from tests.fakes.discord.faults import Cut, Fault, RateLimited, Status
from tests.fakes.discord.records import Call

SEND, EDIT, DELETE = (
    "POST /channels/{}/messages",
    "PATCH /channels/{}/messages/{}",
    "DELETE /channels/{}/messages/{}",
)
OPEN_THREAD, HISTORY = "POST /channels/{}/messages/{}/threads", "GET /channels/{}/messages"
WRITES = frozenset({SEND, EDIT, DELETE, OPEN_THREAD})
STARTS = frozenset({"GET /users/@me", "GET /oauth2/applications/@me", "GET /gateway"})
"""What the library itself asks when it starts."""


class DiscordChance(Chance[Fault, Call]):
    def cut(self, *, applied: bool) -> Fault:
        return Cut(applied=applied)

    def draw(self, route: str) -> Fault | None:
        fate = self._fate
        drawn = fate.random()
        if route in WRITES:
            if drawn < 0.2:
                return Step(seconds=fate.uniform(0, self._late_s))
            faults: list[Fault] = [
                *(Status(503), Status(503, applied=True), Status(502, applied=True), RateLimited(0.3)),
                *(Cut(), Cut(applied=True)),
            ]
            return fate.choice(faults) if drawn > 0.94 else None
        if route in STARTS:
            return fate.choice([Status(503), Cut()]) if drawn > 0.98 else None
        return fate.choice([Status(503), RateLimited(0.3), Cut()]) if drawn > 0.97 else None
