"""What a thread costs in memory: one that fell silent and left, and one whose actor is still there.

Each is a fresh process. Threads come in waves, so that the difference holds what they leave and not what a crowd of
simultaneous turns needs for a moment. Memory that the warm-up freed is used again and not seen to grow, so a second
process each asks tracemalloc too: the larger of the two is the safer word.
"""

from __future__ import annotations

import gc
import json
import sys
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from benchmarks.child import ask, resident
from benchmarks.figures import Conditions, Figure
from benchmarks.rig import LIMITS, Instant, Room, message, running
from bot.ports.model import Request
from bot.wiring.core import Core

WAVE = 50
WARM_UP = 200
TURNS = 3
IDLE_S = 0.01


class _Talker(Instant):
    """Never says the same twice, so that no two threads share their texts."""

    async def say(self, request: Request) -> str:
        return f"That was {len(request.messages)} for {request.cache_key}. " * 3


async def _wave(core: Core, room: Room, threads: range) -> None:
    async def one(thread: int) -> None:
        for n in range(TURNS):
            await room.ask(core, message(thread, n, f"question {n} of {thread}: what do you make of this?"))

    async with anyio.create_task_group() as people:
        for thread in threads:
            people.start_soon(one, thread)


async def _measure(data: Path, threads: int, *, evict: bool, trace: bool) -> dict[str, float]:
    room = Room()
    limits = replace(LIMITS, idle_timeout_s=IDLE_S) if evict else LIMITS
    async with running(data, room, _Talker(), limits=limits) as core:

        async def serve(span: range) -> None:
            for start in range(span.start, span.stop, WAVE):
                await _wave(core, room, range(start, min(start + WAVE, span.stop)))
            while evict and len(core.registry):
                await anyio.sleep(IDLE_S)

        await serve(range(WARM_UP))
        gc.collect()
        if trace:
            tracemalloc.start()
        before, held = resident(), len(core.registry)
        await serve(range(WARM_UP, WARM_UP + threads))
        gc.collect()
        grown = resident() - before
        assert len(core.registry) - held == (0 if evict else threads)
        return {"resident": grown / threads, "traced": tracemalloc.get_traced_memory()[0] / threads}


def measure(conditions: Conditions) -> Iterator[Figure]:
    threads = 200 if conditions.quick else 2000
    for state, what, limit in (("idle", "idle, evicted thread", 20), ("active", "active thread", 100)):
        kilobytes = {}
        for way, count in (
            ("plain", threads),
            ("traced", max(200, threads // 4)),
        ):  # tracing is slow, and exact
            with TemporaryDirectory(dir=conditions.disk) as folder:
                found = ask("memory", state, way, count, folder)
            kilobytes[way] = found["resident" if way == "plain" else "traced"] / 1000
        note = f"{kilobytes['traced']:.1f} KB by tracemalloc; {threads:,} threads x {TURNS} turns"
        yield Figure(f"resident memory of an {what}", kilobytes["plain"], "KB", at_most=limit, note=note)


def main() -> None:
    state, way, threads, folder = sys.argv[1:]
    run = partial(_measure, Path(folder), int(threads), evict=state == "idle", trace=way == "traced")
    print(json.dumps(anyio.run(run)))


if __name__ == "__main__":
    main()
