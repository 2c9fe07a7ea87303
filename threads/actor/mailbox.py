"""An actor's queue: bounded and ordered. Waiting messages can be withdrawn."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from threads.errors import MailboxFull
from threads.journal.records import PendingMessage


class Mailbox:
    """Holds pending messages in the order of receipt. Use it only on the event loop."""

    def __init__(self, capacity: int) -> None:
        self._capacity, self._withdrawn = capacity, set[str]()
        self._waiting: deque[PendingMessage] = deque()
        self._arrived, self._settled = asyncio.Event(), asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, pending: PendingMessage) -> None:
        """Queue a message. Raises `MailboxFull`, except for a message from before a restart."""
        if len(self._waiting) + len(self._withdrawn) >= self._capacity and not pending.recovered:
            raise MailboxFull(thread_id=pending.received.thread_id)
        self._waiting.append(pending)
        self._arrived.set()

    def drain(self) -> deque[PendingMessage]:
        """Remove and return every message."""
        waiting, self._waiting = self._waiting, deque()
        return waiting

    def withdraw(self, which: Callable[[PendingMessage], bool]) -> list[PendingMessage]:
        """Remove and return every message that matches *which*, in order, unless it may have been posted."""
        gone = [pending for pending in self._waiting if pending.intent is None and which(pending)]
        self._waiting = deque(pending for pending in self._waiting if pending not in gone)
        return gone

    def put_back(self, gone: list[PendingMessage]) -> None:
        """Return withdrawn messages to their places."""
        self._waiting = deque(sorted([*gone, *self._waiting], key=lambda waiting: waiting.received.seq))
        self._arrived.set()

    @contextmanager
    def withdrawing(self, which: Callable[[PendingMessage], bool]) -> Iterator[list[PendingMessage]]:
        """Withdraw messages during the block. If it fails they return to their places, which stay reserved."""
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
            self._settled = asyncio.Event()

    async def settled(self, key: str) -> None:
        """Return once it is certain whether the message waits. A withdrawn message may come back."""
        while key in self._withdrawn:
            await self._settled.wait()

    async def take(self, idle_s: float) -> PendingMessage | None:
        """Remove and return the next message, or None if none comes within *idle_s* seconds.

        Nothing passes a withdrawn message that may come back.
        """
        if not self._waiting:
            self._arrived = asyncio.Event()
            # Not `move_on_after`: its scope costs more than the timer, and each message would enter one.
            timer = asyncio.get_running_loop().call_later(idle_s, self._arrived.set)
            await self._arrived.wait()
            timer.cancel()
        while self._withdrawn:
            await self._settled.wait()
        return self._waiting.popleft() if self._waiting else None
