"""1,000 threads against a provider that is down for five minutes and then serves 25 calls a second, in virtual time.

The real retry and gate beside what one writes first, where every thread retries for itself. Seeded: the same figures
each time, on any machine.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import anyio

from benchmarks.figures import Conditions, Figure, quantile
from bot.config.settings import LlmRetry, RateLimitedRetry
from bot.ports.errors import ProviderError
from bot.ports.model import Completion, Model, Request
from tests.bot.llm.herd import (
    LIMITED,
    LIMITED_20,
    MIXED,
    OUTAGE_S,
    OVERLOADED,
    OVERLOADED_20,
    Herd,
    Provider,
    Refuse,
    gated,
    refusals,
    stampede,
)
from tests.sim.loop import virtual_loop
from threads.model import OnEvent

THREADS = 1000
WIDEST = 40
OUTAGES: dict[str, tuple[Refuse, ...]] = {
    "429": (LIMITED,),
    "529": (OVERLOADED,),
    "429, Retry-After": (LIMITED_20,),
    "529, Retry-After": (OVERLOADED_20,),
    "mixed": MIXED,
}
PATIENT = LlmRetry(max_retries=40, rate_limited=RateLimitedRetry(attempts=40))
"""Retries that outlast the outage, so that every policy answers everybody."""

Pause = Callable[[int, random.Random], float]
NAIVE: dict[str, Pause] = {
    "fixed 1 s": lambda _, __: 1.0,
    "exponential, no jitter": lambda failures, _: min(60.0, 2.0**failures),
    "full jitter": lambda failures, rng: rng.uniform(0, min(60.0, 2.0**failures)),
}


@dataclass(frozen=True, slots=True)
class Alone:
    """Tries again until it is answered, after the pause for so many failures; knows of no other thread."""

    model: Model
    pause: Pause
    rng: random.Random

    @property
    def name(self) -> str:
        return self.model.name

    async def complete(self, request: Request, on_event: OnEvent) -> Completion:
        failures = 0
        while True:
            try:
                return await self.model.complete(request, on_event)
            except ProviderError:
                await anyio.sleep(self.pause(failures, self.rng))
                failures += 1


def run(
    wrap: Callable[[Model], Model], kinds: tuple[Refuse, ...], outage_s: float, every_s: float = 0.0
) -> Herd:
    """Let all threads make their call, one each *every_s* seconds."""

    async def main() -> Herd:
        provider = Provider(refusals(*kinds), outage_s)
        return await stampede(provider, wrap(provider), [n * every_s for n in range(THREADS)])

    return anyio.run(main, backend_options=virtual_loop(1))


def measure(conditions: Conditions) -> Iterator[Figure]:
    outage_s = 60.0 if conditions.quick else OUTAGE_S
    for name, pause in NAIVE.items():
        alone = partial(Alone, pause=pause, rng=random.Random(1))
        yield _figure(f"calls per answer, {name}", run(alone, (LIMITED,), outage_s))
    for name, kinds in OUTAGES.items():
        herd = run(partial(gated, policy=PATIENT, max_parallel=WIDEST, max_wait_s=3600.0), kinds, outage_s)
        yield _figure(f"calls per answer, gate, {name}", herd, at_most=1.2)
        yield Figure("peak a second after recovery", herd.peak(), at_most=WIDEST)
    for name, kinds in OUTAGES.items():
        herd = run(partial(gated, max_parallel=WIDEST), kinds, outage_s, every_s=2 * outage_s / THREADS)
        yield _figure(f"calls per answer, gate as shipped, {name}", herd, at_most=1.2)


def _figure(what: str, herd: Herd, at_most: float | None = None) -> Figure:
    waits = [fate.waited_s for fate in herd.fates]
    note = (
        f"{herd.answered:,} answered, {len(herd.told)} told; after recovery peak {herd.peak()}/s,"
        f" drained in {herd.drained_s:.0f} s; wait p50 {quantile(waits, 0.5):.0f}, p99 {quantile(waits, 0.99):.0f} s"
    )
    return Figure(what, herd.calls_per_answer, at_most=at_most, note=note)
