"""The journal's side of its callers: a write in progress, and the receiver of durable records."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from threads.model import FollowUp, ThreadId

from .records import PendingMessage, Settled


class Write(Protocol):
    """Records that are being written. ``done`` is set when they are durable, or when ``error`` says why not."""

    @property
    def done(self) -> asyncio.Event: ...

    @property
    def error(self) -> Exception | None: ...


class Taker(Protocol):
    """Receives messages and threads from a store. Only `changed` waits. The file store calls only the first two."""

    def route(self, pending: PendingMessage) -> None:
        """Serve a new message, which is durable. Called in the order of the thread."""

    def settled(self, pending: PendingMessage, end: Settled) -> None:
        """Learn that a message has settled, durably."""

    def take_up(self, pending: Sequence[PendingMessage]) -> None:
        """Serve the messages, in order of receipt, of a thread that this process takes over."""

    def release(self, thread: ThreadId) -> None:
        """Stop serving a thread that another worker owns now. Post and write nothing more about it."""

    def serves(self, thread: ThreadId) -> bool:
        """Return whether the thread has an actor, and so its conversation in memory."""

    async def changed(self, event: FollowUp) -> None:
        """Carry out, durably, an edit, a deletion or a stop that another worker received for a thread of ours."""


class NullTaker:
    """Serves no thread: for commands that only write."""

    def route(self, pending: PendingMessage) -> None: ...

    def settled(self, pending: PendingMessage, end: Settled) -> None: ...

    def take_up(self, pending: Sequence[PendingMessage]) -> None: ...

    def release(self, thread: ThreadId) -> None: ...

    def serves(self, _: ThreadId) -> bool:
        return False

    async def changed(self, event: FollowUp) -> None: ...
