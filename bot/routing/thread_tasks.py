"""Tasks about a thread beside its actor. They end when another worker takes the thread over."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import TypeVarTuple

import anyio
from anyio.abc import TaskGroup

from threads.model import ThreadId

Arguments = TypeVarTuple("Arguments")


class ThreadTasks:
    def __init__(self, tasks: TaskGroup) -> None:
        self._tasks = tasks
        self._scopes = defaultdict[ThreadId, set[anyio.CancelScope]](set)

    def start(
        self, thread: ThreadId, work: Callable[[*Arguments], Awaitable[None]], *arguments: *Arguments
    ) -> None:
        """Start *work* about a thread."""
        scope = anyio.CancelScope()  # here, because the thread may be lost before the task runs
        self._scopes[thread].add(scope)
        self._tasks.start_soon(self._run, thread, scope, work, arguments)

    def release(self, thread: ThreadId) -> None:
        """Cancel what runs about the thread, because another worker serves it now."""
        for scope in self._scopes.get(thread, ()):
            scope.cancel()

    async def _run(
        self,
        thread: ThreadId,
        scope: anyio.CancelScope,
        work: Callable[[*Arguments], Awaitable[None]],
        arguments: tuple[*Arguments],
    ) -> None:
        try:
            with scope:
                await work(*arguments)
        finally:
            self._scopes[thread].discard(scope)
            if not self._scopes[thread]:
                del self._scopes[thread]
