"""A process that dies at each step of an approval never runs a call without a yes, or twice for one, and is never silent.

Every operation on the disk, every post, look-up, acknowledgement, model call and the tool itself is a step. Each scenario
is run once for every step that it has, with a crash there, by ``kill -9`` and by a power cut.
"""

import asyncio
import logging
import random
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from anyio._core._eventloop import set_current_async_library

from bot.guards.policy import Policy
from bot.observe.audit import Audit, AuditFiles
from bot.ports.model import Completion, Usage
from bot.tools.approvals import Approvals, ApprovalsFile
from bot.wiring.core import open_core
from tests.one_model import OneModel
from tests.run_tool import Run
from tests.sim.disk import Faults, SimDisk
from tests.sim.fate import Died, Fate
from tests.sim.loop import SimLoop
from tests.sim.record import Record
from tests.tool_context import make_toolbox
from tests.world import ANN, T1, Platform, core_parts, message, says, state_file
from threads.background import background_tasks
from threads.model import Author, Incoming, Message, QuestionClosed, ToolCall, TurnSettled
from transports.base.transport import Capabilities

DATA = Path("/srv/bot")
WITHIN_S = 300.0
"""The longest time in which a person may see nothing; a question stays open for an hour."""

BOB = Author("U2", "Bob")


@dataclass
class SlowRun(Run):
    """Does harm in two steps, so that a crash can come in the middle."""

    fate: Fate | None = None

    async def __call__(self, arguments, context):
        step(self.fate, "tool begins")
        await super().__call__(arguments, context)
        step(self.fate, "tool ran")
        await anyio.sleep(0.1)
        step(self.fate, "tool ends")
        return "done"


def step(fate, what):
    if fate.step(what):
        fate.die()


class Model(OneModel):
    """Asks for the calls of its plan, one after another, and answers when each has a result."""

    def __init__(self, plan, fate):
        self.plan, self.fate = plan, fate

    async def complete(self, request, on_event):
        step(self.fate, "model")
        await anyio.sleep(0.1)
        results = sum(len(entry.results) for entry in request.messages)
        if results >= len(self.plan):
            return Completion(replace(says("all done"), model="fake/one"), Usage(1, 1), "end")
        call = ToolCall(f"c{results}", "shell", {"command": self.plan[results]})
        return Completion(Message("assistant", (call,), model="fake/one"), Usage(1, 1), "tool_calls")


class CrashingPlatform(Platform):
    """A platform with buttons, where the process can die at each operation.

    A press of one button by one person is one message, however often it comes. The buttons of a closed question go at
    once (``eager``), or only if the process lives on.
    """

    def __init__(self, fate, eager):
        super().__init__()
        self.capabilities = Capabilities(find=True, asks=True)
        self.fate, self.eager = fate, eager
        self.closed, self.approvals = set(), set()

    async def post(self, outgoing):
        dies = self.fate.step(f"post {outgoing.key}")
        if not dies or self.fate.rng.random() < 0.5:
            self.posts.append(outgoing)
        if dies:
            self.fate.die()
        await anyio.sleep(0.05)
        step(self.fate, f"posted {outgoing.key}")
        return f"p{len(self.posts)}"

    async def find(self, thread, key):
        step(self.fate, f"find {key}")
        await anyio.sleep(0.01)
        return await super().find(thread, key)

    def show(self, thread, message_id, event):
        if self.fate.dead:
            raise Died
        if isinstance(event, QuestionClosed):
            if self.eager:
                self.close(event.key)
            else:
                asyncio.get_running_loop().call_later(2.0, self.close, event.key)
        if isinstance(event, TurnSettled):
            known = self.outcomes.setdefault(message_id, event.outcome)
            assert known == event.outcome

    def close(self, key):
        if not self.fate.dead:
            self.closed.add(key)

    def presses(self, choice):
        """Yield what a person who sees the buttons can press now."""
        for number, post in enumerate(self.posts):
            if post.choices and post.key not in self.closed:
                command = post.choices[choice].command
                yield Incoming(f"press-{number}-{command}", T1, ANN, command, "2026-11-21T10:00:00+00:00")


class Scenario:
    """One message whose turn needs a person, over several processes."""

    def __init__(self, plan, *, choice=0, eager=True, seed=1):
        self.rng = random.Random(f"{seed} {plan} {choice} {eager}")
        self.fate = Fate(self.rng, Record(find=True, busy="steer"))
        self.fate.now = 1000.0
        self.disk = SimDisk(self.fate, Faults(), DATA)
        self.platform, self.run = CrashingPlatform(self.fate, eager), SlowRun(fate=self.fate)
        self.plan, self.choice, self.steps = plan, choice, 0
        self.delivered, self.faults = set(), []

    def run_process(self, steps, *, power_cut=False):
        """Run a process that dies at its *steps*-th step, 0 is never; return whether it died."""
        loop = SimLoop(self.rng, self.fate.now)
        self.fate.live(steps)
        self.fate.clock, self.fate.stop_loop = loop.time, loop.stop
        before = len(self.fate.record.trace)
        process = loop.create_task(self._process(), name="process")
        process.add_done_callback(lambda _: loop.stop())
        try:
            loop.run_forever()
            died, self.fate.dead, self.fate.now = self.fate.dead, True, loop.now
            self.steps = len(self.fate.record.trace) - before
            loop.bury()
        finally:
            self.fate.clock = lambda: self.fate.now
            loop.close()
        if died:
            self.disk.power_cut() if power_cut else self.disk.kill()
            self.fate.now += 1
            return True
        process.result()
        assert loop.errors == []
        return False

    async def _process(self):
        set_current_async_library("asyncio")
        async with background_tasks() as tasks:
            surroundings = {"disk": self.disk, "offload": offload, "now": self._now}
            toolbox, asked = self._toolbox(
                Audit(AuditFiles(self.disk, DATA / "audit", offload).append, self._now)
            )
            parts = core_parts(DATA, self.platform, self._model(), toolbox, **surroundings, **asked)
            core = await open_core(tasks, parts)
            await self._act_as_people(core)

    def _model(self):
        return Model(self.plan, self.fate)

    def _toolbox(self, audit):
        """Return the gate of a process, and the parts of its core that know of questions."""
        approvals = Approvals(
            Policy({}),
            state_file(DATA / "approvals.json", ApprovalsFile(), self.disk, offload),
            offload=offload,
            now=self._now,
            is_admin=lambda who: False,
            note=audit.note,
            mask=str,
            expires_s=3600,
        )
        return make_toolbox([self.run], permits=approvals), {}

    async def _act_as_people(self, core):
        """Say what starts it, until it is acknowledged; press what can be pressed, once in each process."""
        began, pressed = anyio.current_time(), set()
        while "m1" not in self.platform.outcomes or core.journal.ledger.pending:
            if anyio.current_time() > began + WITHIN_S:
                self.faults.append("nothing was seen for too long")
                return
            if "m1" not in self.delivered:
                await self._deliver(core, message())
            for press in [p for p in self._answers() if p.id not in pressed]:
                pressed.add(press.id)
                self.platform.approvals.add(press.id)
                await self._deliver(core, press)
                await self._deliver(core, replace(press, id=f"{press.id}-bob", author=BOB))
            await anyio.sleep(1)

    def _answers(self):
        """Yield what a person can say to the questions that they see."""
        return self.platform.presses(self.choice)

    async def _deliver(self, core, incoming):
        await core.orchestrator.receive(incoming)
        step(self.fate, f"acknowledged {incoming.id}")
        self.delivered.add(incoming.id)

    def _now(self):
        return datetime(2026, 11, 21, 10, tzinfo=UTC) + timedelta(seconds=self.fate.clock() - 1000)


async def offload(function, *args):
    """Do the work here, but take a moment for it, as a thread does."""
    await anyio.lowlevel.checkpoint()
    with anyio.CancelScope(shield=True):
        await anyio.sleep(0.01)
        result = function(*args)
        await anyio.sleep(0.01)
    return result


@pytest.fixture(autouse=True)
def _quiet():
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


def run_with_crash(make, crash, power_cut):
    """Return a scenario with a crash at step *crash*, run to its end; None if it has fewer steps."""
    scenario = make()
    if not scenario.run_process(crash, power_cut=power_cut):
        return None
    scenario.run_process(0)
    return scenario


def crashed_operation(scenario):
    """Return the operation at which the process died."""
    trace = scenario.fate.record.trace
    at = next(n for n, line in enumerate(trace) if line.endswith("DIED"))
    return trace[at - 1].partition(" ")[2]


@pytest.mark.parametrize(("power_cut", "eager"), [(False, True), (False, False), (True, False)])
def test_a_crash_at_any_step_of_an_approval_loses_nothing_and_runs_nothing_twice(power_cut, eager):
    faults, plan = [], ("rm a", "rm a")
    for crash in count(1):
        try:
            scenario = run_with_crash(partial(Scenario, plan, eager=eager, seed=crash), crash, power_cut)
            if scenario is None:
                break
            assert scenario.faults == []
            assert scenario.platform.outcomes["m1"] == "answered"
            assert len(scenario.run.ran) <= len(scenario.platform.approvals)
            for command in plan:
                assert scenario.run.ran.count(command) <= plan.count(command)
        except AssertionError as error:
            faults.append((crash, crashed_operation(scenario), str(error).split("\n")[0]))
    assert crash > 20
    assert faults == []


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_no_is_a_no_wherever_the_process_dies(power_cut):
    for crash in count(1):
        scenario = run_with_crash(partial(Scenario, ("rm a",), choice=2, seed=crash), crash, power_cut)
        if scenario is None:
            break
        assert scenario.run.ran == []
        assert scenario.platform.outcomes["m1"] == "answered"


@pytest.mark.parametrize("power_cut", [False, True])
def test_several_crashes_in_a_row_lose_nothing_and_run_nothing_twice(power_cut):
    rng = random.Random(7)
    for seed in range(60):
        plan = rng.choice([("rm a",), ("rm a", "rm a"), ("rm a", "rm b")])
        scenario = Scenario(plan, choice=rng.choice((0, 0, 2)), eager=rng.random() < 0.5, seed=seed)
        crashes = [rng.randrange(20, 60) for _ in range(rng.choice((2, 2, 3)))]
        while crashes and scenario.run_process(crashes.pop(), power_cut=power_cut):
            pass
        if "m1" not in scenario.platform.outcomes:
            scenario.run_process(0)
        assert scenario.faults == []
        # three attempts, and it is put aside
        assert scenario.platform.outcomes["m1"] in (
            "answered",
            "dead_letter",
        )
        assert not (scenario.choice and scenario.run.ran)
        assert all(scenario.run.ran.count(command) <= plan.count(command) for command in plan)
