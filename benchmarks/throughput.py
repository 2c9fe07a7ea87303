"""How many messages a second, at what cost each, when 1,000 threads talk at once.

Each thread sends its next message when the one before is settled, as people do.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import anyio

from benchmarks.bare_loop import Sizes, run_bare
from benchmarks.figures import Conditions, Figure
from benchmarks.rig import Instant, Room, message, running
from benchmarks.stopwatch import Cost, Stopwatch
from bot.wiring.core import Core


async def converse(core: Core, room: Room, threads: range, messages: int) -> None:
    """Let every thread send that many messages, one after the other."""

    async def one(thread: int) -> None:
        for n in range(messages):
            assert await room.ask(core, message(thread, n)) == "answered"

    async with anyio.create_task_group() as people:
        for thread in threads:
            people.start_soon(one, thread)


async def _ours(data: Path, threads: int, messages: int) -> Cost:
    room = Room()
    async with running(data, room, Instant()) as core:
        watch = Stopwatch()
        await converse(core, room, range(threads), messages)
        return watch.read()


def measure(conditions: Conditions) -> Iterator[Figure]:
    threads, messages, rounds = (300, 5, 1) if conditions.quick else (1000, 10, 2)
    ours, bare = [], []
    for _ in range(rounds):
        with TemporaryDirectory(dir=conditions.disk) as folder:
            ours.append(anyio.run(partial(_ours, Path(folder) / "ours", threads, messages)))
            bare.append(run_bare(f"{folder}/bare", threads, messages, Sizes()))
    count = threads * messages
    wall, cpu = median(cost.wall for cost in ours), median(cost.cpu for cost in ours)
    bare_wall, bare_cpu = median(cost.wall for cost in bare), median(cost.cpu for cost in bare)
    note = f"{threads:,} threads x {messages}, {rounds} rounds"
    yield Figure("messages", count / wall, "/s", at_least=500, note=note)
    yield Figure("CPU a message", cpu / count * 1000, "ms", at_most=3)
    yield Figure("wall, over the bare loop", wall / bare_wall, "x", at_most=1.5)
    yield Figure(
        "CPU, over the bare loop", cpu / bare_cpu, "x", note=f"{bare_cpu / count * 1000:.2f} ms bare"
    )
