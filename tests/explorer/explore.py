"""The exploration: play a scenario once, crash it after each operation in every way, recover, and crash again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import TypeVar

from .crashes import kills, power_cuts
from .model import ModelDisk, Op
from .scenarios import Scenario

S = TypeVar("S", bound=Scenario)


@dataclass(slots=True)
class Figures:
    """How much was explored: crash points, and distinct disks found there, each with what it was judged by."""

    points: int = 0
    first: int = 0
    second: int = 0

    @property
    def states(self) -> int:
        return self.first + self.second

    def __str__(self) -> str:
        return f"{self.points} crash points, {self.first} + {self.second} = {self.states} states"


@dataclass(slots=True)
class Explorer:
    """``dense`` bounds the torn prefixes of each write in a first crash, ``sparse`` in a second one.

    One of ``every`` first crashes is followed by second ones, and of the kills between two operations twelve times as
    many. A disk seen before, under the same promises, is skipped.
    """

    dense: int = 12
    sparse: int = 2
    every: int = 12
    figures: Figures = field(default_factory=Figures)
    _seen: set[int] = field(default_factory=set)
    _scenarios: int = 0

    async def explore(
        self, play: Callable[[ModelDisk, S], Awaitable[None]], begin: Callable[[], S], disk: ModelDisk
    ) -> None:
        """Play on *disk* and try every crash. Raises `Violation`."""
        start = disk.copy()
        scenario = begin()
        await play(disk, scenario)
        await self._crash(scenario, start, disk.ops, deep=True)

    async def _crash(self, scenario: Scenario, start: ModelDisk, ops: list[Op], *, deep: bool) -> None:
        self._scenarios += 1
        now, number = start.copy(), self._scenarios
        most = self.dense if deep else self.sparse
        for at, op in enumerate([*ops, None]):
            self.figures.points += 1
            stage = (number, scenario.stage(at))
            for image in power_cuts(now, most):
                if self._new(stage, frozenset(image.items())):
                    await self.one(
                        scenario, ModelDisk.holding(image, ordered=start.ordered), at, power=True, deep=deep
                    )
            for number, found in enumerate(kills(now, op, most)):
                if self._new(stage, found.state()):
                    again = number == 0 and at % self.every_kill == 0
                    await self.one(scenario, found, at, power=False, deep=deep, again=again)
            if op is not None:
                now.perform(op)

    @property
    def every_kill(self) -> int:
        return max(1, self.every // 12)

    def _new(self, stage: Hashable, state: Hashable) -> bool:
        known = len(self._seen)
        self._seen.add(hash((stage, state)))
        return len(self._seen) > known

    async def one(
        self, scenario: Scenario, disk: ModelDisk, at: int, *, power: bool, deep: bool, again: bool = False
    ) -> None:
        if not deep:
            self.figures.second += 1
            await scenario.judge(disk, at, power=power)
            return
        self.figures.first += 1
        before = disk.copy()
        after = await scenario.recover(disk, at, power=power)
        if again or self.figures.first % self.every == 0:
            await self._crash(after, before, disk.ops, deep=False)
