"""What an event from Discord costs, beside a bare discord.py client in the same run.

A fake Discord in a process of its own sends messages over a real gateway, as fast as they are read; each reader runs
in its own process, in turns:

bare      discord.Client with an ``on_message`` that counts
chatter   our whole bot, in a guild where people talk to each other
durable   our transport, one message in ten says something to the bot and is made durable in a journal on disk
answered  our whole bot, one message in a hundred is a question and is answered in a thread by a trivial model

Counted is the CPU between the first event and the last, which is taken after all others; of what is answered, until
the last answer is out.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import anyio
import anyio.to_thread

from benchmarks.child import ask, import_cost, import_figures, serving
from benchmarks.figures import Conditions, Figure
from threads.background import background_tasks

RATIO = 3.0
FIRST, LAST = "the first", "the last"
TO_US = {"bare": 0, "chatter": 0, "durable": 10, "answered": 100}
"""One of how many events is for the bot; none if 0."""

IMPORTS = {
    "bare": "import aiohttp",
    "SDK": "import discord",
    "ours": "import transports.discord.client",
}


def measure(conditions: Conditions) -> Iterator[Figure]:
    rounds, events = (1, 3_000) if conditions.quick else (5, 8_000)
    found: dict[str, list[dict[str, float]]] = {reader: [] for reader in TO_US}
    for number in range(rounds + 1):
        for reader, figures in found.items():
            with (
                serving("discord_events", events, TO_US[reader]) as port,
                TemporaryDirectory(dir=conditions.disk) as folder,
            ):
                figure = ask("discord_events", "read", reader, port, folder)
            if number:  # the first round only fills the caches
                figures.append({name: value / events for name, value in figure.items()})
    us = {reader: median(figure["us"] for figure in figures) for reader, figures in found.items()}
    per_s = {reader: 1 / median(figure["s"] for figure in figures) for reader, figures in found.items()}
    note = f"median of {rounds}; {events} events"
    yield Figure("CPU per event, chatter", us["chatter"], "us", note=note)
    yield Figure("  bare discord.py", us["bare"], "us")
    yield Figure("  to bare discord.py", us["chatter"] / us["bare"], "x", at_most=RATIO)
    yield Figure("events taken, chatter", per_s["chatter"], "/s", note=f"bare {per_s['bare']:,.0f}")
    yield Figure("  bare discord.py to ours", per_s["bare"] / per_s["chatter"], "x", at_most=RATIO)
    for reader, what in (("durable", "message made durable"), ("answered", "question answered in a thread")):
        each = (us[reader] - us["chatter"]) * TO_US[reader]
        yield Figure(f"CPU per {what}", each / 1e3, "ms", note=f"among {TO_US[reader]} events")
    yield from import_figures("discord_events", IMPORTS, 1 if conditions.quick else 5)


async def _serve(events: int, to_us: int) -> None:
    """Send so many events to the reader that connects, between a first and a last message to the bot itself."""
    from tests.fakes.discord import BOT, CHANNEL, U1, U2, FakeDiscord  # noqa: PLC0415  a reader does without

    async with FakeDiscord() as discord:
        print(discord.url.rpartition(":")[2], flush=True)
        await discord.until(lambda: discord.ready, 60)
        await anyio.sleep(1)  # what a reader does when it is ready is not counted
        await discord.say(U2, discord.dm(U2), FIRST)
        await anyio.sleep(0.5)
        for number in range(events):  # nothing is sent before the next await
            to_bot = to_us and number % to_us == 0
            discord.say(U1, CHANNEL, f"<@{BOT}> and you?" if to_bot else "please have a look at the build")
        asked = -(-events // to_us) if to_us else 0
        await discord.say(U2, discord.dm(U2), f"{LAST} {time.perf_counter()} {asked}")
        await anyio.sleep_forever()


@dataclass
class _Gauge:
    """CPU and time from the first event to the last, which says when they began, and how many were for the bot."""

    done: anyio.Event = field(default_factory=anyio.Event)
    cpu: float = 0.0
    began: float = 0.0
    asked: int = 0

    def saw(self, text: str) -> None:
        if text == FIRST:
            self.cpu = time.process_time()
        elif text.startswith(LAST):
            began, asked = text.removeprefix(LAST).split()
            self.began, self.asked = float(began), self.asked + int(asked)
        else:
            self.asked -= 1  # the last one may overtake those in another channel
        if self.began and not self.asked:
            self.done.set()

    def read(self) -> dict[str, float]:
        return {"us": (time.process_time() - self.cpu) * 1e6, "s": time.perf_counter() - self.began}


async def _read(reader: str, port: int, data: Path) -> dict[str, float]:
    gauge = _Gauge()
    async with READERS[reader](f"127.0.0.1:{port}", gauge, data) as finish:
        await gauge.done.wait()
        await finish()
        return gauge.read()


Finish = Callable[[], Awaitable[None]]


@asynccontextmanager
async def _bare(where: str, gauge: _Gauge, _: Path) -> AsyncIterator[Finish]:
    import discord  # noqa: PLC0415
    from discord.gateway import DiscordWebSocket  # noqa: PLC0415
    from discord.http import Route  # noqa: PLC0415
    from yarl import URL  # noqa: PLC0415

    from tests.fakes.discord import TOKEN  # noqa: PLC0415

    class Bare(discord.Client):
        async def on_message(self, message: discord.Message) -> None:
            if message.guild is None:
                gauge.saw(message.content)

    Route.BASE, DiscordWebSocket.DEFAULT_GATEWAY = f"http://{where}/api/v10", URL(f"ws://{where}/gateway")
    intents = discord.Intents.default()
    intents.message_content = True
    client = Bare(
        intents=intents,
        max_messages=None,
        chunk_guilds_at_startup=False,
        member_cache_flags=discord.MemberCacheFlags.none(),
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(client.start, TOKEN)
        yield _at_once
        await client.close()


async def _at_once() -> None:
    pass


@asynccontextmanager
async def _durable(where: str, gauge: _Gauge, data: Path) -> AsyncIterator[Finish]:
    from bot.wiring.app import utc_now  # noqa: PLC0415
    from threads.journal.journal import FileJournal  # noqa: PLC0415
    from threads.journal.ports import NullTaker  # noqa: PLC0415
    from threads.model import Inbound, Incoming  # noqa: PLC0415
    from threads.store.disk import PosixDisk  # noqa: PLC0415

    journal = FileJournal(PosixDisk(), data / "journal.jsonl", offload=anyio.to_thread.run_sync, now=utc_now)
    journal.open()

    async def take(event: Inbound) -> None:
        assert isinstance(event, Incoming)
        await journal.receive(event)
        gauge.saw(event.text)

    async with background_tasks() as tasks:
        tasks.start_soon(journal.run, NullTaker())
        tasks.start_soon(_transport(where, data).serve, take)
        yield _at_once


@asynccontextmanager
async def _whole(where: str, gauge: _Gauge, data: Path) -> AsyncIterator[Finish]:
    from benchmarks.rig import Instant, running  # noqa: PLC0415
    from threads.model import Inbound, Incoming  # noqa: PLC0415

    edge = _transport(where, data)
    async with running(data, edge, Instant()) as core, background_tasks() as tasks:

        async def take(event: Inbound) -> None:
            assert isinstance(event, Incoming)
            await core.orchestrator.receive(event)
            gauge.saw(event.text)

        async def settled() -> None:
            while core.journal.ledger.pending:
                await anyio.sleep(0.01)

        tasks.start_soon(edge.serve, take)
        yield settled


def _transport(where: str, data: Path):
    from tests.fakes.discord import TOKEN  # noqa: PLC0415
    from tests.transports.bot import surroundings  # noqa: PLC0415
    from transports.discord.api.options import Options  # noqa: PLC0415
    from transports.discord.client import Discord  # noqa: PLC0415

    options = Options(TOKEN, f"http://{where}/api/v10", f"ws://{where}/gateway")
    return Discord(options, data, **surroundings(data, "discord"))


@asynccontextmanager
async def _chatter(where: str, gauge: _Gauge, data: Path) -> AsyncIterator[Finish]:
    async with _whole(where, gauge, data):
        yield _at_once


READERS = {"bare": _bare, "chatter": _chatter, "durable": _durable, "answered": _whole}


def main(what: str, *words: str) -> None:
    match what:
        case "serve":
            anyio.run(_serve, *map(int, words))
        case "read":
            reader, port, data = words
            print(json.dumps(anyio.run(_read, reader, int(port), Path(data))))
        case _:
            print(json.dumps(import_cost(*words)))


if __name__ == "__main__":
    main(*sys.argv[1:])
