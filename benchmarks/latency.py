"""What one message waits when nothing else goes on: until it may be acknowledged, and until it is posted.

Right after each message the bare loop takes one, and the plain bot, which keeps the same promises. So all three see
the disk in the same mood. The model answers at once and does not stream: a real one thinks for longer than the start
of a turn takes to the disk, so its first word never waits.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, closing
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import anyio
import anyio.lowlevel

from benchmarks.bare_loop import BareLoop, Sizes
from benchmarks.figures import Conditions, Figure, quantile
from benchmarks.plain_bot import PlainBot
from benchmarks.rig import USAGE, Instant, Room, message, running
from bot.ports.model import Completion, Request
from threads.model import Message, OnEvent, Outgoing, Text, ThreadId

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


async def _measure(folder: Path, messages: int) -> dict[str, list[tuple[float, float, float]]]:
    """Return (ours, bare, plain) in milliseconds for each message, until acknowledged and until posted."""
    room, plain_room, model = _Timed(), _Timed(), _Whole()
    found: dict[str, list[tuple[float, float, float]]] = {"acknowledged": [], "posted": []}

    async def ask(_: list[Mapping[str, str]]) -> str:
        return await model.say(Request("", ()))

    async def post(thread: str, message_id: str, text: str) -> str:
        return await plain_room.post(Outgoing(ThreadId.parse(thread), message_id, text, "reply", message_id))

    async with running(folder / "ours", room, model) as core, AsyncExitStack() as stack:
        bare = stack.enter_context(closing(BareLoop(f"{folder}/bare", Sizes())))
        plain = PlainBot(f"{folder}/plain", ask, post)
        stack.push_async_callback(plain.close)
        for n in range(-THREADS, messages):  # the first one of each thread is not counted
            event = message(n % THREADS, n)
            answer = room.expect(event)
            start = time.perf_counter()
            await core.orchestrator.receive(event)
            acknowledged = time.perf_counter() - start
            assert await answer() == "answered"
            while core.journal.ledger.pending or core.journal.ledger.unlogged:
                await anyio.lowlevel.checkpoint()  # what nobody waits for is done before the next one's turn
            bare_acknowledged, bare_posted = await bare.message(n % THREADS)
            await bare.settled
            plain_start = time.perf_counter()
            await plain.receive(event)
            plain_acknowledged = time.perf_counter() - plain_start
            await plain.settle(event)
            if n >= 0:
                times = acknowledged, bare_acknowledged, plain_acknowledged
                found["acknowledged"].append(_ms(*times))
                posted = room.posted_at - start, bare_posted, plain_room.posted_at - plain_start
                found["posted"].append(_ms(*posted))
    return found


def _ms(ours: float, bare: float, plain: float) -> tuple[float, float, float]:
    return ours * 1000, bare * 1000, plain * 1000


def measure(conditions: Conditions) -> Iterator[Figure]:
    messages = 100 if conditions.quick else 300
    with TemporaryDirectory(dir=conditions.disk) as folder:
        found = anyio.run(partial(_measure, Path(folder), messages))
    for what, times in found.items():
        ours, bare, plain = zip(*times, strict=True)
        yield Figure(f"event to {what}, p50", median(ours), "ms", note=f"{messages} messages")
        yield Figure(f"event to {what}, p99", quantile(ours, 0.99), "ms")
        for other, its in (("bare loop", bare), ("bot with the same promises", plain)):
            ratio = median(a / b for a, b in zip(ours, its, strict=True))
            note = f"its p50 {median(its):.2f}, p99 {quantile(its, 0.99):.1f} ms"
            yield Figure(f"  over the {other}, p50", ratio, "x", at_most=1.5, note=note)
