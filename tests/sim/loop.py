"""An event loop in virtual time: when nothing is ready it moves the clock to the next timer instead of sleeping.

Ready task steps run in a seeded random order; plain callbacks keep theirs. Nothing ready and no timer is a deadlock,
threads are an error, and so is every look at the real clock: the same seed gives the same run.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from inspect import CORO_CREATED, getcoroutinestate
from typing import Any, NoReturn

import pytest


class Deadlock(RuntimeError):
    """Every task waits for another one."""


class SimTask(asyncio.Task):
    """A task that knows its place in the order of creation: sets of tasks iterate by address, which no seed fixes."""

    __slots__ = ("order",)


class _Jump:
    """Stands where the selector is: there is no I/O, so waiting is moving the clock."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise Deadlock("nothing is ready and no timer is set")
        self._loop.now += timeout
        return []


class SimLoop(asyncio.BaseEventLoop):
    def __init__(self, rng: random.Random, start: float) -> None:
        super().__init__()
        self.now = start
        self.rng = rng
        self.errors: list[dict[str, Any]] = []
        self._clock_resolution = 1e-9
        self._selector = _Jump(self)
        self._born = 0
        self.set_exception_handler(lambda _, context: self.errors.append(context))
        self.set_task_factory(self._make_task)

    def time(self) -> float:
        return self.now

    def run_in_executor(self, *_: object) -> NoReturn:
        raise RuntimeError("no threads in virtual time")

    def call_soon_threadsafe(self, *_: object, **__: object) -> NoReturn:
        raise RuntimeError("no threads in virtual time")

    def _make_task(self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **rest: Any):
        task = SimTask(coroutine, loop=loop, **rest)
        self._born += 1
        task.order = self._born
        return task

    def _process_events(self, events: list[Any]) -> None:
        assert not events

    def _run_once(self) -> None:
        ready = self._ready
        if len(ready) > 1:
            steps = [
                (task.order, place, handle)
                for place, handle in enumerate(ready)
                if type(task := getattr(handle._callback, "__self__", None)) is SimTask
            ]
            if len(steps) > 1:
                handles = [handle for _, _, handle in sorted(steps, key=lambda step: step[0])]
                self.rng.shuffle(handles)
                for (_, place, _), handle in zip(steps, handles, strict=True):
                    ready[place] = handle
        super()._run_once()

    def bury(self) -> None:
        """Cancel what is left and run it to its end, so that nothing of a dead process outlives it."""
        for _ in range(1000):
            left = sorted(asyncio.all_tasks(self), key=lambda task: task.order)
            if not left:
                return
            for task in left:
                if getcoroutinestate(task.get_coro()) != CORO_CREATED:  # else its coroutine is never awaited
                    task.cancel()
            self.call_later(1.0, self.stop)
            self.run_forever()
        raise RuntimeError(f"tasks that do not end: {left}")


@pytest.fixture
def virtual_time() -> tuple[str, dict[str, Any]]:
    """The `anyio_backend` of a module that assigns it to this name; its clock starts at 1,000 s."""
    return "asyncio", virtual_loop(1)


def virtual_loop(seed: int) -> dict[str, Any]:
    """Return the options with which `anyio.run` runs in virtual time."""
    return {"loop_factory": lambda: SimLoop(random.Random(seed), 1000.0)}
