"""What a journal gives to those who write, and whom it tells what became of messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import anyio

from threads.model import Deleted, Edited, ThreadId

from .records import PendingMessage, Settled


class Write(Protocol):
    """Records on their way to the store: ``done`` once they are there, or with the ``error`` that kept them out."""

    @property
    def done(self) -> anyio.Event: ...

    @property
    def error(self) -> Exception | None: ...


class Taker(Protocol):
    """Takes up messages and threads. Nothing here waits. Files call the first two only."""

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

    def changed(self, event: Edited | Deleted) -> None:
        """Carry out what somebody did to a message of an owned thread, and another worker received."""
        ...


class NullTaker:
    """Serves nobody: for commands that only write."""

    def route(self, pending: PendingMessage) -> None: ...

    def settled(self, pending: PendingMessage, end: Settled) -> None: ...

    def take_up(self, pending: Sequence[PendingMessage]) -> None: ...

    def lose(self, thread: ThreadId) -> None: ...

    def changed(self, event: Edited | Deleted) -> None: ...
