"""What a crash run's Slack and Discord share: the faults, the crowd of people, the cut links and the drain."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import anyio
from anyio.abc import TaskStatus

from tests.crash.book import Book
from tests.crash.chance import Chance
from tests.crash.journal import Journal
from transports.shared.live.background_calls import AGAIN_S

CUT_EVERY_S = 4.0
NEVER_S = 1e9
MOST_OWED = 150
"""While the bot owes more ends than this nobody begins a conversation: a slow machine could not end them in the drain."""
QUIET_S = 12.0
"""At the real pace a start clears what deaths left about this long after it."""


class Fake(Protocol):
    url: str

    async def __aenter__(self) -> Any: ...

    async def __aexit__(self, *exc: object) -> None: ...


class Said(Protocol):
    @property
    def must(self) -> bool: ...


class ChatPlatform(ABC):
    """A `tests.crash.run.Place`. ``crowd`` people have one conversation after the other, side by side."""

    fake: Fake
    look_s = 0.05
    """Seconds between two looks at what changed."""
    _spoken: Sequence[Said]

    def __init__(
        self,
        folder: Path,
        chance: Chance[Any, Any],
        *,
        seed: int,
        crowd: int,
        pause_s: float,
        people: tuple[str, ...],
    ) -> None:
        # A sweep that the platform refused, or left without an answer, is repeated after a pause.
        self.talking, self._cut_every_s, self._quiet_s = True, CUT_EVERY_S, AGAIN_S[0] + 1
        self._seed, self._crowd, self._pause_s, self._people = seed, crowd, pause_s, people
        self._book, self._chance = Book(folder), chance
        self._journal = Journal(folder / "data" / "journal.jsonl")
        self._fate = random.Random(f"{seed} fate")
        self._presses = self._commands = 0

    @property
    def trip(self) -> Callable[[str], bool]:
        return self._chance.trip

    @trip.setter
    def trip(self, trip: Callable[[str], bool]) -> None:
        self._chance.trip = trip

    @property
    def accepted(self) -> int:
        return sum(spoken.must for spoken in self._spoken)

    @property
    @abstractmethod
    def owed(self) -> float: ...

    async def serve(self, *, task_status: TaskStatus[int]) -> None:
        await self.fake.__aenter__()
        try:
            task_status.started(int(self.fake.url.rpartition(":")[2]))
            while True:
                await anyio.sleep(self.look_s)
                self.tick()
        finally:
            with anyio.CancelScope(shield=True):
                await self.fake.__aexit__(None, None, None)

    def tick(self) -> None:
        """Look at what changed. `serve` calls it again and again."""
        self._journal.look()

    async def talk(self) -> None:
        await self.connected()
        async with anyio.create_task_group() as people:
            for number in range(self._crowd):
                people.start_soon(self._converse, random.Random(f"{self._seed} person {number}"))
            people.start_soon(self._cut_links)

    @abstractmethod
    async def connected(self) -> None:
        """Wait for the bot's first connection."""

    async def until_settled(self) -> None:
        """Return when every message has its end on the bot's disk, and the bot has nothing more to say."""
        while self.owed or self.delivering():
            await anyio.sleep(0.2)
        calls = self.count_calls()
        while True:
            await anyio.sleep(self._quiet_s)
            if calls == (calls := self.count_calls()):
                break
        self._chance.calm = True

    def delivering(self) -> bool:
        """Return whether an event is still on its way to the bot."""
        return False

    @abstractmethod
    def count_calls(self) -> int: ...

    async def _converse(self, person: random.Random) -> None:
        while self.talking:
            if self.owed < MOST_OWED:
                await self._conversation(person)
            await self._pause(person)

    @abstractmethod
    async def _conversation(self, person: random.Random) -> None: ...

    async def _pause(self, person: random.Random) -> None:
        await anyio.sleep(person.expovariate(1 / self._pause_s))

    async def _wait_for_answer(self, answered: Callable[[], bool]) -> None:
        with anyio.move_on_after(4 * self._pause_s):
            while not answered():
                await anyio.sleep(0.05)

    async def _cut_links(self) -> None:
        while self.talking:
            await anyio.sleep(self._fate.expovariate(1 / self._cut_every_s))
            if ways := self.ways_to_cut():
                self._fate.choice(ways)()

    @abstractmethod
    def ways_to_cut(self) -> Sequence[Callable[[], None]]:
        """Return how the newest link can end, empty without a link."""
