"""What goes wrong with the bot's calls, drawn by chance, and the steps of a call at which the bot may die."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import anyio

from tests.fakes.discord.faults import Cut, Fault, Gate, RateLimited, Status
from tests.fakes.discord.records import Call
from tests.fakes.faults import Script

SEND, EDIT, DELETE = (
    "POST /channels/{}/messages",
    "PATCH /channels/{}/messages/{}",
    "DELETE /channels/{}/messages/{}",
)
OPEN_THREAD, HISTORY = "POST /channels/{}/messages/{}/threads", "GET /channels/{}/messages"
WRITES = frozenset({SEND, EDIT, DELETE, OPEN_THREAD})
STARTS = frozenset({"GET /users/@me", "GET /oauth2/applications/@me", "GET /gateway"})
"""What the library itself asks when it starts."""


@dataclass(eq=False)
class Step(Gate):
    """A call that takes its time; ``then`` is told when it was carried out and is not answered yet."""

    seconds: float = 0.0
    then: Callable[[], Any] = field(default=lambda: None)

    async def hold(self) -> None:
        if not self.applied:
            await anyio.sleep(self.seconds)
        self.then()


class Chance(Script[Fault, Call]):
    """Faults by chance; ``trip`` is told of each step, and says whether the bot has just died of it."""

    def __init__(self, fate: random.Random, late_s: float, note: Callable[[Call, str], None]) -> None:
        super().__init__()
        self.trip: Callable[[str], bool] = lambda _: False
        self.calm = False
        self._fate, self._late_s, self._note = fate, late_s, note

    def take(self, kind: str, call: Call, *, own: bool = False) -> Fault | None:
        if self.trip(kind):
            return Cut(applied=self._fate.random() < 0.5)
        if self.calm or (fault := self._draw(kind)) is None:
            return Step(applied=True, then=lambda: self.trip(f"{kind} done"))
        if not isinstance(fault, Step):
            self._note(call, f"{type(fault).__name__}{' applied' * fault.applied}")
        return fault

    def _draw(self, route: str) -> Fault | None:
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
