"""What one message waits when nothing else goes on: until it may be acknowledged, and until it is posted.

Right after each message its own disk operations are replayed bare, so both see the disk in the same mood. The replay
has the same freedom: what went to the journal and what went to other files before the post go side by side.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import anyio
import anyio.lowlevel

from benchmarks.bare import Job, Recorder, Replay
from benchmarks.figures import Conditions, Figure, quantile
from benchmarks.rig import Instant, Room, message, running
from threads.model import Outgoing

THREADS = 10
LINES = ("received", "posted")


class _Timed(Room):
    """Notes when the post went out, and how many disk jobs were done by then."""

    def __init__(self, disk: Recorder) -> None:
        super().__init__()
        self.posted_at, self.jobs = 0.0, 0
        self._disk = disk

    async def post(self, outgoing: Outgoing) -> str:
        self.posted_at, self.jobs = time.perf_counter(), len(self._disk.jobs)
        return await super().post(outgoing)


async def _measure(folder: Path, messages: int) -> dict[str, list[tuple[float, float]]]:
    """Return (ours, bare) in milliseconds for each message, until acknowledged and until posted."""
    disk = Recorder()
    room, replay = _Timed(disk), Replay(folder / "ours", folder / "bare")
    found: dict[str, list[tuple[float, float]]] = {"acknowledged": [], "posted": []}
    with ThreadPoolExecutor(1) as beside:
        async with running(folder / "ours", room, Instant(), recorder=disk) as core:
            replay.run(replay.here(disk.jobs))
            for n in range(-THREADS, messages):  # the first one of each thread is not counted
                before, event = len(disk.jobs), message(n % THREADS, n)
                answer = room.expect(event)
                start = time.perf_counter()
                await core.orchestrator.receive(event)
                acknowledged = time.perf_counter() - start
                assert await answer() == "answered"
                while core.journal.ledger.pending or core.journal.ledger.unlogged:
                    await anyio.lowlevel.checkpoint()  # what nobody waits for is done before the replay
                jobs = disk.jobs[before:]
                until = room.jobs - before
                bare = _bare(replay, beside, [jobs[:1], jobs[1:until], jobs[until:]])
                if n >= 0:
                    found["acknowledged"].append((acknowledged * 1000, bare[0]))
                    found["posted"].append(((room.posted_at - start) * 1000, bare[0] + bare[1]))
    return found


def _bare(replay: Replay, beside: Executor, parts: list[list[Job]]) -> list[float]:
    """Replay a message part by part; return how many milliseconds each part took."""
    took = []
    for part in parts:
        journal = replay.here(job for job in part if _is_journal(job))
        others = replay.here(job for job in part if not _is_journal(job))
        start = time.perf_counter()
        if others and journal:
            written = beside.submit(replay.run, journal)
            replay.run(others)
            written.result()
        else:
            replay.run(journal or others)
        took.append((time.perf_counter() - start) * 1000)
    return took


def _is_journal(job: Job) -> bool:
    return any("journal.jsonl" in path for _, path, _ in job)


def measure(conditions: Conditions) -> Iterator[Figure]:
    messages = 100 if conditions.quick else 300
    with TemporaryDirectory(dir=conditions.disk) as folder:
        found = anyio.run(partial(_measure, Path(folder), messages))
    for what, pairs in found.items():
        ours, bare = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        note = f"bare loop p50 {median(bare):.2f}, p99 {quantile(bare, 0.99):.1f} ms"
        yield Figure(f"event to {what}, p50", median(ours), "ms", note=note)
        yield Figure(f"event to {what}, p99", quantile(ours, 0.99), "ms")
        yield Figure(
            "  of which ours, p50", median(a - b for a, b in pairs), "ms", note=f"{messages} messages"
        )
