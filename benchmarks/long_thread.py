"""Does a turn cost more when the conversation is long: turn 500 against turn 10.

Threads of both lengths stand on the disk as the bot itself would have left them, and take turns being asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import anyio

from benchmarks.figures import Conditions, Figure
from benchmarks.rig import Instant, Room, inline, message, running
from benchmarks.stopwatch import Cost, Stopwatch
from bot.agent.prompt.user_message import user_message
from threads.model import Message, Text
from threads.store.context import ContextFile
from threads.store.data_folder import thread_folder
from threads.store.disk import PosixDisk, replace_file

SHORT, LONG = 10, 500
OVERHEAD = 389
"""Bytes of a turn in the file that are not its text: fields, checksums and the heading of a message."""

TURNS = 8
"""Turns measured in each thread: half of them before turn 10 or 500, half after."""


async def _prepare(data: Path, thread: int, turns: int, text: str) -> None:
    messages = []
    for n in range(turns):
        messages += [
            user_message(message(thread, n, text)),
            Message("assistant", (Text(text),), model=Instant.name),
        ]
    folder, disk = thread_folder(data, message(thread, 0).thread), PosixDisk()
    await ContextFile(disk, folder, inline, partial(inline, replace_file, disk)).save(messages)


async def _measure(data: Path, size: int, pairs: int) -> tuple[list[Cost], list[Cost]]:
    """Return what each turn near the 10th and near the 500th took, at *size* bytes a turn."""
    room, text = Room(), "x" * (size // 2)
    costs: tuple[list[Cost], list[Cost]] = ([], [])
    for thread in range(2 * pairs):
        await _prepare(data, thread, (SHORT, LONG)[thread % 2] - TURNS // 2, text)
    async with running(data, room, Instant(text)) as core:
        for n in range(-1, TURNS):  # the first turn loads the conversation and is not counted
            for thread in range(2 * pairs):
                watch = Stopwatch()
                assert await room.ask(core, message(thread, LONG + n, text)) == "answered"
                if n >= 0:
                    costs[thread % 2].append(watch.read())
    return costs


def _replacement(disk: Path, size: int) -> float:
    """Return the milliseconds that replacing a file of *size* bytes takes, in the median."""
    took = []
    with TemporaryDirectory(dir=disk) as folder:
        path, data = Path(folder) / "context.jsonl", bytes(size)
        for _ in range(40):
            watch = Stopwatch()
            replace_file(PosixDisk(), path, data)
            took.append(watch.read().wall * 1000)
    return median(took)


def measure(conditions: Conditions) -> Iterator[Figure]:
    for size in (200, 2000):
        with TemporaryDirectory(dir=conditions.disk) as folder:
            short, long = anyio.run(partial(_measure, Path(folder), size, 4 if conditions.quick else 12))
        cpu = [median(cost.cpu for cost in costs) * 1000 for costs in (short, long)]
        wall = [median(cost.wall for cost in costs) * 1000 for costs in (short, long)]
        what = f"turn {LONG} over turn {SHORT}, {size} B a turn"
        note = "{:.2f} -> {:.2f} ms"
        extra, bare = wall[1] - wall[0], _replacement(Path(conditions.disk), LONG * (size + OVERHEAD))
        beyond = f"turn {LONG} beyond turn {SHORT}, {size} B a turn, over a bare replacement"
        yield Figure(beyond, extra / bare, "x", at_most=1.1, note=f"{extra:.2f} ms; bare {bare:.2f} ms")
        yield Figure(f"{what}, CPU", cpu[1] / cpu[0], "x", at_most=1.3, note=note.format(*cpu))
        yield Figure(f"{what}, wall", wall[1] / wall[0], "x", at_most=1.3, note=note.format(*wall))
