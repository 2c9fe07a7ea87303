"""Graceful shutdown on SIGTERM or Ctrl-C.

| state    | event                        | action                                               | next     |
|----------|------------------------------|------------------------------------------------------|----------|
| starting | signal                       | cancel everything; nothing has begun                 | over     |
| starting | the bot serves               |                                                      | serving  |
| serving  | signal                       | begin no new turn; messages still go to disk         | draining |
| draining | the last running turn ends   | close the links, cancel the rest                     | over     |
| draining | ``drain_s`` seconds pass     | the same; the next start resumes what was cut off    | over     |
| draining | second signal                | the process dies at once                             |          |

A turn that waits for a person or for a provider holds no slot, so the shutdown does not wait for it. No promise
depends on a graceful shutdown: unfinished work is in the journal, and the next start does it.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NoReturn

import anyio
from anyio.abc import TaskStatus

from bot.observe.live_parts import LiveParts
from threads.background import background_tasks

log = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT)
LOOK_S = 0.05


class Stop:
    """The shutdown of one process. ``asked`` is set by the first signal. Turns then have ``drain_s`` seconds."""

    def __init__(self, drain_s: float) -> None:
        self.asked = anyio.Event()
        self._drain_s = drain_s
        self._serving = False

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run *work* until it ends or a signal arrives. *work* enters `draining` while it serves."""
        async with background_tasks() as tasks:
            await tasks.start(self._listen, tasks.cancel_scope)
            await work()

    @asynccontextmanager
    async def draining(self, live: LiveParts, on_stop: Callable[[float], object]) -> AsyncIterator[None]:
        """Serve in this block. After a signal, it is cancelled without an error once the turns have ended.

        *on_stop* is called with the seconds that turns have.
        """
        async with background_tasks() as tasks:
            tasks.start_soon(self._drain, live, on_stop, tasks.cancel_scope)
            self._serving = True
            yield

    async def _listen(
        self, everything: anyio.CancelScope, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        with anyio.open_signal_receiver(*SIGNALS) as signals:
            task_status.started()
            async for number in signals:
                if self.asked.is_set():
                    _die_by_signal(number)
                self.asked.set()
                if not self._serving:
                    everything.cancel()

    async def _drain(
        self, live: LiveParts, on_stop: Callable[[float], object], served: anyio.CancelScope
    ) -> None:
        await self.asked.wait()
        on_stop(self._drain_s)
        live.slots.close()
        log.info("process.stopping", extra={"running": live.slots.running, "drain_s": self._drain_s})
        with anyio.move_on_after(self._drain_s):
            while live.slots.running or live.registry.settling:  # noqa: ASYNC110 - turns come and go, without an event
                await anyio.sleep(LOOK_S)
        log.info(
            "process.drained", extra={"cut": live.slots.running, "pending": len(live.journal.ledger.pending)}
        )
        served.cancel()


def _die_by_signal(number: int) -> NoReturn:
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(128 + number)  # process 1 of a container ignores the signal
