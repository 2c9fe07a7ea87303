"""What a journal gives to those who write, and whom it tells what became of messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import anyio

from threads.model import FollowUp, ThreadId

from .records import PendingMessage, Settled


class Write(Protocol):
    """Records on their way to the store: ``done`` once they are there, or with the ``error`` that kept them out."""

    @property
    def done(self) -> anyio.Event: ...

    @property
    def error(self) -> Exception | None: ...


class Taker(Protocol):
    """Takes up messages and threads. Only `changed` waits. Files call the first two."""

    def route(self, pending: PendingMessage) -> None:
        """Serve a new message, which is durable. Called in the order of its thread."""
        ...

    def settled(self, pending: PendingMessage, end: Settled) -> None:
        """Learn how a message ended, once that is durable."""
        ...

    def take_up(self, pending: Sequence[PendingMessage]) -> None:
        """Serve what another worker left in a thread that this one owns from now on, in the order of receipt."""
        ...

    def lose(self, thread: ThreadId) -> None:
        """Stop serving a thread, which another worker owns: nothing is said or written about it any more."""
        ...

    def serves(self, thread: ThreadId) -> bool:
        """Return whether the thread has an actor, which knows its conversation by heart."""
        ...

    async def changed(self, event: FollowUp) -> None:
        """Carry out, durably, what somebody did to messages of an owned thread, and another worker received."""
        ...


class NullTaker:
    """Serves nobody: for commands that only write."""

    def route(self, pending: PendingMessage) -> None: ...

    def settled(self, pending: PendingMessage, end: Settled) -> None: ...

    def take_up(self, pending: Sequence[PendingMessage]) -> None: ...

    def lose(self, thread: ThreadId) -> None: ...

    def serves(self, _: ThreadId) -> bool:
        return False

    async def changed(self, event: FollowUp) -> None: ...
