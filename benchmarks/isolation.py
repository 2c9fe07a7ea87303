"""What 196 threads notice of four bad ones: one hangs, one crashes, one floods, and the provider fails all of one.

Two bots stand in one process, one with the bad threads and one without. They take turns being asked, for a second
each, with the same messages at the same moments, so both see the machine in the same moods.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import anyio

from benchmarks.figures import Conditions, Figure, quantile
from benchmarks.rig import Instant, Room, message, running
from bot.config.settings import LlmRetry
from bot.ports.errors import ModelUnavailable
from bot.ports.model import Request
from bot.wiring.core import Core
from tests.bot.llm.herd import gated
from tests.one_model import Only
from threads.background import background_tasks

OTHERS = 196
HUNG, CRASHING, FLOODING, FAILING = 900, 901, 902, 903
SLICE_S = 1.0
RATE = 100
"""Messages a second of the others together."""

AT_ONCE = LlmRetry(max_retries=0)
"""A failure ends its turn, so that it comes as often as it can."""

FLOOD_PAUSE_S, CRASH_PAUSE_S = 0.05, 0.1


class _Poisoned(Instant):
    async def say(self, request: Request) -> str:
        match request.cache_key.split(":")[2]:
            case "C900":
                await anyio.sleep_forever()
            case "C901":
                raise ZeroDivisionError("poison")
            case "C902":
                await anyio.sleep(1)
            case "C903":
                raise ModelUnavailable("529", status=529)
            case _:
                pass
        return await super().say(request)


async def _slice(core: Core, room: Room, n: int) -> list[float]:
    """Let the others speak for a while; return how many milliseconds each waited for its outcome."""
    waits: list[float] = []
    chance = random.Random(n)

    async def one(thread: int, m: int) -> None:
        start = time.perf_counter()
        assert await room.ask(core, message(thread, m)) == "answered"
        waits.append((time.perf_counter() - start) * 1000)

    async with anyio.create_task_group() as people:
        for m in range(int(RATE * SLICE_S)):
            people.start_soon(one, chance.randrange(OTHERS), n * 1000 + m)
            await anyio.sleep(chance.expovariate(RATE))
    return waits


async def _misbehave(core: Core, room: Room, n: int) -> None:
    """Flood, crash and fail until cancelled."""

    async def flood() -> None:
        for m in range(1000):
            await core.orchestrator.receive(message(FLOODING, n * 1000 + m))
            await anyio.sleep(FLOOD_PAUSE_S)

    async def ask(thread: int) -> None:
        for m in range(1000):
            await room.ask(core, message(thread, n * 1000 + m))
            await anyio.sleep(CRASH_PAUSE_S)

    async with anyio.create_task_group() as bad:
        bad.start_soon(flood)
        bad.start_soon(ask, CRASHING)
        bad.start_soon(ask, FAILING)


async def _measure(folder: Path, rounds: int) -> tuple[list[float], list[float]]:
    """Return the p99 of every slice without and with the bad threads."""
    calm, poisoned = Room(), Room()
    without, beside = [], []
    async with (
        running(folder / "calm", calm, Only(gated(Instant(), AT_ONCE))) as one,
        running(folder / "poisoned", poisoned, Only(gated(_Poisoned(), AT_ONCE))) as other,
    ):
        await other.orchestrator.receive(message(HUNG, 0))
        for n in range(-1, rounds):  # the first round only fills the caches
            found = await _slice(one, calm, n)
            async with background_tasks() as bad:
                bad.start_soon(_misbehave, other, poisoned, n)
                hurt = await _slice(other, poisoned, n)
            if n >= 0:
                without.append(quantile(found, 0.99))
                beside.append(quantile(hurt, 0.99))
    return without, beside


def measure(conditions: Conditions) -> Iterator[Figure]:
    rounds = 2 if conditions.quick else 12
    logging.getLogger("bot.wiring.app").setLevel(
        logging.CRITICAL
    )  # each crash would print its traceback into the table
    with TemporaryDirectory(dir=conditions.disk) as folder:
        without, beside = anyio.run(partial(_measure, Path(folder), rounds))
    calm, hurt = median(without), median(beside)
    ratios = sorted(b / a for a, b in zip(without, beside, strict=True))
    note = f"{calm:.1f} -> {hurt:.1f} ms; {rounds} rounds, each from {ratios[0]:.2f} to {ratios[-1]:.2f} x"
    yield Figure(f"p99 of {OTHERS} threads beside 4 bad ones", hurt / calm, "x", at_most=1.1, note=note)
