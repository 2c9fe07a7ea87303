"""What goes wrong with the bot's calls, drawn by chance, and the steps of a call at which the bot may die."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import anyio

from tests.fakes.faults import Script
from tests.fakes.slack.faults import Cut, Fault, Gate, Html, RateLimited
from tests.fakes.slack.records import Json

WRITES = frozenset(
    {"chat.postMessage", "chat.update", "chat.delete", "chat.startStream", "chat.appendStream"}
    | {"chat.stopStream", "chat.postEphemeral", "files.completeUploadExternal"}
)
READS = frozenset({"conversations.replies", "conversations.history", "users.conversations"})


@dataclass(eq=False)
class Step(Gate):
    """A call that takes its time; ``then`` is told when it was carried out and is not answered yet."""

    seconds: float = 0.0
    then: Callable[[], Any] = field(default=lambda: None)

    async def hold(self) -> None:
        if not self.applied:
            await anyio.sleep(self.seconds)
        self.then()


class Chance(Script[Fault, Json]):
    """Faults by chance; ``trip`` is told of each step, and says whether the bot has just died of it."""

    def __init__(self, fate: random.Random, late_s: float, note: Callable[[str, Json, str], None]) -> None:
        super().__init__()
        self.trip: Callable[[str], bool] = lambda _: False
        self.calm = False
        self._fate, self._late_s, self._note = fate, late_s, note

    def take(self, kind: str, call: Json, *, own: bool = False) -> Fault | None:
        if self.trip(kind):
            return Cut(applied=self._fate.random() < 0.5)
        if self.calm or (fault := self._draw(kind)) is None:
            return self._passing(kind)
        if not isinstance(fault, Step):
            self._note(kind, call, f"{type(fault).__name__}{' applied' * fault.applied}")
        return fault

    def _passing(self, method: str) -> Fault:
        return Step(applied=True, then=lambda: self.trip(f"{method} done"))

    def _draw(self, method: str) -> Fault | None:
        fate = self._fate
        drawn = fate.random()
        if method in WRITES:
            if drawn < 0.2:
                return Step(seconds=fate.uniform(0, self._late_s))
            faults: list[Fault] = [
                *(Html(503), Html(502, applied=True), RateLimited(1)),
                *(Cut(), Cut(applied=True), Cut(applied=True, how="fin")),
            ]
            return fate.choice(faults) if drawn > 0.94 else None
        if method in READS or method in ("auth.test", "apps.connections.open"):
            return fate.choice([Html(503), RateLimited(1), Cut()]) if drawn > 0.97 else None
        return Html(503) if drawn > 0.97 else None
