"""Calls of the library, each in a task of its own: who waits may give up, the call itself runs to its end.

A cancelled call of the library does harm: one that sleeps through a global limit leaves every other waiting for ever,
and one that waits for its bucket keeps the place of those behind. So a caller's cancel or deadline takes a call back
only while it has not begun. What has begun ends by itself: each request has its time limit and is tried five times.

Calls with the same ``line`` are made one after another, in order: an edit that the library tries again for half a
minute must not overtake, and undo, the edit that came after it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import anyio
from anyio.abc import TaskGroup

from threads.errors import PostFailed, TransportUnavailable
from transports.discord.api.sdk import on_sent

T = TypeVar("T")

URGENT_AT_ONCE, COSMETIC_AT_ONCE = 64, 32
"""How many calls may be under way. Discord takes 50 a second; more than these wait for a bucket, or hang."""
OPENINGS_AT_ONCE = 32
"""Threads that are opened at a time: Discord's limit on them is tight, and posts elsewhere must not wait for it."""

Explain = Callable[[str, Exception, bool], PostFailed]
"""Makes our error of the library's; told the call, and whether a request of it went out."""


@dataclass(slots=True, eq=False)
class _Call(Generic[T]):
    name: str
    line: str
    work: Callable[[], Awaitable[T]]
    failed: PostFailed
    """What is raised; until the call has ended, that nobody knows how it ended."""
    sent: bool = False
    results: list[T] = field(default_factory=list)
    done: anyio.Event = field(default_factory=anyio.Event)
    waiting: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    running: anyio.CancelScope = field(default_factory=lambda: anyio.CancelScope(shield=True))

    def note_sent(self) -> None:
        self.sent = True


class UncancelledCalls:
    """Runs calls in *tasks*, which must outlive those who wait for them."""

    def __init__(self, tasks: TaskGroup, explain: Explain) -> None:
        self._tasks, self._explain = tasks, explain
        self._urgent = anyio.Semaphore(URGENT_AT_ONCE, fast_acquire=True)
        self._cosmetic = anyio.Semaphore(COSMETIC_AT_ONCE, fast_acquire=True)
        self._openings = anyio.Semaphore(OPENINGS_AT_ONCE, fast_acquire=True)
        self._lines: dict[str, _Line] = {}
        self._open: set[_Call[Any]] = set()

    def room(self, *, urgent: bool) -> bool:
        """Return whether such a call could begin at once, but for its line."""
        return (self._urgent if urgent else self._cosmetic).value > 0

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
        """Do *work* and return its result. Raises `PostFailed`, and nothing else.

        *posts*: a call that is given up after *within* seconds may have posted something, or will.
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
        """Wait for what is under way, and give up what is not done by then."""
        with anyio.move_on_after(within):
            for call in list(self._open):
                await call.done.wait()
        for call in self._open:
            call.running.cancel()

    async def _run(self, call: _Call[T], room: anyio.Semaphore) -> None:
        try:
            with call.waiting:
                async with self._turn(call.line), room:
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

    @asynccontextmanager
    async def _turn(self, name: str) -> AsyncIterator[None]:
        """Wait for those before in the line of that name; without a name there is none."""
        if not name:
            yield
            return
        line = self._lines.setdefault(name, _Line())
        line.length += 1
        try:
            async with line.lock:
                yield
        finally:
            line.length -= 1
            if not line.length:
                del self._lines[name]


@dataclass(slots=True)
class _Line:
    length: int = 0
    lock: anyio.Lock = field(default_factory=lambda: anyio.Lock(fast_acquire=True))
