"""One run: processes that live and die over one disk and one platform, until nothing is pending."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from unittest.mock import patch

import anyio
import anyio.lowlevel
from anyio._core._eventloop import set_current_async_library

import bot.budget.ledger
import threads.journal.journal
from bot.budget.ledger import Ledger
from bot.config.settings import Recovery
from bot.guards.redaction import Masker
from bot.host.storage import Resources
from bot.observe.turn_events import Observing
from bot.ports.errors import ProviderError
from bot.ports.model import Request
from bot.schedules.store import Schedules
from bot.store.model_choice import ModelChoices, ModelsFile
from bot.wiring.core import Core, Parts, open_core
from tests.tool_context import make_toolbox
from tests.world import core_parts
from threads.background import background_tasks
from threads.errors import BotError
from threads.model import Outgoing
from threads.store.json_file import JsonFiles

from .disk import SimDisk
from .fate import Fate
from .loop import SimLoop
from .model import ModelBug, Peek, SimModel
from .page import Page, as_page
from .plan import STACK_COMMANDS, START, draw
from .platform import Platform, TransportBug
from .plays import PLAY_COMMANDS, PlayWatch, WatchedPeek, start_returns, with_plays
from .record import Record
from .retention import FORGET, Forgetting
from .stack import ADMIN, STRANGER, SimModelChain, Stack, draw_stack
from .write_ahead import WriteAhead

DATA = Path("/srv/bot")
PAGED = 0.15
"""The share of seeds in which people talk on the page."""

STACKED = 0.4
"""The share of seeds with the real model layer."""

FORGETTING = 0.4
"""The share of seeds in which the bot forgets."""

PLAYING = 0.6
"""The share of those in which people play playbooks."""

DRAIN_S = 4 * 3600.0
"""Far more than all retries, time-outs and waits of one thread's queue add up to."""

STOPS_WITHIN_S = 30.0

EXPECTED = (OSError, ProviderError, BotError, ModelBug, TransportBug)
"""What the world itself throws into the bot; any other logged exception is a bug of the bot's."""


class World:
    def __init__(self, seed: int) -> None:
        self._rng = random.Random(f"{seed} world")
        plan = random.Random(f"{seed} plan")
        on_page = random.Random(f"{seed} page").random() < PAGED
        finds = plan.random() < 0.6
        self.record = Record(find=finds or on_page, busy=plan.choice(("steer", "steer", "queue")))
        more = random.Random(f"{seed} stack")
        stacked = more.random() < STACKED
        self._plays = stacked and random.Random(f"{seed} plays").random() < PLAYING
        self.stack = draw_stack(more, self.record, plays=self._plays) if stacked else None
        commands = (*STACK_COMMANDS, *(PLAY_COMMANDS if self._plays else ())) if stacked else ()
        forgets = random.Random(f"{seed} retention").random() < FORGETTING
        commands += (FORGET,) * 20 if forgets else ()
        self.plan = draw(plan, self.record, commands, plays=self._plays)
        self.record.mailbox, self.record.max_age_s = self.plan.limits.mailbox, self.plan.max_age_s
        if on_page:
            as_page(self.plan)
        self.fate = Fate(random.Random(f"{seed} fate"), self.record)
        self.fate.now = START
        self.disk = SimDisk(self.fate, self.plan.faults, DATA)
        self.platform = (Page if on_page else Platform)(
            self.plan, self.fate, self.record, WriteAhead(self.disk, DATA, self.record)
        )
        self._watch = PlayWatch(self.disk, DATA, self.record)
        self._tools = [WatchedPeek(self.fate, self._watch) if self._plays else Peek(self.fate)]
        self._toolbox = make_toolbox(self._tools)
        self._forgetting = Forgetting(seed, self.disk, DATA, self.fate, self.record) if forgets else None
        self._calm = False
        self._returns: Schedules | None = None
        self.platform.people = self._people

    def run(self) -> None:
        """Live through all that the plan holds, then once more with nothing to fear and everything repeated."""
        lives = list(self.plan.lives)
        with _settings(self.plan.compact_above, self.stack, self._forgetting), _listening(self.record):
            while not self._live(*(lives.pop(0) if lives and not self._calm else (0, False))):
                self.record.restarts += 1
                if self.record.restarts > 200:
                    raise RuntimeError("the process never stays up")
            if self._rng.random() < 0.3:
                self.platform.deliver_all_again()
                self._live(0, gently=False)
        if self._rng.random() < 0.5:
            self.disk.power_cut()  # what is settled stays settled

    def _live(self, operations: int, gently: bool) -> bool:
        """Run one process; return whether it served to the end."""
        loop = SimLoop(self._rng, self.fate.now)
        self.fate.live(operations, gently=gently)
        self.fate.clock, self.fate.stop_loop = loop.time, loop.stop
        self.platform.open()
        life = loop.create_task(self._process(), name="process")
        life.add_done_callback(self._over)
        try:
            loop.run_forever()
            died, self.fate.dead, self.fate.now = self.fate.dead, True, loop.now
            left = [task.get_name() for task in asyncio.all_tasks(loop)]
            life.remove_done_callback(self._over)
            loop.bury()
        finally:
            self.fate.clock = lambda: self.fate.now
            loop.close()
        if died:  # perhaps while it was being asked to stop
            self._after_death()
            return False
        self.record.violations += [f"left-over task {name}" for name in left]
        self.record.violations += [f"loop error {context}" for context in loop.errors]
        return self._outcome(life) and not self._left()

    def _left(self) -> bool:
        """Restart a process that ended because it was asked to."""
        if self.fate.leaving:
            self.record.deaths.append(self.fate.now)
            self.platform.process_died()
            self._pause_before_restart()
        return self.fate.leaving

    def _leave(self, scope: anyio.CancelScope) -> None:
        scope.cancel()
        asyncio.get_running_loop().call_later(STOPS_WITHIN_S, self._too_slow)

    def _too_slow(self) -> None:
        self.record.violations.append(f"asked to stop, still there after {STOPS_WITHIN_S} s")
        self.fate.stop_loop()

    def _over(self, _: asyncio.Task[None]) -> None:
        self.fate.stop_loop()

    def _outcome(self, life: asyncio.Task[None]) -> bool:
        error = None if life.cancelled() else life.exception()
        if error is None:
            return True
        self.fate.now += self._rng.uniform(1, 10)
        if not isinstance(error, OSError) and not (
            isinstance(error, BaseExceptionGroup) and error.split(OSError)[1] is None
        ):
            raise error
        self.platform.process_died()
        return False

    def _after_death(self) -> None:
        self.record.deaths.append(self.fate.now)
        if self._rng.random() < 0.5:
            self.disk.kill()
        else:
            self.fate.note("power cut")
            self.disk.power_cut()
        self.platform.process_died()
        self._pause_before_restart()

    def _pause_before_restart(self) -> None:
        self.fate.now += self._rng.choice((0.1, 1.0, 5.0, 5.0, 100.0, 900.0)) * self._rng.random()
        self.fate.note("restart")

    async def _process(self) -> None:
        set_current_async_library("asyncio")  # as `anyio.run` does: else it is looked up at every call
        async with background_tasks() as tasks, AsyncExitStack() as opened:
            self.fate.leave = partial(self._leave, tasks.cancel_scope)
            self.model = await self._open_model(tasks)
            self.model.calm = self._calm
            returns = None
            parts = core_parts(
                DATA,
                self.platform,
                self.model,
                self._toolbox,
                disk=self.disk,
                offload=self._offload,
                now=self._now,
                agent=self._agent(),
                limits=self.plan.limits,
                recovery=Recovery(max_age_s=self.plan.max_age_s, resume=self.plan.resume),
            )
            if isinstance(self.model, SimModelChain) and self._plays:
                parts, returns = await self._with_plays(parts, self.model)
            if self._forgetting:
                parts = await opened.enter_async_context(self._forgetting.open(parts, self._offload, returns))
            core = await open_core(tasks, parts)
            self._look_into(core)
            receive = core.orchestrator.receive
            receive = self._forgetting.receiving(receive) if self._forgetting else receive
            tasks.start_soon(self.platform.serve, receive, name="platform")
            if returns:
                start_returns(tasks, core, parts, returns, self.record, self.plan.max_age_s)
                self._returns = returns
            await self._until_nothing_is_owed(core)

    def _look_into(self, core: Core) -> None:
        """Watch what only the inside shows: that mailboxes keep their bound."""
        actors = core.registry.actors
        bound = max(self.plan.limits.mailbox, len(core.journal.ledger.pending))

        def watch() -> None:
            for thread, actor in actors.items():
                if len(actor.mailbox) > bound:
                    self.record.violations.append(f"{thread}: {len(actor.mailbox)} waiting, bound {bound}")

        self.platform.watch = watch
        self.platform.settled_on_disk = core.journal.ledger.settled.keys()

    async def _until_nothing_is_owed(self, core: Core) -> None:
        deadline = max(self.plan.calm_at, anyio.current_time()) + DRAIN_S
        while self._is_busy(core):
            await anyio.sleep(11)
            if anyio.current_time() > self.plan.calm_at:
                self._calm = self.platform.calm = self.model.calm = self.plan.faults.over = True
                self.fate.live(0)
            if anyio.current_time() > deadline:
                self.record.violations.append(f"never settled: {list(core.journal.ledger.pending)}")
                return
        await anyio.sleep(2 * self.plan.limits.idle_timeout_s + 60)
        if len(core.registry):
            self.record.violations.append(f"{len(core.registry)} actors after the idle time")
        if isinstance(self.model, SimModelChain):
            self.record.violations += self.model.left_over()

    def _is_busy(self, core: Core) -> bool:
        returns = self._returns.all if self._returns else ()
        pending = core.journal.ledger.pending
        return bool(not self._calm or not self.platform.quiet or pending or returns)

    async def _with_plays(self, parts: Parts, chain: SimModelChain) -> tuple[Parts, Schedules]:
        resources = Resources(self.disk, self._offload, self._offload, self._now, Masker(), Observing())
        states = JsonFiles(self.disk, DATA, self._offload)
        return await with_plays(parts, chain, self._tools, states, resources)

    async def _open_model(self, tasks: anyio.abc.TaskGroup) -> SimModel | SimModelChain:
        """Return the bare model, or open all that stands before the real stack's."""
        if self.stack is None:
            return SimModel(self.plan, self.fate, self.record)
        disk, offload = self.disk, self._offload
        ledger = Ledger(disk, DATA / "usage", offload=offload, now=self._now, names=disk.names)
        await offload(ledger.open)
        chosen = ModelChoices(await JsonFiles(disk, DATA, offload).open("models", ModelsFile()))
        tasks.start_soon(ledger.run, name="ledger")
        return SimModelChain(
            self.stack,
            self.plan,
            self.fate,
            self.record,
            ledger=ledger,
            chosen=chosen,
            tools=self._toolbox.specs,
            now=self._now,
            watch=self._watch if self._plays else None,
        )

    def _agent(self) -> dict[str, object]:
        if self.stack is None:
            return {"max_steps": 8}
        given = self.stack.settings
        return {
            "max_steps": 8,
            "empty": Request("", (), max_tokens=given.max_tokens),
            "compaction": given.compaction,
            "footer": given.budget.footer,
        }

    def _people(self, outgoing: Outgoing) -> Iterator[tuple[float, str, str]]:
        """Say what people do about a post with choices: the right ones, the wrong ones, in time, late, or nothing."""
        rng = self.fate.rng
        commands = [choice.command for choice in outgoing.choices]
        yield from self._forgetting.answers(outgoing) if self._forgetting else ()
        if self.stack is None or not commands:
            return
        if self._calm:
            if "?" in outgoing.key:
                approve = " ".join(commands[0].split()[:2])
                yield rng.uniform(0, 5), ADMIN, rng.choice((f"{approve} 0.03", commands[1]))
            return
        if rng.random() < self.stack.silent:
            return
        if "?" in outgoing.key:
            approve = " ".join(commands[0].split()[:2])
            commands += [*commands[1:], *[f"{approve} 0.03"] * 4, "/approve", "/deny", f"{approve} plenty"]
        asker = self.record.sent[outgoing.key.partition("?")[0]].author
        for _ in range(rng.choice((1, 1, 2, 3))):
            text = rng.choice(commands)
            author = rng.choice((ADMIN, ADMIN, asker, STRANGER))
            yield rng.choice((0.1, 5.0, 5.0, 60.0, 4000.0)) * rng.random(), author, text

    async def _offload(self, function, /, *args, **kwargs):
        """Run *function* here, as if in a thread: it takes a while, and finishes though its caller is gone."""
        latency = self.plan.disk_latency
        if latency == "none" or (latency == "fast" and self.fate.rng.random() < 0.3):
            return function(*args, **kwargs)
        await anyio.lowlevel.checkpoint()
        early = self.fate.rng.random() < 0.5
        with anyio.CancelScope(shield=True):
            if not early:
                await anyio.sleep(self._pause(latency))
            result = function(*args, **kwargs)
            if early:
                await anyio.sleep(self._pause(latency))
        return result

    def _pause(self, latency: str) -> float:
        long = latency == "slow" and not self._calm and self.fate.rng.random() < 0.1
        return self.fate.rng.random() * (6.0 if long else 0.01)

    def _now(self) -> datetime:
        return datetime(2026, 11, 21, 10, tzinfo=UTC) + timedelta(seconds=self.fate.clock() - START)


@contextmanager
def _settings(compact_above: int, stack: Stack | None, forgetting: Forgetting | None) -> Iterator[None]:
    new_file_above = stack.new_file_above if stack else bot.budget.ledger.BEGIN_ANEW_ABOVE
    with (
        patch.object(threads.journal.journal, "COMPACT_ABOVE", compact_above),
        patch.object(bot.budget.ledger, "BEGIN_ANEW_ABOVE", new_file_above),
        forgetting.prepared() if forgetting else nullcontext(),
    ):
        yield


class _Listener(logging.Handler):
    """Takes every logged exception that the world did not throw for a bug."""

    def __init__(self, record: Record) -> None:
        super().__init__(logging.ERROR)
        self._record = record

    def emit(self, line: logging.LogRecord) -> None:
        error = line.exc_info[1] if line.exc_info else getattr(line, "error", None)
        if "actor crashed" in line.getMessage() or not isinstance(error, EXPECTED):
            self._record.violations.append(f"logged: {line.getMessage()} {error!r}")


@contextmanager
def _listening(record: Record) -> Iterator[None]:
    listener = _Listener(record)
    loggers = [logging.getLogger(name) for name in ("bot", "threads", "transports")]
    before = [(logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.addHandler(listener)
        logger.setLevel(logging.ERROR)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, (level, propagate) in zip(loggers, before, strict=True):
            logger.removeHandler(listener)
            logger.setLevel(level)
            logger.propagate = propagate
