"""Calls of the library, each in its own task: a caller may give up, the call runs to its end.

A cancelled call of the library does harm: in a global limit it leaves all others waiting for ever, and in a bucket it
blocks those behind it. So a caller's cancellation or deadline stops a call only before it begins. Each request has a
time limit and five tries, so every call ends. Calls with the same ``line`` are made in order: a slow edit must not
overtake, and undo, the next one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

import anyio
from anyio.abc import TaskGroup

from threads.errors import PostFailed, TransportUnavailable
from transports.discord.api.sdk import on_sent

T = TypeVar("T")

URGENT_AT_ONCE, COSMETIC_AT_ONCE = 64, 32
"""Calls at a time. Discord takes 50 a second; more than these wait for a bucket, or hang."""
OPENINGS_AT_ONCE = 32
"""Threads opened at a time: Discord's limit on them is tight, and other posts must not wait for it."""

Explain = Callable[[str, Exception, bool], PostFailed]
"""Returns our error for the library's, given the call, and whether a request went out."""


@dataclass(slots=True, eq=False)
class _Call(Generic[T]):
    name: str
    line: str
    work: Callable[[], Awaitable[T]]
    failed: PostFailed
    """The error to raise; until the call ends, that its outcome is unknown."""
    sent: bool = False
    results: list[T] = field(default_factory=list)
    done: anyio.Event = field(default_factory=anyio.Event)
    waiting: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    running: anyio.CancelScope = field(default_factory=lambda: anyio.CancelScope(shield=True))

    def note_sent(self) -> None:
        self.sent = True


class UncancelledCalls:
    """Runs calls in *tasks*, which must outlive the callers."""

    def __init__(self, tasks: TaskGroup, explain: Explain) -> None:
        self._tasks, self._explain = tasks, explain
        self._urgent = anyio.Semaphore(URGENT_AT_ONCE, fast_acquire=True)
        self._cosmetic = anyio.Semaphore(COSMETIC_AT_ONCE, fast_acquire=True)
        self._openings = anyio.Semaphore(OPENINGS_AT_ONCE, fast_acquire=True)
        self._lines: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()
        self._open: set[_Call[Any]] = set()

    @property
    def full(self) -> bool:
        """Whether a cosmetic call would have to wait."""
        return self._cosmetic.value == 0

    async def make(
        self,
        name: str,
        work: Callable[[], Awaitable[T]],
        *,
        line: str = "",
        urgent: bool = True,
        within: float,
        posts: bool = False,
        opens: bool = False,
    ) -> T:
        """Do *work* and return its result. Raises `PostFailed` only.

        *posts*: a call that is given up after *within* seconds may still post.
        """
        late = TransportUnavailable(f"{name}: not done within {within:.0f} s", maybe_posted=posts)
        call = _Call(name, line, work, late)
        room = self._openings if opens else self._urgent if urgent else self._cosmetic
        self._tasks.start_soon(self._run, call, room)
        try:
            with anyio.move_on_after(within):
                await call.done.wait()
        finally:
            call.waiting.cancel()
        if call.results:
            return call.results[0]
        raise call.failed

    async def close(self, within: float) -> None:
        """Wait for open calls, and cancel those that are not done in time."""
        with anyio.move_on_after(within):
            for call in list(self._open):
                await call.done.wait()
        for call in self._open:
            call.running.cancel()

    async def _run(self, call: _Call[T], room: anyio.Semaphore) -> None:
        # The lock of a line is forgotten with the last call that holds it or waits for it.
        lock = (
            self._lines.setdefault(call.line, anyio.Lock(fast_acquire=True)) if call.line else nullcontext()
        )
        try:
            with call.waiting:
                async with lock, room:
                    self._open.add(call)
                    with call.running:
                        await self._do(call)
        finally:
            self._open.discard(call)
            call.done.set()

    async def _do(self, call: _Call[T]) -> None:
        on_sent.set(call.note_sent)
        try:
            call.results.append(await call.work())
        except Exception as error:  # noqa: BLE001  the boundary of a transport: whatever broke, the call failed
            call.failed = self._explain(call.name, error, call.sent)
