"""What a store gives: the Protocols that the files of one machine and PostgreSQL for many both implement.

A process serves the threads that it owns. With files these are all; with PostgreSQL another worker may take a thread
over, and from then on every write of the old owner is refused with `Fenced`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from threads.errors import BotError
from threads.journal.records import Ledger, PendingMessage, Record, Settled
from threads.log import Entry
from threads.model import Deleted, Edited, Incoming, Message, ThreadId
from threads.store.context import Loaded


class Fenced(BotError):
    """The thread belongs to another worker now: stop, say nothing, write nothing. Retrying does not help."""

    code = "lifecycle_failure"


class Write(Protocol):
    """Records on their way to the store; `Journal.durable` waits for them."""


class Taker(Protocol):
    """Whom the journal tells what became of messages. Nothing here waits."""

    def route(self, pending: PendingMessage) -> None:
        """Serve a new message, which is durable. Called in the order of its thread."""
        ...

    def settled(self, pending: PendingMessage, end: Settled) -> None:
        """Learn how a message ended, once that is durable."""
        ...

    def take_up(self, thread: ThreadId, pending: Sequence[PendingMessage]) -> None:
        """Serve what another process left in a thread that this one owns from now on, in the order of receipt."""
        ...

    def lose(self, thread: ThreadId) -> None:
        """Stop serving a thread: another worker owns it. Nothing is said or written about it any more."""
        ...

    def changed(self, event: Edited | Deleted) -> None:
        """Carry out what somebody did to a message of an owned thread, and another worker has received."""
        ...


class Journal(Protocol):
    """Where a promise becomes durable. ``ledger`` holds what this process owns."""

    @property
    def ledger(self) -> Ledger: ...

    async def knows(self, key: str) -> bool:
        """Say whether a message is in the store, waiting for it if it is just being written."""
        ...

    async def receive(self, incoming: Incoming) -> bool:
        """Make a message durable; False when it was there already. Raises `StoreUnavailable`."""
        ...

    async def amend(self, edited: Edited) -> bool:
        """Replace the text of a message whose turn has not started; False when it is too late for that."""
        ...

    async def append(self, *records: Record) -> None:
        """Return when the records are durable, all of them; raises `StoreUnavailable` or `Fenced`."""
        ...

    def put(self, *records: Record) -> Write:
        """Begin to write the records; `durable` waits for the end of it."""
        ...

    def carry(self, *records: Record) -> Write:
        """As `put`, for records that nobody may wait for: those that fail are written before any later ones."""
        ...

    async def durable(self, written: Write) -> None:
        """Return when the records of a `put` are durable; raises `StoreUnavailable` or `Fenced`."""
        ...

    async def run(self, taker: Taker) -> None:
        """Write and tell *taker* until cancelled."""
        ...


class Context(Protocol):
    """One thread's conversation, as the model sees it."""

    async def load(self) -> Loaded:
        """Read it; raises `NewerSchema`, or `StoreUnavailable` when the store fails."""
        ...

    async def save(self, messages: list[Message]) -> None:
        """Make the whole conversation durable; raises `StoreUnavailable` or `Fenced` with the last one in place."""
        ...

    async def keep_aside(self) -> None:
        """Copy the conversation as it is in the store to where the old ones are; raises as `save`."""
        ...

    async def archive(self) -> None:
        """Put the conversation aside and start an empty one; raises as `save`."""
        ...


class History(Protocol):
    """What happened in each thread, for people and for search. *then* is called once it is written."""

    def put(self, thread: ThreadId, entries: list[Entry], then: Callable[[], None]) -> object:
        """Begin to append the entries of a settled message."""
        ...

    def repair(self, thread: ThreadId, settled: dict[str, list[Entry]], then: Callable[[], None]) -> object:
        """Append the entries of each message, by its id, that is not shown as settled yet."""
        ...


class Threads(Protocol):
    """Which threads there are."""

    async def begun(self, thread: ThreadId) -> bool:
        """Return whether a conversation was ever held there. Raises `StoreUnavailable`."""
        ...

    async def recent(self, transport: str, within_s: float, most: int) -> Sequence[ThreadId]:
        """Return the transport's threads whose conversation changed in that time, newest first."""
        ...


class Workspaces(Protocol):
    """The folder of each thread's files."""

    async def at(self, thread: ThreadId) -> Path:
        """Return the folder, which holds the thread's files; another worker's are brought here first."""
        ...

    async def keep(self, thread: ThreadId) -> None:
        """Make its files as safe as the conversation; raises `StoreUnavailable` or `Fenced`."""
        ...


class Lease(Protocol):
    """Whether this process still owns what it serves."""

    async def held(self) -> None:
        """Return once that is sure, by this process's own clock; raises `Fenced` when it does not any more."""
        ...
