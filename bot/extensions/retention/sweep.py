"""Forgets what is old while the bot runs: one small step after the other, when nobody writes.

| when                                              | what happens                                                |
|---------------------------------------------------|-------------------------------------------------------------|
| an hour after the last look, or at the start      | look what is due (`bot.extensions.retention.due`)           |
| something is due, and nobody wrote for 5 minutes  | one step, then a pause of a second                          |
| the same, and somebody writes                     | wait for a quiet time, a day at most                        |
| something was said in the thread meanwhile        | leave it                                                    |
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from datetime import timedelta
from functools import partial
from pathlib import Path

import anyio

from bot.extensions.retention.due import Step, steps
from bot.extensions.retention.rewritten_lines import drop_messages, sum_calls
from bot.extensions.retention.settings import Retention
from bot.extensions.retention.thread_parts import erase, quiet_since
from bot.host.extension import Host
from threads.errors import NewerSchema, StoreUnavailable
from threads.model import Inbound, Outcome, Sink

log = logging.getLogger(__name__)

LOOK_EVERY_S = 3600.0
QUIET_S = 300.0
PATIENCE_S = 24 * 3600.0
PAUSE_S = 1.0
QUIET_THREAD = timedelta(days=1)
"""How long nothing was said in a thread whose history is rewritten."""


class Sweep:
    """The background work of one bot."""

    def __init__(self, host: Host, rules: Retention) -> None:
        self._host, self._rules, self._data = host, rules, host.settings.data
        self._heard_at, self._is_served = -math.inf, anyio.Event()

    def receiving(self, sink: Sink) -> Sink:
        """Return the sink of all events, which notes when somebody writes. Threads are served from now on."""
        self._is_served.set()

        async def heard(event: Inbound) -> Outcome | None:
            self._heard_at = anyio.current_time()
            return await sink(event)

        return heard

    async def run(self) -> None:
        """Look and forget until cancelled."""
        await self._is_served.wait()
        while True:
            await self.look()
            await anyio.sleep(LOOK_EVERY_S)

    async def look(self) -> None:
        """Take all that is due now."""
        took, until = Counter[str](), anyio.current_time() + PATIENCE_S
        try:
            due = await self._host.work(lambda: [*steps(self._data, self._rules, self._host.now())])
            for step in due:
                await self._quiet(until)
                if await self._take(step):
                    took[step.kind] += step.count
                await anyio.sleep(PAUSE_S)
        except (OSError, StoreUnavailable, NewerSchema) as error:
            log.warning("retention.failed: trying again in an hour: %s", error)
        if took:
            log.info("retention.forgot: %s", ", ".join(f"{count:,} {kind}" for kind, count in took.items()))

    async def _quiet(self, until: float) -> None:
        """Return once nobody has written for a while, or at that time."""
        while (at := min(self._heard_at + QUIET_S, until)) > anyio.current_time():  # noqa: ASYNC110 - it moves on
            await anyio.sleep_until(at)

    async def _take(self, step: Step) -> bool:
        """Take one step. Returns whether it was taken."""
        host = self._host
        if step.folder is None:
            work = partial(sum_calls, host.disk) if step.kind == "spending" else Path.unlink
            await host.work(work, step.path)
            return True
        taken = False

        async def work_on_thread() -> None:
            nonlocal taken
            taken = await host.work(self._take_of_thread, step)

        return await host.erase(step.folder.thread, work_on_thread) and taken

    def _take_of_thread(self, step: Step) -> bool:
        """Erase a part of a thread, unless something was said there meanwhile. Blocking."""
        assert step.folder
        quiet = quiet_since(step.folder.path)
        if quiet > step.folder.quiet_since:
            return False
        if step.part:
            erase(self._host.disk, step.folder.path, [step.part])
        elif self._host.now() - quiet >= QUIET_THREAD:
            drop_messages(self._host.disk, step.folder.path / "log.jsonl", step.ids)
        return True
