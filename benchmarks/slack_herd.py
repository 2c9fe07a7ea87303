"""1,000 threads on Slack that answer at once, in virtual time: who waits for how long, beside a perfect scheduler.

The whole bot, from an event to the post, over a Slack without sockets. A model answers at once, so an answer waits
for Slack's rates alone. The same figures each time, on any machine.
"""

from __future__ import annotations

import gc
import json
import logging
import sys
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from benchmarks.child import ask
from benchmarks.figures import Conditions, Figure, quantile
from benchmarks.rig import Instant
from bot.config.settings import Recovery
from bot.wiring.core import open_core
from tests.fakes.slack import FakeSlack
from tests.sim.loop import virtual_loop
from tests.tool_context import file_tools, make_toolbox
from tests.transports.slack.virtual import LATENCY_S, VirtualWeb, virtual_slack
from tests.world import core_parts, inline
from threads.background import background_tasks
from threads.model import TurnLimits
from threads.store.disk import PosixDisk
from threads.store.mark_file import MarkFile
from transports.slack.api.rate_limits import rate_of
from transports.slack.api.web_api import Identity, WebApi
from transports.slack.client import Options, Slack, _Connection

POST = "chat.postMessage"

THREADS = 1_000

HERDS: dict[str, Callable[[int], str]] = {
    "50 channels": lambda n: f"C{n % 50}",
    "1,000 channels": lambda n: f"C{n}",
    "a tenth in one channel": lambda n: "C0" if n % 10 == 0 else f"C{n}",
    "all in direct messages": lambda n: f"DU{n}",
}

AT_MOST = 1.2

REST_S = 1_200.0
"""After that no actor and no name is left in memory."""


@dataclass(frozen=True, slots=True)
class Herd:
    """How long each thread waited, in the order of their questions, and the calls to Slack by method."""

    waits: list[float]
    calls: Counter[str]
    refused: int


class Web(VirtualWeb):
    async def identity(self) -> Identity:
        return Identity("T1", "UBOT", "threadfast", "BBOT", frozenset())

    async def until_refused(self) -> None:
        await anyio.sleep_forever()

    async def ping(self) -> None: ...


class Edge(Slack):
    """The transport, with a link that hands over what the fake delivers."""

    slack: FakeSlack
    web: Web

    @asynccontextmanager
    async def _open_api(self) -> AsyncIterator[WebApi]:
        yield self.web

    async def _run_link(self, connection: _Connection, connected: Callable[[], None]) -> None:
        self._reachability.found()
        connected()
        connection.intake.missed()
        await anyio.sleep_forever()

    async def hear(self, user: str, channel: str, text: str) -> str:
        """Let somebody ask, and return the ts once the question is durable."""
        said = self.slack.say(user, channel, text)
        assert self._connection is not None
        for event in said.events:
            await self._connection.intake.take("event", event.payload)
        return said.ts


@asynccontextmanager
async def _bot(data: Path) -> AsyncIterator[Edge]:
    slack = virtual_slack()
    slack.sockets.offline, slack.sockets.remember = "drop", False
    disk = PosixDisk()

    def now() -> datetime:
        return datetime.fromtimestamp(slack.wall(), UTC)

    async def recent(*_: object) -> list[object]:
        return []

    marks = MarkFile(disk, data / "slack-marks.json")
    edge = Edge(Options("", ""), data, disk=disk, offload=inline, now=now, recent=recent, marks=marks)
    edge.slack, edge.web = slack, Web(slack)
    toolbox = make_toolbox(file_tools(inline))
    limits, recovery = TurnLimits(), Recovery()
    parts = core_parts(
        data, edge, Instant(), toolbox, disk=disk, offload=inline, now=now, limits=limits, recovery=recovery
    )
    async with background_tasks() as tasks:
        core = await open_core(tasks, parts)
        tasks.start_soon(edge.serve, core.orchestrator.receive)
        await edge.reconnected()
        yield edge


async def _wave(edge: Edge, place: Callable[[int], str], during: Callable[[], None] = lambda: None) -> Herd:
    """Let all threads be asked at once, and wait until all have their answer."""
    slack, asked = edge.slack, list[tuple[str, str]]()
    slack.calls.clear()
    for number in range(THREADS):
        user, channel = f"U{number}", place(number)
        slack.users.get(user) or slack.user(user)
        if channel not in slack.channels:
            more = {"kind": "im", "user": user} if channel[0] == "D" else {}
            slack.channel(channel, **more)
    began = anyio.current_time()
    for number in range(THREADS):
        channel = place(number)
        asked.append((channel, await edge.hear(f"U{number}", channel, "<@UBOT> hello")))

    def answered() -> dict[str, str]:
        return {post.thread_ts: post.ts for post in slack.posts() if post.thread_ts}

    looked = False
    while len(posts := answered()) < THREADS:
        await anyio.sleep(5)
        if not looked and anyio.current_time() > began + 60:
            looked = True
            during()
        assert anyio.current_time() < began + 3_000, f"only {len(posts)} were answered"
    waits = [float(posts[ts]) - 1.7e9 - began for _, ts in asked]
    return Herd(waits, Counter(call.method for call in slack.calls), len(slack.limited))


def least(places: Sequence[str]) -> list[float]:
    """Return when no scheduler could have posted more: so many a minute, and one a second in a channel."""
    counts, found, second = Counter(places).values(), list[float](), 0
    for number in range(len(places)):
        while sum(min(count, second + 1) for count in counts) <= number:
            second += 1
        found.append(max(60.0 * (number // rate_of(POST).per_minute), second) + LATENCY_S)
    return found


async def _herd(place: Callable[[int], str]) -> Herd:
    with TemporaryDirectory() as folder:
        async with _bot(Path(folder)) as edge:
            await anyio.sleep(120)  # what a start looks up is over
            return await _wave(edge, place)


async def _memory() -> dict[str, float]:
    """Return the bytes that the bot holds before, during and after two herds; those of the fake do not count."""
    held: dict[str, float] = {}
    ours = (tracemalloc.Filter(False, "*/tests/*"), tracemalloc.Filter(False, tracemalloc.__file__))

    def look(name: str) -> None:
        gc.collect()
        held[name] = sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces(ours).traces)

    with TemporaryDirectory() as folder:
        async with _bot(Path(folder)) as edge:
            tracemalloc.start()
            look("before")
            for number in (1, 2):
                await _wave(edge, HERDS["50 channels"], partial(look, f"during {number}"))
                for channel in edge.slack.channels.values():
                    channel.messages.clear()
                    channel.replies.clear()
                await anyio.sleep(REST_S)
                look(f"after {number}")
    return held


def measure(conditions: Conditions) -> Iterator[Figure]:
    for name in HERDS:
        yield from _figures(name)
    if not conditions.quick:
        held = ask("slack_herd", "memory")
        per_thread = (held["during 2"] - held["after 1"]) / THREADS / 1e3
        yield Figure("memory of a waiting thread", per_thread, "KB")
        kept = (held["after 2"] - held["after 1"]) / THREADS / 1e3
        note = "in caches of 4,096 to 10,000 threads"
        yield Figure("  what each thread leaves when it rests", kept, "KB", at_most=5, note=note)


def _figures(name: str) -> Iterator[Figure]:
    place = HERDS[name]
    herd = anyio.run(_herd, place, backend_options=virtual_loop(1))
    perfect = least([place(number) for number in range(THREADS)])
    p50, p99 = (quantile(herd.waits, share) for share in (0.5, 0.99))
    ratio = p99 / quantile(perfect, 0.99)
    calls = ", ".join(f"{count:,} {method}" for method, count in herd.calls.most_common())
    note = (
        f"p50 {p50:.0f}, p99 {p99:.0f}, max {max(herd.waits):.0f} s; least {quantile(perfect, 0.5):.0f},"
        f" {quantile(perfect, 0.99):.0f}, {perfect[-1]:.0f} s"
    )
    yield Figure(f"p99 of waiting to the least, {name}", ratio, "x", at_most=AT_MOST, note=note)
    before = sum(wait + 5 < max(herd.waits[:number], default=0) for number, wait in enumerate(herd.waits))
    yield Figure("  answered 5 s before one that came first", before, note=f"{herd.refused} refused; {calls}")


if __name__ == "__main__":
    logging.disable(logging.INFO)
    assert sys.argv[1:] == ["memory"]
    print(json.dumps(anyio.run(_memory, backend_options=virtual_loop(1))))
