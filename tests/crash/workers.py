"""Several workers over one PostgreSQL, which die, stand still and lose their server while people talk; then the judge.

A worker is killed at a moment, or right before or after one of its statements. Some are stopped for longer than their
lease and then go on: the others have taken their threads, and they have to end by themselves. The server crashes too.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import psycopg

from bot.extensions.postgres.worker import LEASE_S
from tests.crash.book import write_about
from tests.crash.run import DRAIN_S, ROOT, SCALE, START_S, Child, Report, Rounds, Stage, child, judge
from tests.fakes.postgres import Server
from threads.background import background_tasks
from threads.model import ThreadId
from threads.store.data_folder import thread_folder

ASLEEP_S = LEASE_S + 2.0
"""How long a worker stands still: longer than its lease."""

SERVED_AGAIN_S = 15.0
"""The longest that people may wait for the replica to serve them."""

SETTLED = "SELECT count(*) FROM message WHERE settled IS NOT NULL"
RECORDS = "SELECT received::text, started::text, intent::text, posted::text, settled::text FROM message ORDER BY seq"
CONVERSATIONS = (
    "SELECT c.thread, c.generation = t.generation, c.line::text FROM context c JOIN thread t ON t.id = c.thread "
    "ORDER BY c.thread, c.generation, c.n"
)
CHANGED = "SELECT id, extract(epoch FROM changed_at)::float8 FROM thread"


async def workers_run(
    folder: Path,
    stage: Stage,
    *,
    workers: int,
    deaths: int,
    sleeps: int,
    crashes: int,
    seed: int,
    fails_over: bool = False,
    checkouts: Sequence[Path] = (ROOT,),
    mean_s: float = 0.7,
    threads: int = 24,
    say: Callable[[str], None] = lambda _: None,
) -> Report:
    """Let *workers* die so often in all, stand still so often, and the server crash so often; drain, judge.

    In place of these crashes a server that *fails_over* dies once, and its synchronous replica takes over.
    Each start of a worker is of one of these *checkouts*, as in a rolling upgrade and back.
    """
    report, fate, began = Report(), random.Random(seed), time.monotonic()
    with Server() as server, ExitStack() as stack:
        replica = stack.enter_context(closing(Server(server))) if fails_over else None
        if replica:
            replica.replicate()
        dsn = server.new_database()
        if replica:
            both = f"host={server.folder},{replica.folder} target_session_attrs=read-write"
            dsn = dsn.replace(f"host={server.folder}", both)
        platform = stage.place(folder, Rounds(deaths, seed, mean_s, threads=threads))
        write_about(folder, seed=seed)
        always = ["--waits", str(SCALE), "--store", dsn, *stage.options]
        (folder / "data").mkdir()
        left = [*["kill"] * deaths, *["sleep"] * sleeps]
        fate.shuffle(left)
        async with background_tasks() as tasks:
            port: int = await tasks.start(platform.serve)
            tasks.start_soon(platform.talk)
            tasks.start_soon(_mirror, dsn, folder / "data" / "journal.jsonl")
            async with anyio.create_task_group() as lives:
                for number in range(workers):
                    place = folder / f"worker-{number}"
                    place.mkdir()
                    start = partial(_child, place, port, stage.child, fate, checkouts)
                    lives.start_soon(
                        _live, start, always, left, mean_s, fate, crashes or fails_over, report, say
                    )
                if replica:
                    lives.start_soon(_fail_over, server, replica, dsn, fate, report)
                elif crashes:
                    lives.start_soon(_crash_server, server, crashes, left, fate)
            platform.talking = False
            async with anyio.create_task_group() as last:
                for number in range(workers):
                    place = folder / f"worker-{number}"
                    start = partial(_child, place, port, stage.child, fate, checkouts)
                    last.start_soon(_rest, start, always, fate)
                with anyio.move_on_after(DRAIN_S):
                    await platform.until_settled()
                    last.cancel_scope.cancel()
                if not last.cancel_scope.cancel_called:
                    report.violations.append(f"drain: {platform.owed} messages still owed")
                    last.cancel_scope.cancel()
            platform.close()
        export(dsn, folder / "data")
    report.rounds, report.accepted, report.posts = deaths + sleeps, platform.accepted, platform.posted
    counts, violations = await judge(folder, f"{stage.judge}_workers")
    report.counts |= counts
    report.violations += violations
    if not report.accepted:
        report.violations.append("empty: nobody was heard")
    report.seconds = time.monotonic() - began
    return report


def _child(
    folder: Path,
    port: int,
    module: str,
    fate: random.Random,
    checkouts: Sequence[Path],
    seed: int,
    *options: str,
) -> AbstractAsyncContextManager[Child]:
    return child(folder, port, seed, *options, module=module, checkout=fate.choice(checkouts))


async def _live(
    start: Callable[..., object],
    always: list[str],
    left: list[str],
    mean_s: float,
    fate: random.Random,
    crashes: int | bool,
    report: Report,
    say: Callable[[str], None],
) -> None:
    """Be one worker: start, die, and start again, until no end is left for any."""
    while left:
        way = left.pop()
        if len(left) % 10 == 0:
            say(f"{len(left)} ends to come")
        at_statement = way == "kill" and fate.random() < 0.4
        options = [*always, "--die-at", str(1 + int(fate.expovariate(1 / 150)))] if at_statement else always
        async with start(fate.randrange(1 << 30), *options) as bot:
            await _meet(bot, way, fate.uniform(0, 2 * mean_s) * (4 if at_statement else 1))
        code = bot.process.returncode
        report.exits.append(code)
        # A crash of the server makes a worker start over too, and the others judge nobody for a while, not a sleeper.
        if code not in {os.EX_TEMPFAIL, -signal.SIGKILL if way == "kill" or crashes else None}:
            report.violations.append(f"exit: a worker ended with {code} ({way})")


async def _meet(bot: Child, way: str, seconds: float) -> None:
    with anyio.move_on_after(START_S):
        await (bot.starting if way == "kill" and seconds < 0.1 else bot.ready).wait()
    with anyio.move_on_after(seconds):
        await bot.over.wait()
    if way == "sleep":
        bot.end(signal.SIGSTOP)
        await anyio.sleep(ASLEEP_S)
        bot.end(signal.SIGCONT)
        with anyio.move_on_after(START_S):
            await bot.over.wait()
    bot.end()
    with anyio.fail_after(START_S):
        await bot.over.wait()


async def _rest(start: Callable[..., object], always: list[str], fate: random.Random) -> None:
    """Serve in peace until cancelled; one that starts over does."""
    while True:
        async with start(fate.randrange(1 << 30), *always) as bot:
            await bot.over.wait()


async def _crash_server(server: Server, times: int, left: list[str], fate: random.Random) -> None:
    for _ in range(times):
        await anyio.sleep(fate.uniform(1, 4))
        if not left:
            return
        await anyio.to_thread.run_sync(server.crash)
        await anyio.sleep(fate.choice((0, 0.3, 2.0)))
        await anyio.to_thread.run_sync(server.start)


async def _fail_over(server: Server, replica: Server, dsn: str, fate: random.Random, report: Report) -> None:
    """Let the primary die and its replica take over, and note after how long a message is settled again."""
    await anyio.sleep(fate.uniform(2, 5))
    began = time.monotonic()
    await anyio.to_thread.run_sync(server.crash)
    await anyio.to_thread.run_sync(replica.promote)
    [before] = await anyio.to_thread.run_sync(_rows, dsn, SETTLED)
    with anyio.move_on_after(DRAIN_S):
        while await anyio.to_thread.run_sync(_rows, dsn, SETTLED) == [before]:
            await anyio.sleep(0.05)
    report.counts["ms until served again"] = took = round((time.monotonic() - began) * 1000)
    if took > SERVED_AGAIN_S * 1000:
        report.violations.append(f"fail-over: served again after {took / 1000:.1f} s")


async def _mirror(dsn: str, path: Path) -> None:
    """Append each record to a file as soon as the database has it: a chat platform of the run follows that."""
    written = set[str]()
    while True:
        await anyio.sleep(0.2)
        try:
            rows = await anyio.to_thread.run_sync(_rows, dsn, RECORDS)
        except psycopg.OperationalError:  # the server has crashed
            continue
        new = [record for row in rows for record in row if record is not None and record not in written]
        written.update(new)
        with path.open("a") as file:
            file.writelines(f"{record}\n" for record in new)


def _rows(dsn: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as connection:
        return connection.execute(statement.encode()).fetchall()


def export(dsn: str, data: Path) -> None:
    """Write what the database holds as the files that the judge reads."""
    with psycopg.connect(dsn) as connection, (data / "journal.jsonl").open("w") as journal:
        for row in connection.execute(RECORDS):
            journal.writelines(f"{record}\n" for record in row if record is not None)
        for thread, is_current, line in connection.execute(CONVERSATIONS):
            folder = thread_folder(data, ThreadId.parse(thread))
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / ("context.jsonl" if is_current else "context.old.jsonl")).open("a") as file:
                file.write(f"{line}\n")
        for thread, at in connection.execute(CHANGED):  # the judge looks at the newest, as a start does
            path = thread_folder(data, ThreadId.parse(thread)) / "context.jsonl"
            if path.exists():
                os.utime(path, (at, at))
