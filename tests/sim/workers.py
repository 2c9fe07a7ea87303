"""One run of several workers over one simulated database: they die, are cut off, and lose statements; all is judged."""

from __future__ import annotations

import argparse
import logging
import random
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import anyio
import anyio.to_thread
import psycopg

import bot.extensions.postgres.worker
from bot.extensions.postgres.store import PostgresStore
from bot.ports.model import Completion, Usage
from bot.wiring.core import Core, open_core
from tests.one_model import OneModel
from tests.tool_context import make_toolbox
from tests.world import Platform, core_parts, inline, message, says
from threads.background import background_tasks
from threads.delivery import LATE_POST_S
from threads.errors import StoreUnavailable, TransportUnavailable
from threads.model import Deleted, Edited, Incoming, Outgoing, ThreadId, TurnLimits
from threads.store.disk import PosixDisk
from transports.base.transport import Capabilities

from .database import CHECKS, Database, Faults, clock
from .loop import virtual_loop

PLACES = ("sim1", "sim2", "sim3")
START_S = 300.0
"""Within so many seconds all workers have come up at first."""

DRAIN_S = 2 * 3600.0
CHANNELS = [ThreadId("fake", "W", channel, "") for channel in "CD"]
THREADS = [replace(channel, root=str(number)) for channel in CHANNELS for number in range(3)]


class Clock:
    """Stands where the worker looks at its machine's clock."""

    now = staticmethod(lambda _: clock())


class Slow(OneModel):
    """A model that takes its time, and answers what was said last."""

    name = "fake/one"

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    async def complete(self, request, on_event):
        await anyio.sleep(self._rng.choice((0.01, 0.5, 4)))
        return Completion(says(f"to {request.messages[-1].text.split()[-1]}"), Usage(10, 5), "end")


class Shaky(Platform):
    """A platform that refuses some posts, and on which others land late."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.capabilities, self._rng = Capabilities(find=True, lands_late=True), rng
        self._refuses = rng.choice((0.05, 0.5))

    async def post(self, outgoing: Outgoing) -> str:
        if self._rng.random() < self._refuses:
            raise TransportUnavailable("not now")
        await anyio.sleep(self._rng.choice((0, 0, 0.1, LATE_POST_S - 0.5)))
        return await super().post(outgoing)


@dataclass
class Run:
    """What happened, and ``faults``: what must not have."""

    accepted: set[str] = field(default_factory=set)
    deaths: int = 0
    cuts: int = 0
    crashes: int = 0
    lost: int = 0
    faults: list[str] = field(default_factory=list)


class Workers:
    def __init__(self, seed: int, folder: Path, checks: frozenset[str] = CHECKS) -> None:
        self._rng, self._folder = random.Random(f"{seed} workers"), folder
        self.database = Database(random.Random(f"{seed} database"), checks=checks)
        self.platform, self.run = Shaky(random.Random(f"{seed} platform")), Run()
        self._model = Slow(random.Random(f"{seed} model"))
        self._cores: dict[str, Core] = {}
        self._deaths = {place: anyio.Event() for place in PLACES}
        self._calm = False

    async def play(self) -> Run:
        rng, database = self._rng, self.database
        database.faults = Faults(
            before=rng.choice((0, 0.002, 0.02)),
            late=rng.choice((0, 1)),
            after=rng.choice((0, 0.002, 0.02)),
            lost_bell=rng.choice((0, 0.3)),
        )
        async with background_tasks() as tasks:
            for place in PLACES:
                tasks.start_soon(self._live, place)
            with anyio.move_on_after(START_S) as starting:
                while len(self._cores) < len(PLACES):
                    await anyio.sleep(0.1)
            if starting.cancelled_caught:
                self.run.faults.append("start: not all workers come up")
                tasks.cancel_scope.cancel()
                return self.run
            async with anyio.create_task_group() as people:
                people.start_soon(self._disturb)
                for number in range(rng.randint(10, 40)):
                    people.start_soon(self._say, number)
                    await anyio.sleep(rng.choice((0, 0.05, 1, 3)))
            self._calm, database.faults, database.up = True, Faults(), True
            database.cut_off.clear()
            with anyio.move_on_after(DRAIN_S):
                while any(row.outcome is None for row in database.messages.values()):
                    await anyio.sleep(1)
            await anyio.sleep(30)  # whoever was in the middle of something comes to its end
        self._judge()
        return self.run

    async def _live(self, place: str) -> None:
        skew = timedelta(seconds=self._rng.uniform(-300, 300))
        while True:
            dsn, data = f"host={place} dbname=sim", self._folder / place
            store = PostgresStore(dsn, data, name=place, version="1", now=lambda: clock() + skew)
            death = self._deaths[place] = anyio.Event()
            try:
                async with background_tasks() as tasks:
                    parts = core_parts(
                        data,
                        self.platform,
                        self._model,
                        make_toolbox([]),
                        disk=PosixDisk(),
                        offload=inline,
                        now=clock,
                        store=store,
                        limits=TurnLimits(mailbox=100),
                    )
                    self._cores[place] = await open_core(tasks, parts)
                    await death.wait()
                    self.database.kill(place)
            except* Exception as group:  # noqa: BLE001 - judged
                self._ended(group)
            self._cores.pop(place, None)
            self.database.kill(place)
            await anyio.sleep(0.5)

    def _ended(self, group: ExceptionGroup) -> None:
        """A process may end because its store is away at the start, or because it was taken for dead."""
        lost, others = group.split((OSError, bot.extensions.postgres.worker.WorkerLost))
        self.run.lost += lost is not None
        if others is not None:
            self.run.faults.append(f"ended: {_cause(others)!r}")

    async def _disturb(self) -> None:
        rng = self._rng
        for _ in range(rng.randint(0, 8)):
            await anyio.sleep(rng.uniform(0, 8))
            place = rng.choice(PLACES)
            match rng.choice(("death", "cut", "cut", "crash")):
                case "death":
                    self.run.deaths += 1
                    self._deaths[place].set()
                case "cut":
                    self.run.cuts += 1
                    self.database.cut_off.add(place)
                    await anyio.sleep(rng.uniform(0.5, 12))
                    self.database.cut_off.discard(place)
                case _:
                    self.run.crashes += 1
                    self.database.crash()
                    await anyio.sleep(rng.uniform(0.1, 10))
                    self.database.up = True

    async def _say(self, number: int) -> None:
        """Say something, as a platform brings it: what was not acknowledged comes again, to whichever worker."""
        rng, thread = self._rng, self._rng.choice(THREADS)
        incoming = message(number, f"say {number}", thread)
        match rng.choice(("plain",) * 6 + ("twin", "edit", "delete", "stop", "stop all", "alias")):
            case "twin":
                async with anyio.create_task_group() as tasks:
                    for _ in range(2):
                        tasks.start_soon(self._deliver, incoming)
            case "alias":
                await self._deliver(replace(incoming, alias=f"c{number}"))
                await self._deliver(replace(incoming, id=f"c{number}"))
            case "edit":
                await self._deliver(incoming)
                await self._deliver(Edited(incoming.id, thread, f"rather {number}"))
            case "delete":
                await self._deliver(incoming)
                await self._deliver(Deleted(incoming.id, thread))
            case "stop":
                await self._deliver(replace(incoming, text="/stop"))
            case "stop all":
                await self._deliver(replace(incoming, text="/stop", thread=replace(thread, root="")))
            case _:
                await self._deliver(incoming)

    async def _deliver(self, event: Incoming | Edited | Deleted) -> None:
        for _ in range(10_000):
            core = self._cores.get(self._rng.choice(PLACES))
            if core is not None:
                with suppress(StoreUnavailable, TimeoutError), anyio.fail_after(3):
                    await core.orchestrator.receive(event)
                    if isinstance(event, Incoming):
                        self.run.accepted.add(event.id)
                    return
            await anyio.sleep(0.2)
        raise TransportUnavailable("nobody takes it")

    def _judge(self) -> None:
        fault, rows = self.run.faults.append, self.database.messages.values()
        by_id = {row.key.rpartition(":")[2]: row for row in rows}
        for said in sorted(self.run.accepted - {f"c{n}" for n in range(1000)}):
            if said not in by_id:
                fault(f"lost: {said} was acknowledged")
            elif by_id[said].outcome is None:
                fault(f"silent: {said} has no outcome")
        posts = Counter(post.key for post in self.platform.posts)
        for key, times in posts.items():
            if times > 1:
                fault(f"twice: {key} was posted {times} times")
        for row in rows:
            lines = self.database.contexts.get((row.thread, 0), {}).values()
            said = row.key.rpartition(":")[2]
            sources = sum(f'"source":"{said}"' in line and '"role":"user"' in line for line in lines)
            if (
                row.outcome in ("answered", "merged")
                and "/stop" not in str(row.lines["received"])
                and sources != 1
            ):
                fault(f"conversation: {said} ({row.outcome}) is there {sources} times")
        last: dict[str, int] = {}
        for post in self.platform.posts:
            row = self.database.messages.get(post.key)
            if row is not None and post.kind == "reply":
                if row.seq < last.get(row.thread, 0):
                    fault(f"order: {row.key} was answered after a later one")
                last[row.thread] = row.seq


def _cause(group: BaseException) -> BaseException:
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return group


def run_seed(seed: int, folder: Path, checks: frozenset[str] = CHECKS) -> Run:
    """Play one run. The same seed gives the same run."""
    workers = None

    async def play() -> Run:
        nonlocal workers
        workers = Workers(seed, folder / str(seed), checks)
        with (
            patch.object(psycopg.AsyncConnection, "connect", workers.database.connect),
            patch.object(anyio.to_thread, "run_sync", inline),
        ):
            return await workers.play()

    spare = random.Random(f"{seed} spare").choice((0, 2, bot.extensions.postgres.worker.SPARE))
    with patch.multiple(bot.extensions.postgres.worker, datetime=Clock, SPARE=spare):
        logging.disable(logging.CRITICAL)
        try:
            return anyio.run(play, backend="asyncio", backend_options=virtual_loop(seed))
        finally:
            logging.disable(logging.NOTSET)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.workers", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1_000)
    parser.add_argument("--from", type=int, default=0, dest="first")
    asked, failed, sums = parser.parse_args(), 0, Counter[str]()
    with TemporaryDirectory() as folder:
        for seed in range(asked.first, asked.first + asked.seeds):
            run = run_seed(seed, Path(folder))
            sums.update(accepted=len(run.accepted), deaths=run.deaths, cuts=run.cuts, crashes=run.crashes)
            if run.faults:
                failed += 1
                print(f"SEED={seed}", *run.faults[:3], sep="\n  ")
    print(f"{asked.seeds} seeds, {', '.join(f'{n} {what}' for what, n in sums.items())}, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
