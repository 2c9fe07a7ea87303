"""What a store gives: the Protocols that the files of one machine and PostgreSQL for many both implement.

A process serves the threads that it owns. With files these are all of them. With PostgreSQL another worker may take a
thread over; from then on every write of the old owner raises `threads.errors.Fenced`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

from anyio.abc import TaskGroup

from threads.journal.ports import Taker, Write
from threads.journal.records import Ledger, Record
from threads.log import Entry
from threads.model import Deleted, Edited, Incoming, Message, StopRequest, ThreadId
from threads.store.context import Loaded
from threads.store.mark_file import MarkStore


class Journal(Protocol):
    """Where a promise becomes durable. ``ledger`` holds the threads that this process owns."""

    @property
    def ledger(self) -> Ledger: ...

    async def knows(self, key: str) -> bool:
        """Say whether a message is in the store, waiting for it if it is just being written."""
        ...

    async def receive(self, incoming: Incoming, per_minute: int | None = None) -> bool:
        """Make a message durable; False when it was there already. Raises `StoreUnavailable`.

        Its author may have *per_minute* messages answered. A store of several processes counts them, and says in
        `PendingMessage.over_rate` which ones are too many.
        """
        ...

    async def forward(self, event: Edited | Deleted) -> bool:
        """Hand the event to the owner of its thread; False if that is this process. Raises `StoreUnavailable`."""
        ...

    async def stop_elsewhere(self, request: StopRequest) -> tuple[int, int]:
        """Have all other processes stop what they serve there, now or later.

        Return how many turns were running and messages waited. Raises `StoreUnavailable`.
        """
        ...

    async def pending_elsewhere(self, place: ThreadId) -> tuple[int, int]:
        """Return how many turns run and messages wait there in threads that other processes serve.

        Raises `StoreUnavailable`.
        """
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


class Store(Protocol):
    """All that a core keeps. `open` it, then `start` what writes."""

    @property
    def journal(self) -> Journal: ...

    @property
    def history(self) -> History: ...

    async def open(self, transports: Iterable[str]) -> None:
        """Read what is pending. Raises OSError, or `NewerSchema` when a newer version wrote it."""
        ...

    async def leave(self) -> None:
        """Give up what this process owns, as the last thing that it does."""
        ...

    def start(self, tasks: TaskGroup, taker: Taker) -> None:
        """Write, and tell *taker* what became of messages, until *tasks* are cancelled."""
        ...

    def context(self, thread: ThreadId) -> Context:
        """Return where the thread's conversation is kept."""
        ...

    async def begun(self, thread: ThreadId) -> bool:
        """Return whether a conversation was ever held in the thread. Raises `StoreUnavailable`."""
        ...

    async def recent(self, transport: str, within_s: float, most: int) -> Sequence[ThreadId]:
        """Return the transport's threads whose conversation changed in that time, newest first.

        Raises OSError, or `StoreUnavailable` where asking again soon helps.
        """
        ...

    def marks(self, transport: str) -> MarkStore:
        """Return where the transport stores how far it has read."""
        ...

    async def workspace(self, thread: ThreadId) -> Path:
        """Return the folder of the thread's files, which is brought here if another worker had it."""
        ...

    async def keep_workspace(self, thread: ThreadId) -> None:
        """Make the files as safe as the conversation; raises `StoreUnavailable` or `Fenced`."""
        ...

    async def hold(self, role: str, work: Callable[[], Awaitable[None]], waits: Callable[[], None]) -> None:
        """Run *work* in one process at a time of all that hold *role*; cancel it when another may take over.

        *waits* is called while another holds it.
        """
        ...

    @property
    def workers(self) -> int:
        """How many processes serve, as far as is known here; at least 1."""
        ...

    async def take_token(self, name: str, per_second: float, burst: float) -> float:
        """Take a token of a rate that all processes share; return the seconds until it may be used."""
        ...

    async def ensure_ownership(self) -> None:
        """Return once this process surely owns what it serves, by its own clock; raises `Fenced` if it does not."""
        ...
