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
from typing import Protocol

import anyio

from bot.extensions.retention.due import Step
from bot.extensions.retention.settings import Retention
from bot.host.extension import Host
from threads.errors import NewerSchema, StoreUnavailable
from threads.model import Inbound, Outcome, Sink

log = logging.getLogger(__name__)

LOOK_EVERY_S = 3600.0
QUIET_S = 300.0
PATIENCE_S = 24 * 3600.0
PAUSE_S = 1.0


class Kept(Protocol):
    """What a store keeps."""

    def due(self, rules: Retention) -> list[Step]:
        """Return what is due now. Blocking. Raises OSError."""

    async def take(self, step: Step) -> bool:
        """Forget it, and return True; False if its thread is not idle. Raises OSError and `StoreUnavailable`."""


class Sweep:
    """The background work of one bot."""

    def __init__(self, host: Host, kept: Kept, rules: Retention) -> None:
        self._host, self._kept, self._rules = host, kept, rules
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
            for step in await self._host.work(self._kept.due, self._rules):
                await self._quiet(until)
                if await self._kept.take(step):
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
