"""A link that comes and goes, in a workspace of three hundred channels, within Slack's real limits, in virtual time.

Slack shows a page of one channel for each call, and takes 50 calls a minute: to look into all of them takes minutes.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime

import anyio

from tests.fakes.slack import Cut, RateLimited
from tests.sim.loop import virtual_time
from tests.transports.memory import Memory, offload
from tests.transports.slack.test_catch_up import FILE, ME
from tests.transports.slack.virtual import VirtualWeb, virtual_slack
from threads.store.mark_file import MarkFile
from transports.shared.backfill.catch_up import CatchUp
from transports.shared.backfill.marks import Marks
from transports.slack.api.rate_limits import TIER_3
from transports.slack.events.catch_up import ChannelHistory
from transports.slack.events.lookups import Lookups
from transports.slack.events.timestamps import STAMPS

ROOMS, CHANNELS, BUSY, THREADS = 300, 60, 120, 200
"""Channels and direct messages; those in which somebody ever says something; conversations in them."""

SWEEP_S = ROOMS / TIER_3.per_second
"""One call for each of them."""

FLAPS_S = 600.0

TOO_OLD_S = 600.0
"""After so long a message is not answered any more, with a word of regret."""


anyio_backend = virtual_time


class Faulty(VirtualWeb):
    """Three of a hundred calls fail."""

    def __init__(self, slack, fate):
        super().__init__(slack)
        self.fate = fate

    async def ask(self, method, **arguments):
        if self.fate.random() < 0.03:
            self.slack.fail(method, self.fate.choice([Cut(), RateLimited(1)]))
        return await super().ask(method, **arguments)


class World:
    """Two hundred conversations, and a bot; what is said while the link is down gets no event.

    ``taken`` is when each message was taken first, as a journal knows it: on disk, and once.
    """

    def __init__(self, tasks, seed=1):
        self.slack, self.fate, self.tasks = virtual_slack(), random.Random(seed), tasks
        rooms = [f"C{n}" for n in range(CHANNELS)] + [f"DU{n}" for n in range(ROOMS - CHANNELS)]
        for room in rooms:
            kind = {"kind": "im", "user": room[1:]} if room[0] == "D" else {}
            self.slack.channel(room, **kind)
        self.said, self.taken, self.disk = {}, {}, Memory()
        self.missed, self.up = set(), True
        self.start()
        for room in rooms:
            self.marks.start(room, STAMPS.before(self.marks.clock(), 86_400))
        self.roots = [(room, self.say(room)) for room in (2 * rooms[:BUSY])[:THREADS]]

    def start(self):
        """Begin a life of the bot, on the disk that the last one left."""
        self.runs = []
        self.marks = Marks(MarkFile(self.disk, FILE), offload, _now, STAMPS)
        self.marks.open()
        web = Faulty(self.slack, self.fate)
        history = ChannelHistory(
            web,
            self.marks,
            ME,
            Lookups(web, ME, lambda _: None),
            self.sink,
            active_threads=self.active,
            now=_now,
        )
        self.catch_up = CatchUp(self.marks, history)

    def connected(self):
        self.up = True
        self.catch_up.missed()
        self.tasks.start_soon(self.close_gaps)

    async def close_gaps(self):
        with anyio.CancelScope() as scope:
            self.runs.append(scope)
            await self.catch_up.run(gap=False)

    async def kill(self):
        """End this life, with what is on disk of it, and begin the next one."""
        await self.marks.save()
        for scope in self.runs:
            scope.cancel()
        self.up = False
        await anyio.sleep(20)
        self.start()
        self.connected()

    def say(self, room, root=None):
        ts = self.slack.say("U1", room, "<@UBOT> hi", thread_ts=root, quiet=True).ts
        self.said[ts] = anyio.current_time()
        if self.up:
            with self.marks.taking(room, ts):
                self.take(ts)
        else:
            self.missed.add(ts)
        return ts

    def take(self, ts):
        self.taken.setdefault(ts, anyio.current_time())

    async def sink(self, incoming):
        await anyio.sleep(0.002)
        self.take(incoming.id)

    async def active(self):
        found = {}
        for room, root in self.roots:
            found.setdefault(room, []).append(root)
        return found

    async def talk(self, seconds):
        until = anyio.current_time() + seconds
        while anyio.current_time() < until:
            await anyio.sleep(self.fate.expovariate(1 / 5))
            self.say(*self.fate.choice(self.roots))

    async def flap(self, seconds):
        """Lose the link every minute or so, for up to 25 s."""
        until = anyio.current_time() + seconds
        while anyio.current_time() < until:
            await anyio.sleep(self.fate.uniform(20, 60))
            self.up = False
            await anyio.sleep(self.fate.uniform(5, 25))
            self.connected()

    def waits(self, since=0.0):
        """Return how long what was missed waited, or *since* then; all of it was taken."""
        assert self.missed <= self.taken.keys()
        return sorted(self.taken[ts] - max(self.said[ts], since) for ts in self.missed)


def _now():
    return datetime.fromtimestamp(1.7e9 + anyio.current_time(), UTC)


async def test_a_link_that_comes_and_goes_does_not_keep_what_was_missed_from_being_read():
    async with anyio.create_task_group() as tasks:
        world = World(tasks)
        tasks.start_soon(world.talk, FLAPS_S)
        await world.flap(FLAPS_S)
        steady = anyio.current_time()
    waits = world.waits()
    assert len(waits) > 20
    # where people talk is looked at first, though the link never stays
    assert waits[len(waits) // 2] < SWEEP_S / 2
    assert waits[-1] < TOO_OLD_S
    assert world.waits(steady)[-1] < SWEEP_S
    assert not world.marks.due()
    assert anyio.current_time() - steady < 1.2 * SWEEP_S  # with what failed for a moment


async def test_a_kill_in_the_middle_of_a_catch_up_and_again_loses_nothing():
    async with anyio.create_task_group() as tasks:
        world = World(tasks)
        tasks.start_soon(world.talk, 200)
        await world.kill()
        for seconds in (30, 60, 90):
            await anyio.sleep(seconds)
            assert world.marks.due()
            await world.kill()
        last = anyio.current_time()
    waits = world.waits(last)
    assert len(waits) > 10
    assert waits[-1] < SWEEP_S / 2
    assert not world.marks.due()
