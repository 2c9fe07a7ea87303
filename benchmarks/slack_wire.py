"""What a message costs on the Slack wire: one worker over PostgreSQL and its server, beside the process with files.

Each is the program as it is started by `threadfast run`, in a loopback Slack, with the demo's model and rates that
stop nothing. They are measured in turns, so both see the machine in the same mood. Counted is the CPU of all their
processes between the first message of the measured ones and the last answer, with what they do anyway meanwhile.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import anyio
import psycopg

from benchmarks.figures import Conditions, Figure
from tests.fakes.postgres import Server
from tests.fakes.slack import FakeSlack

THREADS = 20
WARM_UP = 5
"""Messages of each thread that only fill the caches of both."""

RATIO = 1.3
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
CODE = """
from transports.slack.api import rate_limits
fast = lambda rate: rate_limits.Rate(rate.per_minute * 1000, rate.burst * 1000, rate.first * 1000)
rate_limits.RATES = {method: fast(rate) for method, rate in rate_limits.RATES.items()}
rate_limits.TIER_4, rate_limits.CHANNEL = fast(rate_limits.TIER_4), fast(rate_limits.CHANNEL)
rate_limits.FLOORS_S, rate_limits.FLOOR_S = {}, 0.0
from bot.cli import main
main()
"""
STATEMENTS = (
    "SELECT sum(xact_commit + xact_rollback) FROM pg_stat_database WHERE datname = current_database()"
)


def cpu_of(*pids: int) -> float:
    """Return the CPU seconds of processes and of all that they have started, also of those that are over."""
    parents, ticks = dict[int, int](), dict[int, int]()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(stat.parent.name)
        parents[pid] = int(words[1])
        ticks[pid] = sum(map(int, words[11 : 15 if pid in pids else 13]))
    known, found = set(pids), set(pids)
    while found := {pid for pid, parent in parents.items() if parent in found}:
        known |= found
    return sum(ticks.get(pid, 0) for pid in known) * TICK_S


@asynccontextmanager
async def _bot(slack: FakeSlack, data: Path, store: dict[str, str], dsn: str) -> AsyncIterator[int]:
    """Run the program until the block ends; yield the id of its process."""
    given = {
        "data": str(data),
        "model": "offline/demo",
        "store": store,
        "transports": {"slack": {"api_base_url": slack.api_base_url}},
    }
    data.mkdir()
    file = data / "settings.json"
    file.write_text(json.dumps(given))
    tokens = {"SLACK_BOT_TOKEN": slack.bot_token, "SLACK_APP_TOKEN": slack.app_token}
    command = [sys.executable, "-c", CODE, "run", "--settings", str(file)]
    env = {**os.environ, **tokens, "DATABASE_URL": dsn}
    async with await anyio.open_process(
        command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            await slack.until(lambda: slack.sockets.links, limit=60)
            yield process.pid
        finally:
            process.kill()
            await process.wait()


async def _talk(slack: FakeSlack, messages: int) -> None:
    """Let each thread say so many messages, one after the other's answer."""

    async def person(number: int) -> None:
        thread = None
        for said in range(messages):
            text = f"<@UBOT> what is the plan, {said}?"
            message = await slack.say(f"U{number}", f"C{number % 5}", text, thread_ts=thread).delivered(60)
            thread = thread or message.ts
            answered = partial(_has, slack, f"C{number % 5}", thread, 2 * said + 2)
            await slack.until(answered, limit=120)

    async with anyio.create_task_group() as people:
        for number in range(THREADS):
            people.start_soon(person, number)


def _has(slack: FakeSlack, channel: str, thread: str, posts: int) -> bool:
    return len(slack.thread(channel, thread)) == posts


async def _measure(folder: Path, server: Server | None, messages: int) -> dict[str, float]:
    """Return the milliseconds of CPU a message of the bot and of the server, and the statements a message."""
    dsn = server.new_database() if server else ""
    store = {"kind": "postgres", "dsn": "env:DATABASE_URL"} if server else {"kind": "files"}
    async with FakeSlack() as slack:
        for number in range(5):
            slack.channel(f"C{number}")
        async with _bot(slack, folder, store, dsn) as pid:
            await _talk(slack, WARM_UP)
            count = THREADS * messages
            sent, bot, its = _sent(dsn), cpu_of(pid), cpu_of(server.pid) if server else 0.0
            await _talk(slack, messages)
            bot, its = cpu_of(pid) - bot, (cpu_of(server.pid) - its) if server else 0.0
            return {
                "bot": bot / count * 1000,
                "server": its / count * 1000,
                "statements": (_sent(dsn) - sent) / count,
            }


def _sent(dsn: str) -> float:
    if not dsn:
        return 0.0
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SELECT pg_stat_clear_snapshot()")
        [(count,)] = connection.execute(STATEMENTS).fetchall()
        return float(count)


def measure(conditions: Conditions) -> Iterator[Figure]:
    rounds, messages = (1, 5) if conditions.quick else (4, 10)
    files, postgres = list[dict[str, float]](), list[dict[str, float]]()
    with TemporaryDirectory(dir=conditions.disk) as folder, Server(durable=True) as server:
        for number in range(rounds):
            run = partial(anyio.run, _measure)
            files.append(run(Path(folder) / f"files{number}", None, messages))
            postgres.append(run(Path(folder) / f"postgres{number}", server, messages))
    note = f"median of {rounds} turns of {THREADS * messages} messages"
    alone = median(one["bot"] for one in files)
    worker, its = (median(one[part] for one in postgres) for part in ("bot", "server"))
    yield Figure("CPU a message, files", alone, "ms", note=note)
    yield Figure("CPU a message, one worker", worker, "ms")
    yield Figure("  and its server", its, "ms")
    yield Figure("  both to files", (worker + its) / alone, "x", at_most=RATIO)
    yield Figure("  statements a message", median(one["statements"] for one in postgres))
