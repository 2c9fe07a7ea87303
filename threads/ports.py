"""The Protocols of a store. Files implement them for one machine, PostgreSQL for many.

A process serves the threads that it owns. With files it owns all of them. With PostgreSQL another worker may take a
thread over. From then on every write of the old owner raises `threads.errors.Fenced`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

from anyio.abc import TaskGroup

from threads.journal.ports import Taker, Write
from threads.journal.records import Ledger, Record
from threads.log import LogEntry
from threads.model import Deleted, Edited, Incoming, Message, Outcome, StopRequest, ThreadId
from threads.store.context import Loaded
from threads.store.mark_file import MarkStore


class Journal(Protocol):
    """Makes promises durable. ``ledger`` holds the threads that this process owns."""

    @property
    def ledger(self) -> Ledger: ...

    async def knows(self, key: str) -> bool:
        """Return whether a message is in the store. Waits for one that is being written."""

    async def receive(self, incoming: Incoming, per_minute: int | None = None) -> bool:
        """Make a message durable. Returns False if it already is. Raises `StoreUnavailable`.

        The bot answers at most *per_minute* messages of its author. A store that several processes share counts them,
        and sets `PendingMessage.over_rate` for those beyond.
        """

    async def outcome(self, key: str) -> Outcome | None:
        """Return how a message ended, None if it has not, or is not known. Raises `StoreUnavailable`."""

    async def forward(self, event: Edited | Deleted) -> bool:
        """Pass the event to the thread's owner. Returns False if that is this process. Raises `StoreUnavailable`."""

    async def stop_elsewhere(self, request: StopRequest) -> tuple[int, int]:
        """Make all other processes stop their threads there, now or later.

        Returns how many turns ran and how many messages waited. Raises `StoreUnavailable`.
        """

    async def pending_elsewhere(self, place: ThreadId) -> tuple[int, int]:
        """Return how many turns run and how many messages wait there in other processes.

        Raises `StoreUnavailable`.
        """

    async def amend(self, edited: Edited) -> bool:
        """Replace the text of a message. Returns False if its turn has started."""

    async def append(self, *records: Record) -> None:
        """Write the records, and return when all of them are durable. Raises `StoreUnavailable` or `Fenced`."""

    def put(self, *records: Record) -> Write:
        """Begin to write the records. `durable` waits for the end."""

    def carry(self, *records: Record) -> Write:
        """As `put`, for records that nobody has to wait for. Those that fail are written before any later ones."""

    async def durable(self, written: Write) -> None:
        """Return when the records of a `put` are durable. Raises `StoreUnavailable` or `Fenced`."""


class Context(Protocol):
    """One thread's conversation, as the model sees it."""

    async def load(self) -> Loaded:
        """Read the conversation. Raises `NewerSchema`, or `StoreUnavailable` if the store fails."""

    async def save(self, messages: list[Message]) -> None:
        """Replace the stored conversation. Raises `StoreUnavailable` or `Fenced`, and leaves the old one in place."""

    async def copy_to_archive(self, first: int = 0) -> None:
        """Copy the stored conversation, from the message at *first* on, to the archive. Raises as `save`."""

    async def archive(self) -> None:
        """Move the conversation to the archive and start an empty one. Raises as `save`."""


class ThreadLog(Protocol):
    """The history of each thread, for people and for search. *then* is called once an entry is written."""

    def put(self, thread: ThreadId, entries: list[LogEntry], then: Callable[[], None]) -> object:
        """Begin to append the entries of a settled message."""

    def repair(
        self, thread: ThreadId, settled: dict[str, list[LogEntry]], then: Callable[[], None]
    ) -> object:
        """Append the entries of each message, by its id, that the history does not show as settled."""


class Store(Protocol):
    """Everything that the core stores. `open` it, then `start` its writers."""

    @property
    def journal(self) -> Journal: ...

    @property
    def history(self) -> ThreadLog: ...

    async def open(self, transports: Iterable[str]) -> None:
        """Read the pending messages. Raises OSError, or `NewerSchema` if a newer version wrote them."""

    async def leave(self) -> None:
        """Give up all threads that this process owns. The last call."""

    def start(self, tasks: TaskGroup, taker: Taker) -> None:
        """Run the writers until *tasks* are cancelled. *taker* learns what is durable."""

    def context(self, thread: ThreadId) -> Context:
        """Return the store of the thread's conversation."""

    async def begun(self, thread: ThreadId, before: str = "") -> bool:
        """Return whether the thread has a conversation, or a message that waits for a turn, in any process.

        With an instant *before*, only messages count that were sent until then: what began a moment ago, by its
        messages alone. Raises `StoreUnavailable`.
        """

    async def first_today(self, what: str, key: str) -> bool:
        """Return whether no other *key* came for *what* today, in any process. Raises `StoreUnavailable`."""

    async def recent(self, transport: str, within_s: float, most: int) -> Sequence[ThreadId]:
        """Return the transport's threads whose conversation changed in that time, newest first.

        Raises OSError, or `StoreUnavailable` if trying again soon may help.
        """

    def marks(self, transport: str) -> MarkStore:
        """Return the store of the transport's high-water marks."""

    async def workspace(self, thread: ThreadId) -> Path:
        """Return the folder of the thread's files. It is fetched first if another worker had it."""

    async def keep_workspace(self, thread: ThreadId) -> None:
        """Make the thread's files as durable as its conversation. Raises `StoreUnavailable` or `Fenced`."""

    async def hold(self, role: str, work: Callable[[], Awaitable[None]], waits: Callable[[], None]) -> None:
        """Run *work* while this process holds *role*, held by one process at a time. Cancel it when the hold ends.

        *waits* is called while another process holds the role.
        """

    @property
    def workers(self) -> int:
        """How many processes serve, as far as this one knows; at least 1."""

    @property
    def others_seen(self) -> int:
        """Grows while others serve too. The same number as before says that this process was alone meanwhile."""

    async def take_token(self, name: str, per_second: float, burst: float) -> float:
        """Take a token of a rate that all processes share. Returns the seconds to wait before using it."""

    async def try_token(self, name: str, per_second: float, burst: float, reserve: float) -> bool:
        """Take such a token if that leaves a *reserve* of them. Returns False as well if the store is away."""

    async def ensure_ownership(self) -> None:
        """Return once this process is sure of its ownership, by its own clock. Raises `Fenced` if it lost it."""
