"""Ending a serving process on SIGTERM or Ctrl-C, so that people notice as little as can be.

| state    | event                             | what is done                                             | to       |
|----------|-----------------------------------|----------------------------------------------------------|----------|
| starting | a signal                          | everything is cancelled: nothing was begun               | over     |
| starting | the bot serves                    |                                                          | serving  |
| serving  | a signal                          | no turn is begun any more; what comes is kept, not begun | draining |
| draining | the last running turn is settled  | the links are closed, then all else is cancelled         | over     |
| draining | ``drain_s`` have passed           | the same; what was cut is resumed by the next start      | over     |
| draining | a second signal                   | the process dies of it, at once                          |          |

A turn that waits, for a person or for a provider that is down, holds no slot, and is not waited for. No promise
depends on any of this: whatever is not done is in the journal, and the next start does it.
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

from bot.observe.live_parts import Live

log = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT)
LOOK_S = 0.05


class Stop:
    """The end of one process. ``asked`` is set with the first signal; ``drain_s`` is how long turns then have."""

    def __init__(self, drain_s: float) -> None:
        self.asked = anyio.Event()
        self._drain_s = drain_s
        self._serving = False

    async def over(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do *work*, which enters `draining` while it serves, to its end or until a signal comes."""
        async with anyio.create_task_group() as tasks:
            await tasks.start(self._listen, tasks.cancel_scope)
            await work()
            tasks.cancel_scope.cancel()

    @asynccontextmanager
    async def draining(self, live: Live, on_stop: Callable[[float], object]) -> AsyncIterator[None]:
        """Serve in this block: it is cancelled, without an error, when a stop was asked for and turns have ended.

        *on_stop* is told of the stop, and of how long turns have.
        """
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._drain, live, on_stop, tasks.cancel_scope)
            self._serving = True
            yield
            tasks.cancel_scope.cancel()

    async def _listen(
        self, everything: anyio.CancelScope, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        with anyio.open_signal_receiver(*SIGNALS) as signals:
            task_status.started()
            async for number in signals:
                if self.asked.is_set():
                    _die_of(number)
                self.asked.set()
                if not self._serving:
                    everything.cancel()

    async def _drain(self, live: Live, on_stop: Callable[[float], object], served: anyio.CancelScope) -> None:
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


def _die_of(number: int) -> NoReturn:
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(128 + number)  # the first process of a container does not die of a signal
