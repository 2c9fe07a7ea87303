"""Answers a second within Slack's rate limits, and a catch-up after an outage: workers over PostgreSQL beside files.

They run one after the other in a loopback Slack that counts calls as Slack does. A model answers at once, so an
answer waits for the rates alone. After a burst that is three posts a second, and from there on it is measured.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from benchmarks.figures import Conditions, Figure
from tests.fakes.postgres import Server
from tests.fakes.slack import FakeSlack
from tests.transports.slack.bot import bot_in
from tests.transports.slack.worker import worker_in
from tests.world import Scripted
from transports.slack.api.rate_limits import rate_of

CHANNELS = 50
WORKERS = (0, 1, 3)
"""How many workers over PostgreSQL; none means files."""

BURST = rate_of("chat.postMessage").burst
"""Posts that may go at once after a rest."""

AWAY_S = 20.0
"""How long nobody serves: a lease runs out, and Slack's rates have room again."""

WITHIN_S = 240.0


@asynccontextmanager
async def _bot(slack: FakeSlack, workers: int, dsn: str, data: Path) -> AsyncIterator[None]:
    """Run the bot until the block ends, and then let it die."""
    async with AsyncExitStack() as stack:
        if not workers:
            await stack.enter_async_context(bot_in(slack, data, Scripted()))
        for number in range(workers):
            await stack.enter_async_context(worker_in(slack, dsn, data / str(number), Scripted()))
        yield


async def _measure(workers: int, dsn: str, data: Path, messages: int) -> tuple[float, float]:
    """Return the answers a second, and the seconds in which what was said during an outage was answered."""
    async with FakeSlack(rate_limits=True) as slack:
        for number in range(CHANNELS):
            slack.channel(f"C{number}")
        async with _bot(slack, workers, dsn, data):
            await _ask(slack, messages, quiet=False)
            await _answers(slack, BURST)
            began = time.perf_counter()
            await _answers(slack, messages)
            rate = (messages - BURST) / (time.perf_counter() - began)
        await _ask(slack, messages - BURST, quiet=True)
        await anyio.sleep(AWAY_S)
        began = time.perf_counter()
        async with _bot(slack, workers, dsn, data):
            await _answers(slack, 2 * messages - BURST)
            return rate, time.perf_counter() - began


async def _ask(slack: FakeSlack, messages: int, *, quiet: bool) -> None:
    for number in range(messages):
        slack.say("U1", f"C{number % CHANNELS}", "<@UBOT> hello", quiet=quiet)
        await anyio.sleep(0.01)


async def _answers(slack: FakeSlack, count: int) -> None:
    """Return when so many messages were answered."""
    await slack.until(lambda: sum(post.text == "ok" for post in slack.posts()) >= count, WITHIN_S)


def measure(conditions: Conditions) -> Iterator[Figure]:
    messages = BURST + (40 if conditions.quick else 120)
    with Server(durable=True) as server, TemporaryDirectory(dir=conditions.disk) as folder:
        (files, caught_up), (one, _), (three, all_caught_up) = (
            anyio.run(_measure, workers, server.new_database(), Path(folder) / str(workers), messages)
            for workers in WORKERS
        )
    yield Figure("answers, files", files, "1/s")
    yield Figure("one worker to files", one / files, "x", at_least=0.95)
    yield Figure("three workers to one", three / one, "x", at_least=0.98, note="at the same rate")
    yield Figure("catch-up, files", caught_up, "s")
    yield Figure("three workers to files", all_caught_up / caught_up, "x", at_most=1.3)
