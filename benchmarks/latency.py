"""What one message waits when nothing else goes on: until it may be acknowledged, and until it is posted.

Right after each message the bare loop takes one, so both see the disk in the same mood. The model answers at once and
does not stream: a real one thinks for longer than the start of a turn takes to the disk, so its first word never
waits.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import anyio
import anyio.lowlevel

from benchmarks.bare_loop import BareLoop, Sizes
from benchmarks.figures import Conditions, Figure, quantile
from benchmarks.rig import USAGE, Instant, Room, message, running
from bot.ports.model import Completion, Request
from threads.model import Message, OnEvent, Outgoing, Text

THREADS = 10


class _Timed(Room):
    """Notes when the post went out."""

    posted_at = 0.0

    async def post(self, outgoing: Outgoing) -> str:
        self.posted_at = time.perf_counter()
        return await super().post(outgoing)


class _Whole(Instant):
    async def complete(self, request: Request, on_event: OnEvent) -> Completion:  # noqa: ARG002 - nothing to show
        text = await self.say(request)
        return Completion(Message("assistant", (Text(text),), model=self.name), USAGE, "end")


async def _measure(folder: Path, messages: int) -> dict[str, list[tuple[float, float]]]:
    """Return (ours, bare) in milliseconds for each message, until acknowledged and until posted."""
    room = _Timed()
    found: dict[str, list[tuple[float, float]]] = {"acknowledged": [], "posted": []}
    async with running(folder / "ours", room, _Whole()) as core:
        with closing(BareLoop(f"{folder}/bare", Sizes())) as bare:
            for n in range(-THREADS, messages):  # the first one of each thread is not counted
                event = message(n % THREADS, n)
                answer = room.expect(event)
                start = time.perf_counter()
                await core.orchestrator.receive(event)
                acknowledged = time.perf_counter() - start
                assert await answer() == "answered"
                while core.journal.ledger.pending or core.journal.ledger.unlogged:
                    await (
                        anyio.lowlevel.checkpoint()
                    )  # what nobody waits for is done before the bare loop's turn
                bare_acknowledged, bare_posted = await bare.message(n % THREADS)
                await bare.settled
                if n >= 0:
                    found["acknowledged"].append((acknowledged * 1000, bare_acknowledged * 1000))
                    found["posted"].append(((room.posted_at - start) * 1000, bare_posted * 1000))
    return found


def measure(conditions: Conditions) -> Iterator[Figure]:
    messages = 100 if conditions.quick else 300
    with TemporaryDirectory(dir=conditions.disk) as folder:
        found = anyio.run(partial(_measure, Path(folder), messages))
    for what, pairs in found.items():
        ours, bare = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        note = f"bare loop p50 {median(bare):.2f}, p99 {quantile(bare, 0.99):.1f} ms"
        yield Figure(f"event to {what}, p50", median(ours), "ms", note=note)
        yield Figure(f"event to {what}, p99", quantile(ours, 0.99), "ms")
        ratio = median(a / b for a, b in pairs)
        yield Figure("  over the bare loop, p50", ratio, "x", at_most=1.5, note=f"{messages} messages")
