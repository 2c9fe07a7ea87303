"""What open pages cost the turns beside them: 50 running turns, with and without 200 pages that show them.

The pages are in a process of their own. Some read nothing. Both runs take turns in one process, over one bot each, so
both see the machine in the same moods; what counts is the ratio of their times, and of their CPU.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import anyio
import anyio.to_thread
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from benchmarks.child import ROOT, ask, resident
from benchmarks.figures import Conditions, Figure, quantile
from benchmarks.rig import USAGE, Instant, running
from bot.ports.model import Completion, Request
from bot.wiring.core import Core
from tests.transports.web.alone import transport
from threads.background import background_tasks
from threads.model import (
    Author,
    Incoming,
    Message,
    OnEvent,
    Text,
    TextDelta,
    ThreadId,
    TurnEvent,
    TurnSettled,
)
from transports.web.client import WebTransport
from transports.web.sessions import Person

TURNS, PAGES, DEAF = 50, 200, 20
PACE_S = 0.03
PIECE = re.compile(rb'"op":"delta","text":"at=(\d+) this is piece (\d+) ')
SETTLE_S = 2.0


class Slow(Instant):
    """A model that speaks at the pace of a real one. Each piece says when it was made."""

    def __init__(self, deltas: int) -> None:
        super().__init__()
        self._deltas = deltas

    async def complete(self, _: Request, on_event: OnEvent) -> Completion:
        pieces = []
        for number in range(self._deltas):
            pieces.append(f"at={time.monotonic_ns()} this is piece {number} ")
            await on_event(TextDelta(pieces[-1]))
            await anyio.sleep(PACE_S)
        return Completion(Message("assistant", (Text("".join(pieces)),), model=self.name), USAGE, "end")


class Timed:
    """Notes when turns end, and shows them on the page."""

    def __init__(self, web: WebTransport) -> None:
        self._web, self._ends = web, dict[str, anyio.Event]()
        self.name, self.capabilities = web.name, web.capabilities
        self.post, self.find, self.serve, self.reconnected = web.post, web.find, web.serve, web.reconnected

    def show(self, thread: ThreadId, message_id: str, event: TurnEvent) -> None:
        self._web.show(thread, message_id, event)
        if isinstance(event, TurnSettled) and (end := self._ends.pop(message_id, None)):
            end.set()

    async def ask(self, core: Core, incoming: Incoming) -> float:
        end = self._ends[incoming.id] = anyio.Event()
        start = time.perf_counter()
        await core.orchestrator.receive(incoming)
        await end.wait()
        return time.perf_counter() - start


def place(number: int) -> ThreadId:
    """Return a thread; each person has a few."""
    return ThreadId("web", "", f"p{number % 10}", f"t{number}")


async def _round(core: Core, room: Timed, count: int) -> tuple[list[float], float]:
    """Return the seconds that each turn took, and the CPU of all of them."""
    took, cpu = list[float](), time.process_time()

    async def one(number: int) -> None:
        thread = place(number)
        message = f"{count:08x}-{number:04x}"
        at = datetime.now(UTC).isoformat()
        took.append(await room.ask(core, Incoming(message, thread, Author(thread.channel), "please", at)))

    async with anyio.create_task_group() as tasks:
        for number in range(TURNS):
            tasks.start_soon(one, number)
    return took, time.process_time() - cpu


@asynccontextmanager
async def _bot(data: Path, deltas: int) -> AsyncIterator[tuple[Core, Timed, WebTransport]]:
    data.mkdir()
    web = transport(data)
    room = Timed(web)
    async with running(data, room, Slow(deltas)) as core, background_tasks() as tasks:
        tasks.start_soon(web.serve, core.orchestrator.receive)
        await web.reconnected()
        yield core, room, web


@asynccontextmanager
async def _pages(web: WebTransport) -> AsyncIterator[Process]:
    """Open the pages from another process, and yield it once all are open."""
    cookies = {}
    for person in {place(number).channel for number in range(TURNS)}:
        cookies[person] = await web.sessions.enter(web.sessions.link(Person(id=person)))
    given = json.dumps({"port": web.address.port, "name": web.address.cookie, "cookies": cookies})
    command = [sys.executable, "-m", "benchmarks.pages", "read", given]
    async with await anyio.open_process(command, cwd=ROOT, stderr=None) as process:
        lines = BufferedByteReceiveStream(process.stdout)
        assert await lines.receive_until(b"\n", 100) == b"open"
        process.lines = lines
        yield process
        if process.returncode is None:
            process.kill()


async def _measure(folder: Path, rounds: int, deltas: int) -> dict[str, float]:
    alone, beside, cpus = [], [], [[], []]
    async with (
        _bot(folder / "alone", deltas) as (core, room, _),
        _bot(folder / "beside", deltas) as (other, shown, web),
    ):
        for warm in ((core, room), (other, shown)):
            await _round(*warm, 0)
        before = resident()
        async with _pages(web) as process:
            grown = resident() - before
            for number in range(1, rounds + 1):
                took, cpu = await _round(core, room, number)
                alone += took
                cpus[0].append(cpu)
                took, cpu = await _round(other, shown, number)
                beside += took
                cpus[1].append(cpu)
            grown_later = resident() - before
            await anyio.sleep(SETTLE_S)
            await process.stdin.send(b"end\n")
            found = json.loads(await process.lines.receive_until(b"\n", 1_000_000))
    return {
        "alone": median(alone) * 1e3,
        "beside": median(beside) * 1e3,
        "median": median(beside) / median(alone),
        "worst": max(beside) / max(alone),
        "cpu_alone": median(cpus[0]),
        "cpu_beside": median(cpus[1]),
        "kb": grown / PAGES / 1e3,
        "kb_later": grown_later / PAGES / 1e3,
        **found,
    }


async def _read(port: int, name: str, cookies: dict[str, str]) -> None:
    """Be the pages: read and note how old each first text, and each piece, is."""
    first, ages, opened = list[float](), list[float](), anyio.Event()
    waiting = PAGES

    async def page(number: int) -> None:
        nonlocal waiting
        thread = place(number % TURNS)
        head = f"GET /api/events?thread={thread.root} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            await stream.send(f"{head}Cookie: {name}={cookies[thread.channel]}\r\n\r\n".encode())
            assert b"200 OK" in await stream.receive()
            waiting -= 1
            if not waiting:
                opened.set()
            if number < DEAF:
                await anyio.sleep_forever()
            while True:
                data, now = await stream.receive(), time.monotonic_ns()
                if b'"snapshot"' in data:
                    continue
                for at, piece in PIECE.findall(data):
                    ages.append((now - int(at)) / 1e6)
                    if piece == b"0":
                        first.append(ages[-1])

    async with background_tasks() as tasks:
        for number in range(PAGES):
            tasks.start_soon(page, number)
        await opened.wait()
        await anyio.sleep(SETTLE_S)
        print("open", flush=True)
        await anyio.to_thread.run_sync(sys.stdin.readline)
    found = {"first": median(first), "first99": quantile(first, 0.99), "age": median(ages)}
    print(json.dumps({**found, "pieces": len(ages)}), flush=True)


def measure(conditions: Conditions) -> Iterator[Figure]:
    rounds, deltas = (2, 40) if conditions.quick else (6, 100)
    with TemporaryDirectory(dir=conditions.disk) as folder:
        found = ask("pages", "measure", folder, rounds, deltas)
    turns = f"{TURNS} turns of {deltas} pieces, {PAGES} pages, {DEAF} of them deaf"
    what = f"a turn beside {PAGES} pages, to one without"
    yield Figure(
        what,
        found["median"],
        "x",
        at_most=1.1,
        note=f"{found['alone']:.0f} -> {found['beside']:.0f} ms; {turns}",
    )
    yield Figure("  the slowest turn", found["worst"], "x")
    yield Figure("  CPU of a round, without", found["cpu_alone"], "s")
    yield Figure(
        "  CPU of a round, with", found["cpu_beside"], "s", note=f"{found['pieces']:,.0f} pieces were read"
    )
    note = f"p50 {found['first']:.0f} ms; any piece {found['age']:.0f} ms"
    yield Figure("age of the first text on a page, p99", found["first99"], "ms", at_most=100, note=note)
    note = f"{found['kb_later']:.0f} KB after the turns, their logs included"
    yield Figure("resident memory of a page", found["kb"], "KB", at_most=200, note=note)


def main() -> None:
    if sys.argv[1] == "read":
        given = json.loads(sys.argv[2])
        anyio.run(partial(_read, **given))
        return
    folder, rounds, deltas = sys.argv[2:]
    print(json.dumps(anyio.run(_measure, Path(folder), int(rounds), int(deltas))))


if __name__ == "__main__":
    main()
