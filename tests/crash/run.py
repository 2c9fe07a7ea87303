"""Rounds of start, serve and death over one data folder, then a drain, then the judge as a program of its own.

A death comes at a moment (while starting, right after it, while busy), at a step the platform sees (a post arrives, a
post is stored, a message is acknowledged, a look-up), or at one exact disk operation. With `Rounds.stops` a third of
the processes are asked to stop instead, and another third are asked and then killed before they could. Every child is
ended by its pid.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, Protocol

import anyio
from anyio.abc import Process, TaskStatus
from anyio.streams.buffered import BufferedByteReceiveStream

from tests.crash.book import write_about
from tests.crash.child import DRAINS_S
from threads.background import background_tasks

ROOT = Path(__file__).parents[2]
START_S = 100.0
DRAIN_S = 240.0
LEAVE_S = DRAINS_S[-1] + 15.0
"""What a process that was asked to stop may take: its longest drain, and as long for the rest as systemd gives it."""
SCALE = 0.1
"""The bot's waits for a real platform, and the platform's lateness that they answer to, are both this much shorter.

With 0.1 a post is seldom later than the next process; 0.4 and longer rounds put that to the test.
"""

FORGETS_S = 2.0
"""How long a thread is quiet before it is forgotten: short enough for a run, and longer than most turns."""

DAY_S = 24 * 3600.0

Events = tuple[str, ...]


class Place(Protocol):
    """A chat platform with its people. ``trip`` is called at each step that a death may follow."""

    trip: Callable[[str], bool]
    talking: bool

    @property
    def accepted(self) -> int: ...

    @property
    def posted(self) -> int: ...

    @property
    def owed(self) -> float: ...

    async def serve(self, *, task_status: TaskStatus[int]) -> None:
        """Serve until cancelled; start with the port."""

    async def talk(self) -> None:
        """Let people write until `talking` ends."""

    async def until_settled(self) -> None: ...

    def close(self) -> None:
        """Write down what the judge has to know."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Where a run takes place: its platform, the modules of its bot and its judge, the steps a death may follow."""

    name: str
    place: Callable[[Path, Rounds], Place]
    child: str
    judge: str
    events: Events
    mend_s: float
    """A last start may bring into the threads' logs what the death before it cut off."""
    options: tuple[str, ...] = ()
    """Of the bot process."""


@dataclass(frozen=True, slots=True)
class Death:
    """``n`` counts disk operations or steps; after ``seconds`` the process is killed at the latest."""

    kind: Literal["starting", "ready", "time", "event", "disk"]
    seconds: float
    n: int = 0
    event: str = ""

    @classmethod
    def draw(cls, fate: random.Random, mean_s: float, events: Events) -> Death:
        match fate.choices(("starting", "ready", "time", "event", "disk"), (10, 8, 37, 20, 25))[0]:
            case "starting":
                return cls("starting", fate.uniform(0, 0.15))
            case "ready":
                return cls("ready", fate.uniform(0, 0.05))
            case "event":
                return cls("event", 2 * mean_s, fate.randrange(1, 12), fate.choice(events))
            case "disk":
                return cls("disk", 2 * mean_s, 1 + int(fate.expovariate(1 / 40)))
            case _:
                return cls("time", fate.uniform(0, 2 * mean_s))


@dataclass(frozen=True, slots=True)
class End:
    """How a process is ended: by ``signal``, and by SIGKILL if it is still there ``patience_s`` later."""

    signal: signal.Signals = signal.SIGKILL
    patience_s: float = START_S
    codes: tuple[int, ...] = (-signal.SIGKILL,)

    @classmethod
    def draw(cls, fate: random.Random) -> End:
        match fate.choice(("stop", "cut", "kill")):
            case "stop":
                return cls(signal.SIGTERM, LEAVE_S, (0,))
            case "cut":
                return cls(signal.SIGTERM, fate.uniform(0, 0.5), (0, -signal.SIGKILL))
            case _:
                return cls()


@dataclass(frozen=True, slots=True)
class Rounds:
    """A whole run. ``scale`` 1 leaves the bot's waits as they are."""

    count: int
    seed: int
    mean_s: float = 0.5
    threads: int = 24
    pause_s: float = 0.4
    scale: float = SCALE
    compact: tuple[str, ...] = ("60000", "16000000")
    signal: signal.Signals = signal.SIGKILL
    stops: bool = False
    within_s: float = 0
    """If given, whoever stays in one thread has all outcomes so long after the last death, at the platform's rates."""
    questions: Literal["", "answered", "ignored"] = ""
    """Whether a tool call needs somebody's leave, and whether people give it."""
    forgets: float = 0
    """If given, the bot forgets threads that were quiet for so many seconds, and people have theirs forgotten."""

    @property
    def late_s(self) -> float:
        """How long after a death its last posts may land: not quite as long as the bot waits for them."""
        return 0.8 * 3.0 * self.scale


@dataclass(slots=True)
class Report:
    """What came of a run; ``violations`` is empty when every promise was kept."""

    rounds: int = 0
    accepted: int = 0
    posts: int = 0
    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    exits: list[int] = field(default_factory=list)

    def __str__(self) -> str:
        counted = ", ".join(f"{number} {what}" for what, number in self.counts.items())
        return (
            f"{self.rounds} rounds, {self.accepted} messages accepted, {self.posts} posts: {counted}, "
            f"{len(self.violations)} violations; {self.seconds:.0f} s"
        )


def environment() -> dict[str, str]:
    """Return a child's environment: no key, no proxy, the tree to import from."""
    return {"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0"}


class Child:
    """One bot process; `starting` and `ready` are set as it says so, both when it dies."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self._sent: set[signal.Signals] = set()
        # Popen.send_signal would reap the process behind asyncio's back, and a pid may be another's by then.
        self._pidfd = os.pidfd_open(process.pid)
        self.starting, self.ready, self.over = anyio.Event(), anyio.Event(), anyio.Event()

    async def listen(self) -> None:
        assert self.process.stdout is not None
        buffered = BufferedByteReceiveStream(self.process.stdout)
        said = {b"STARTING": self.starting, b"READY": self.ready}
        try:
            while True:
                said[await buffered.receive_until(b"\n", 100)].set()
        except (anyio.EndOfStream, anyio.IncompleteRead):
            pass
        await self.process.wait()
        for event in (self.starting, self.ready, self.over):
            event.set()

    def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal, each but once: a second SIGTERM is obeyed at once."""
        if number in self._sent:
            return
        self._sent.add(number)
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)

    def close(self) -> None:
        self.end()
        os.close(self._pidfd)


@asynccontextmanager
async def child(
    folder: Path, port: int, seed: int, *options: str, module: str, checkout: Path = ROOT
) -> AsyncIterator[Child]:
    """Start a bot process of a checkout and make sure that it is gone afterwards."""
    with (folder / "child.log").open("ab") as log:
        data = str(folder / "data")
        command = [sys.executable, "-m", module, "--data", data, "--port", str(port)]
        command += ["--seed", str(seed), *options]
        async with await anyio.open_process(
            command, stdin=None, stderr=log, cwd=checkout, env=environment()
        ) as process:
            one = Child(process)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(one.listen)
                try:
                    yield one
                finally:
                    one.close()


async def crash_run(
    folder: Path, rounds: Rounds, stage: Stage, say: Callable[[str], None] = lambda _: None
) -> Report:
    """Run all rounds in *folder*, drain, judge. A child that ends by itself is a violation."""
    report, fate, began = Report(), random.Random(rounds.seed), time.monotonic()
    platform = stage.place(folder, rounds)
    start = partial(child, folder, module=stage.child)
    about = {"seed": rounds.seed, "forgets": rounds.forgets}
    write_about(folder, **about)
    always = ["--waits", str(rounds.scale), *stage.options]
    always += ["--stops"] if rounds.stops else []
    # the judge needs something to read
    last = [*always, "--forgets", str(DAY_S)] if rounds.forgets else always
    always += ["--forgets", str(rounds.forgets)] if rounds.forgets else []
    always += ["--brisk"] if rounds.within_s else []
    always += ["--asks"] if rounds.questions else []
    ends = random.Random(f"{rounds.seed} ends")
    async with background_tasks() as tasks:
        port: int = await tasks.start(platform.serve)
        tasks.start_soon(platform.talk)
        for number in range(rounds.count):
            death = Death.draw(fate, rounds.mean_s, stage.events)
            options = [*always, "--compact", fate.choice(rounds.compact)]
            if death.kind == "disk":
                options += ["--die-at", str(death.n)]
            end = End.draw(ends) if rounds.stops else End(rounds.signal, codes=(-rounds.signal,))
            async with start(port, fate.randrange(1 << 30), *options) as bot:
                await meet(bot, death, platform, end)
            await _note_exit(bot, death, report, end)
            if number % 10 == 9:
                say(f"round {number + 1}: {platform.accepted} messages accepted, {platform.posted} posts")
        platform.talking = False
        write_about(folder, **about, died_at=time.time(), within_s=rounds.within_s)
        async with start(port, fate.randrange(1 << 30), *last) as bot:
            if not await drained(bot, platform):
                report.violations.append(f"drain: {platform.owed} messages still owed")
        async with start(port, 0, *last) as bot:
            await meet(bot, Death("time", stage.mend_s), platform, End())
        platform.close()
    report.rounds, report.accepted, report.posts = rounds.count, platform.accepted, platform.posted
    counts, violations = await judge(folder, stage.judge)
    report.counts = counts
    report.violations += [*violations, *_logged(folder)]
    report.seconds = time.monotonic() - began
    return report


async def drained(bot: Child, platform: Place) -> bool:
    """Wait until nothing is owed; False when that takes too long or the process ends by itself."""
    done = False

    async def watch() -> None:
        nonlocal done
        await platform.until_settled()
        done = True
        tasks.cancel_scope.cancel()

    with anyio.move_on_after(DRAIN_S):
        async with background_tasks() as tasks:
            tasks.start_soon(watch)
            await bot.over.wait()
    return done


async def meet(bot: Child, death: Death, platform: Place, end: End) -> None:
    """Let the process live until its death comes."""
    with anyio.fail_after(START_S):
        await bot.starting.wait()
        if death.kind != "starting":
            await bot.ready.wait()
    if death.kind == "event":
        kills = 0 not in end.codes
        platform.trip = _Tripwire(death.event, death.n, partial(bot.end, end.signal), kills)
    with anyio.move_on_after(death.seconds):
        await bot.over.wait()
    bot.end(end.signal)
    with anyio.move_on_after(end.patience_s):
        await bot.over.wait()
    bot.end()
    platform.trip = lambda _: False
    with anyio.fail_after(START_S):
        await bot.over.wait()


async def judge(folder: Path, module: str, *options: str) -> tuple[dict[str, int], list[str]]:
    """Run the judge in a process of its own and return its counts and the violations it found."""
    with anyio.fail_after(600):
        done = await anyio.run_process(
            [sys.executable, "-m", module, *options, str(folder)], cwd=ROOT, env=environment(), check=False
        )
    *violations, last = done.stdout.decode().splitlines() or [""]
    if done.returncode not in (0, 1) or bool(done.returncode) != bool(violations):
        raise RuntimeError(f"the judge failed: {done.stderr.decode()}")
    counts: dict[str, int] = json.loads(last)
    return counts, violations


class _Tripwire:
    def __init__(self, event: str, left: int, end: Callable[[], None], kills: bool) -> None:
        self._event, self._left, self._end, self._kills = event, left, end, kills

    def __call__(self, event: str) -> bool:
        """Count a step; True when the process has just died of it."""
        self._left -= event == self._event
        dies = self._left == 0 and event == self._event
        if dies:
            self._end()
        return dies and self._kills


async def _note_exit(bot: Child, death: Death, report: Report, end: End) -> None:
    code = bot.process.returncode
    assert code is not None
    report.exits.append(code)
    killed_itself = death.kind == "disk" and code == -signal.SIGKILL
    if code not in end.codes and not killed_itself:
        report.violations.append(f"exit: a process ended with {code} ({death}, {end})")


def _logged(folder: Path) -> list[str]:
    """Return what the bot itself calls a bug in its log."""
    text = (folder / "child.log").read_text("utf-8", "replace")
    marks = ("actor crashed", "transport failed to post")
    return [f"log: {line}" for line in text.splitlines() if any(mark in line for mark in marks)][:20]
