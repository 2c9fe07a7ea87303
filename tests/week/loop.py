"""An event loop over real sockets in virtual time, for a process whose time is a `tests.week.clock.Clock`.

When no socket is ready the clock moves to the next timer. What is sent over loopback is there at once, and what the
program gives to a thread is done in the loop, so nothing is on its way while the clock moves.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from asyncio.base_subprocess import BaseSubprocessTransport
from collections.abc import Callable
from typing import Any

import anyio.lowlevel
from anyio._backends._asyncio import AsyncIOBackend
from discord.gateway import KeepAliveHandler

from tests.week.clock import Clock
from threads.store.disk_threads import DiskThreads, _Job


class Deadlock(RuntimeError):
    """Nothing is ready, and no timer is set."""


class _Jump(selectors.EpollSelector):
    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        while not ready and timeout != 0 and Clock.children:  # these live in real time
            ready = super().select(0.01)
        if not ready and timeout != 0:
            if timeout is None:
                raise Deadlock
            self._clock.now += max(timeout, 1e-9)
        return ready


class Loop(asyncio.SelectorEventLoop):
    def __init__(self, clock: Clock) -> None:
        super().__init__(_Jump(clock))

    def run_in_executor(self, _: object, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        done = self.create_future()
        try:
            done.set_result(function(*args))
        except Exception as error:  # noqa: BLE001 - raised in the caller
            done.set_exception(error)
        return done


def without_threads() -> None:
    """Let the loop do what would be done in a thread. Time does not move meanwhile."""

    async def run_sync(_: object, function: Any, args: Any, **__: object) -> Any:
        await anyio.lowlevel.checkpoint()
        return function(*args)

    def start(self: DiskThreads, call: Callable[[], object]) -> _Job:
        job = _Job(call, self._loop.create_future())
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - raised in the caller
            job.error = error
        self._loop.call_soon(self._finish, job)
        return job

    def beat(handler: KeepAliveHandler) -> None:
        async def run() -> None:
            await asyncio.sleep(handler.interval)
            while not handler._stop_ev.is_set():
                if handler._last_recv + handler.heartbeat_timeout < time.perf_counter():
                    await handler.ws.close(4000)
                    return
                await handler.ws.send_heartbeat(handler.get_payload())
                handler._last_send = time.perf_counter()
                await asyncio.sleep(handler.interval)

        handler.task = asyncio.get_running_loop().create_task(run())
        stop = handler.stop
        handler.stop = lambda: stop() or handler.task.cancel()

    begin_child, end_child = BaseSubprocessTransport.__init__, BaseSubprocessTransport._process_exited

    def born(self: BaseSubprocessTransport, *args: Any, **rest: Any) -> None:
        Clock.children += 1
        begin_child(self, *args, **rest)

    def gone(self: BaseSubprocessTransport, code: int) -> None:
        Clock.children -= 1
        end_child(self, code)

    BaseSubprocessTransport.__init__, BaseSubprocessTransport._process_exited = born, gone
    AsyncIOBackend.run_sync_in_worker_thread = classmethod(run_sync)
    DiskThreads._start = start
    KeepAliveHandler.start = beat
