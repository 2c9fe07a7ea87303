"""An actor's queue: bounded, ordered, open to a change of mind."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio

from threads.errors import MailboxFull
from threads.journal.records import PendingMessage


class Mailbox:
    """Holds pending messages in the order of their receipt; used from the event loop only."""

    def __init__(self, capacity: int) -> None:
        self._capacity, self._withdrawn = capacity, set[str]()
        self._waiting: deque[PendingMessage] = deque()
        self._arrived, self._settled = anyio.Event(), anyio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, pending: PendingMessage) -> None:
        """Queue a message now, or raise `MailboxFull` now; a message from before a restart is never refused."""
        if len(self._waiting) + len(self._withdrawn) >= self._capacity and not pending.recovered:
            raise MailboxFull(thread_id=pending.received.thread_id)
        self._waiting.append(pending)
        self._arrived.set()

    def take(self) -> PendingMessage | None:
        return self._waiting.popleft() if self._waiting else None

    def withdraw(self, which: Callable[[PendingMessage], bool]) -> list[PendingMessage]:
        """Take out every message that *which* holds for, in order, but none whose post may be out already."""
        gone = [pending for pending in self._waiting if pending.intent is None and which(pending)]
        self._waiting = deque(pending for pending in self._waiting if pending not in gone)
        return gone

    def put_back(self, gone: list[PendingMessage]) -> None:
        """Return withdrawn messages to their places."""
        self._waiting = deque(sorted([*gone, *self._waiting], key=lambda waiting: waiting.received.seq))

    @contextmanager
    def withdrawing(self, which: Callable[[PendingMessage], bool]) -> Iterator[list[PendingMessage]]:
        """Withdraw messages during this block; if it fails they return to their places, which nobody else took."""
        gone = self.withdraw(which)
        keys = {pending.incoming.key for pending in gone}
        self._withdrawn |= keys
        try:
            yield gone
        except BaseException:
            self.put_back(gone)
            raise
        finally:
            self._withdrawn -= keys
            self._settled.set()
            self._settled = anyio.Event()

    async def settled(self, key: str) -> None:
        """Return once it is certain whether a message waits: it may be withdrawn, and come back."""
        while key in self._withdrawn:
            await self._settled.wait()

    async def wait(self, idle_s: float) -> bool:
        """Return whether something is waiting, after at most *idle_s* seconds.

        Nothing is taken inside the time limit: taking and working in one cancel scope loses messages.
        """
        if not self._waiting:
            self._arrived = anyio.Event()
            with anyio.move_on_after(idle_s):
                await self._arrived.wait()
        return bool(self._waiting)
