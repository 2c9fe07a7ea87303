"""One process that catches up, and stories of such processes, for the platforms to fill in."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from functools import partial

import anyio
from hypothesis import strategies as st

from tests.sim.loop import SimLoop
from tests.transports.memory import Memory, offload
from threads.errors import StoreUnavailable
from threads.store.mark_file import MarkFile
from transports.shared.backfill.marks import Marks

START = 1000.0


class CatchUpBot:
    """The receiving side of one process: marks, and a sink that writes into *taken*, which outlives it."""

    def __init__(self, file, scale, now, disk=None, taken=None):
        self.file, self.disk = file, disk or Memory()
        self.taken = taken if taken is not None else []
        self.full, self.looks = False, 0
        self.marks = Marks(MarkFile(self.disk, file), offload, now, scale)
        self.marks.open()

    async def take(self, message):
        await anyio.sleep(0)
        if self.full:
            raise StoreUnavailable
        self.taken.append(message)

    def stored(self):
        return json.loads(self.disk.files[self.file])


@dataclass
class Process:
    dead: bool = False
    scopes: list[anyio.CancelScope] = field(default_factory=list)


class Story:
    """One bot through crashes and gaps, on the disk of its marks and with the memory of a journal (*taken*).

    A platform adds `new_bot`, `begin_session`, `deliver` (a live message), `missing`, `check_mark_before`,
    `forget_what_a_crash_loses` and the ``outage`` of its API.
    """

    def __init__(self, seed, platform):
        self.rng, self.platform, self.disk = random.Random(seed), platform, Memory()
        self.taken, self.owed, self.is_up = [], {}, True

    async def tell(self, steps):
        async with anyio.create_task_group() as tasks:
            self.tasks = tasks
            self.begin()
            for step in [*steps, ("ok",), ("roomy",), ("down",), ("up",)]:
                await getattr(self, step[0])(*step[1:])
                await anyio.sleep(self.rng.choice([0, 0, 0.1, 1.0]))
        assert not self.missing(), (self.missing(), self.disk.files)

    def begin(self):
        self.process, self.bot, self.is_up = Process(), self.new_bot(), True
        self.begin_session()

    def start(self, what, *arguments):
        self.tasks.start_soon(self.within, self.process, what, *arguments)

    async def within(self, process, what, *arguments):
        """Run until the process is killed."""
        if not process.dead:
            with anyio.CancelScope() as scope:
                process.scopes.append(scope)
                await what(*arguments)

    async def live(self, bot, message):
        """Come over the link, perhaps after a later one; what the disk refuses is read again."""
        await anyio.sleep(self.rng.choice([0, 0.1, 0.5]))
        try:
            await self.deliver(bot, message)
        except StoreUnavailable:
            self.start(partial(bot.catch_up.run, gap=False))

    async def down(self):
        await anyio.sleep(1)  # what is on its way still comes
        self.is_up = False

    async def up(self):
        if not self.is_up:
            self.is_up = True
            self.begin_session()

    async def crash(self):
        self.process.dead = True
        for scope in self.process.scopes:
            scope.cancel()
        self.forget_what_a_crash_loses()
        self.begin()

    def stored(self):
        file = self.bot.file
        return json.loads(self.disk.files[file])["channels"] if file in self.disk.files else {}

    async def save(self):
        if self.is_up and not self.bot.full:
            self.bot.marks.alive()
        await self.bot.marks.save()
        for key in self.missing():
            self.check_mark_before(key)

    async def full(self):
        self.bot.full = True

    async def roomy(self):
        self.bot.full = False

    async def api(self):
        self.platform.refuses = dict(self.outage)

    async def ok(self):
        self.platform.refuses = {}

    async def wait(self, seconds):
        await anyio.sleep(seconds)


def steps(say, *events, waits=(0.01, 0.3, 2.0, 7.0, 100.0)):
    """Generate what happens: *say* is a strategy for messages, *events* are more than the common ones."""
    common = ("down", "up", "crash", "save", "save", "full", "roomy", "api", "ok")
    event = st.tuples(st.sampled_from([*common, *events]))
    wait = st.tuples(st.just("wait"), st.sampled_from(waits))
    return st.lists(st.one_of(say, event, wait), max_size=40)


def play(story, seed, steps):
    backend_options = {"loop_factory": partial(SimLoop, random.Random(seed), START)}
    anyio.run(story.tell, steps, backend_options=backend_options)
