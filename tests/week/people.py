"""The people of the soak, who talk three times a day and are silent in between; they are judged as those are."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import anyio

from tests.crash.chat_platform import NEVER_S
from tests.crash.slack.platform import actions
from tests.soak import people
from tests.transports.web.site import Visitor

DAY_S = 86_400.0
BUSY = ((9.0, 9.75), (14.0, 14.25), (23.75, 24.25))
"""The hours of the day, in UTC, at which people talk. The last goes on over midnight."""
PAUSE_S = 900.0
LOOK_S = 60.0
THREADS = 2


def idle_s(wall: float) -> float:
    """Return how long nobody talks from this time of day on, 0 while people talk."""
    hour = wall % DAY_S / 3600
    if any(begin <= hour + day < end for begin, end in BUSY for day in (0, 24)):
        return 0.0
    return min((begin - hour) % 24 for begin, _ in BUSY) * 3600


class Daily:
    """``wall`` is the time of day in Unix time."""

    look_s = LOOK_S
    wall: Any

    async def rest(self, seconds: float) -> None:
        """Rest, and go on when people talk."""
        await anyio.sleep(seconds)
        await anyio.sleep(idle_s(self.wall()))


class _Chat(Daily):
    _cut_every_s: float
    _pause_s: float

    def settle_in(self, wall: Any) -> None:
        self.wall, self._cut_every_s = wall, NEVER_S
        self.until_calm()

    async def _pause(self, person: random.Random) -> None:
        await self.rest(person.expovariate(1 / self._pause_s))

    async def _until_next_look(self) -> None:
        """Nobody decides at midnight: those questions expire."""
        await self.rest(LOOK_S)
        while self.wall() % DAY_S // 3600 in (23, 0):
            await self.rest(LOOK_S)


class InSlack(_Chat, people.InSlack):
    """Nobody presses "Try again": the judges take a second answer to one message for a fault."""

    def _press(self, *_: object) -> None:
        """Press nothing but what is asked."""

    def _look_at(self, message: Any, spoken: Any) -> None:
        if not any("/retry" in value for _, value in actions(message.blocks or ())):
            super()._look_at(message, spoken)


class InDiscord(_Chat, people.InDiscord):
    """As in Slack. Nobody talks where answers go in place: who follows replies back goes 50 messages, the judges all."""

    def settle_in(self, wall: Any) -> None:
        super().settle_in(wall)
        self._channels = self._channels[2:] or [self._discord.channel("more").id]

    def _press(self, *_: object) -> None:
        """Press nothing but what is asked."""

    def _look_at(self, message: Any) -> None:
        if not any(label == "Try again" for label, _ in message.buttons):
            super()._look_at(message)


class InWeb(Daily, people.InWeb):
    def settle_in(self, wall: Any) -> None:
        self.wall = wall

    async def _pause(self, person: random.Random, number: int) -> None:
        await self.rest(person.expovariate(1 / self._pause_s))

    async def say_once(self, person: str, thread: str, text: str) -> None:
        async with Visitor(self._site) as visitor:
            while not await self._enter(visitor, person):
                await anyio.sleep(LOOK_S)
            await visitor.say(text, thread)

    async def enter_late(self, person: str, wait_s: float) -> int:
        """Open a link so long after it was made, and return the status of the answer."""
        link = self._site.link(person)
        await anyio.sleep(wait_s)
        async with Visitor(self._site) as visitor:
            return (await visitor.post("/api/enter", json={"link": link})).status_code


class InConsole(Daily):
    """The person at a pipe of `threadfast chat`. ``lines`` are what was said; ``heard`` is all that was answered."""

    owed, talking = 0, True

    def __init__(self, wall: Any) -> None:
        self.wall, self.lines, self.heard = wall, list[str](), b""
        self._numbers, self._streams = count(1), list[Any]()

    def open(self) -> dict[str, Any]:
        """Return the streams of a new chat."""
        for stream in self._streams:
            stream.close()
        (read, said), (answers, write) = os.pipe(), os.pipe()
        os.set_blocking(answers, False)
        self._said, self._answers = os.fdopen(said, "wb", 0), os.fdopen(answers, "rb", 0)
        streams = {"stdin": os.fdopen(read), "stdout": os.fdopen(write, "w")}
        self._streams = [self._said, self._answers, *streams.values()]
        return streams

    def hang_up(self) -> None:
        self._said.close()

    async def serve(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        task_status.started()
        while True:
            await anyio.sleep(self.look_s)
            if self._streams:
                self.heard += self._answers.read(1 << 20) or b""

    async def talk(self) -> None:
        while self.talking:
            await self.rest(PAUSE_S / 2)
            self.lines.append(f"please answer t99m{next(self._numbers):03}")
            self._said.write(f"{self.lines[-1]}\n".encode())

    async def until_settled(self) -> None:
        await anyio.sleep(1800)

    def close(self) -> None:
        """Nothing is kept of it but what this object has."""


def places(names: Sequence[str], folder: Path, seed: int, wall: Any) -> dict[str, Any]:
    """Return the people on these platforms; each has a folder for its record."""
    kinds = {"slack": InSlack, "discord": InDiscord, "web": InWeb}
    found = {}
    for name in filter(kinds.__contains__, names):
        found[name] = kinds[name](folder / name, seed=seed, threads=THREADS, pause_s=PAUSE_S)
        found[name].settle_in(wall)
    if "console" in names:
        found["console"] = InConsole(wall)
    return found
