"""Faults drawn by chance for the calls of a bot, and the steps of a call at which the bot may die."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import anyio

from tests.fakes.faults import Gate, Script

F = TypeVar("F")
C = TypeVar("C")


@dataclass(eq=False)
class Step(Gate):
    """A call that takes its time; ``then`` runs when the call is carried out and not answered yet."""

    seconds: float = 0.0
    then: Callable[[], Any] = field(default=lambda: None)

    async def hold(self) -> None:
        if not self.applied:
            await anyio.sleep(self.seconds)
        self.then()


class Chance(Script[F | Gate, C], Generic[F, C]):
    """``trip`` gets each step and returns whether the bot has just died of it; ``note`` gets each fault."""

    def __init__(self, fate: random.Random, late_s: float, note: Callable[[str, C, str], None]) -> None:
        super().__init__()
        self.trip: Callable[[str], bool] = lambda _: False
        self.calm = False
        self._fate, self._late_s, self._note = fate, late_s, note

    def cut(self, *, applied: bool) -> F:
        raise NotImplementedError

    def draw(self, kind: str) -> F | Gate | None:
        raise NotImplementedError

    def take(self, kind: str, call: C, *, own: bool = False) -> F | Gate | None:
        if self.trip(kind):
            return self.cut(applied=self._fate.random() < 0.5)
        if self.calm or (fault := self.draw(kind)) is None:
            return Step(applied=True, then=lambda: self.trip(f"{kind} done"))
        if not isinstance(fault, Step):
            applied: bool = getattr(fault, "applied")  # noqa: B009
            self._note(kind, call, f"{type(fault).__name__}{' applied' * applied}")
        return fault
