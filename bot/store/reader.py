"""What the operator's commands read from a store: lines as they were written, and the threads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Literal, Protocol

from threads.model import Incoming

Wait = Callable[[], None]
"""Returns when it is time to look for more."""

Lines = Generator[Iterable[bytes], None, None]

LAST = "9999"
"""Later than any day and month."""


class Thread(Protocol):
    """A thread and its id. ``changed_at``, in seconds since 1970, is when its history last grew."""

    @property
    def name(self) -> str: ...
    @property
    def path(self) -> Path:
        """The folder of its files on this machine."""

    @property
    def changed_at(self) -> float: ...


@dataclass(frozen=True, slots=True)
class WorkspaceFile:
    """A file of a thread, by its path in the workspace; ``size`` is in bytes."""

    name: str
    size: int


class Reader(Protocol):
    """Reads a store beside running bots. It takes no lock and changes nothing. All methods raise OSError.

    Lines come without their newline. *having* limits them to lines with one of these byte strings, although others
    may come too. Each is an id in the form that it has inside a JSON string: a database finds ids, and no other text.
    With *wait* the lines never end: after the last one it waits and looks again.
    """

    def close(self) -> None: ...

    def threads(self, place: str = "") -> Sequence[Thread]:
        """Return all threads, or those of a transport or of a place within it, most recently changed first."""

    def find(self, wanted: str) -> Sequence[Thread]:
        """Return the thread with this id, or those whose id ends with it. A link to a message works too."""

    def holding(self, pieces: Sequence[bytes]) -> Sequence[Thread]:
        """Return the threads whose history may contain one of these byte strings.

        Each is the id of a message, of a turn or of a post, or an outcome with its name: ``"outcome":"dead_letter"``.
        """

    def journal(self, having: Sequence[bytes] = (), thread: str = "") -> Iterator[bytes]:
        """Return the lines of the journal: of all threads, or at least what that one owes and its last messages.

        *having* are ids of messages, of turns (their references) or of posts.
        """

    def log(self, thread: Thread, last: int | None = None, wait: Wait | None = None) -> Iterator[bytes]:
        """Return a thread's history, or at least that of its *last* messages."""

    def ends(self, threads: Sequence[Thread], last: int) -> Iterator[tuple[Iterable[bytes], int]]:
        """Return for each thread what `log` says of its *last* messages, and its `count`."""

    def saying(self, threads: Sequence[Thread], words: Sequence[str], first: int) -> Lines:
        """Return for each thread the lines of its history that may say all of these words, in whatever case.

        Those after the *first* ones may cost more. Close it before anything else is read.
        """

    def count(self, thread: Thread) -> int:
        """Return how many messages its history has."""

    def conversation(self, thread: Thread) -> Iterator[bytes]:
        """Return the lines of its conversation, archived ones first."""

    def files(self, thread: Thread) -> Sequence[WorkspaceFile]:
        """Return the thread's files, by name."""

    def copy_files(self, thread: Thread, target: Path) -> int:
        """Copy the thread's files below *target*, readable by their owner alone, and return how many."""

    def spending(
        self, month: str = "", having: Sequence[bytes] = (), until: str = LAST
    ) -> Sequence[Iterable[bytes]]:
        """Return the lines of the ledger from a month to at least another, in parts that are read one by one.

        *having* are turns.
        """

    def accounts(self) -> Iterable[Sequence[object]]:
        """Return the accounts: scope, key and the fields of a `bot.budget.budgets.Total`."""

    def audit(
        self, since: str = "", having: Sequence[bytes] = (), wait: Wait | None = None, until: str = LAST
    ) -> Iterator[bytes]:
        """Return the lines of the audit from the day of *since* (UTC, ISO 8601) to at least the day *until*.

        *having* are ids of threads or messages, or references of turns.
        """


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A worker; ``last_beat_s`` is how long ago it renewed its lease."""

    name: str
    version: str
    alive: bool
    last_beat_s: float
    threads: int
    connections: int = 0


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What a shared store is to erase in one step: parts of threads by their ids, and settled ``messages`` by keys.

    ``parts`` are "conversation", "log", "attachments" and "workspace", and none for a thread of which only messages
    or lines go. ``files`` are paths in a thread's workspace. ``lines`` of histories, audit and ledger become others,
    or go with None; so do ``values``. ``accounts`` are scopes and keys of sums. With ``until``, nothing is done if
    something was said in a thread after that.
    """

    parts: Mapping[str, Collection[str]]
    messages: Collection[str] = ()
    files: Mapping[str, Collection[str]] = field(default_factory=dict)
    lines: Mapping[bytes, bytes | None] = field(default_factory=dict)
    values: Mapping[str, str | None] = field(default_factory=dict)
    accounts: Collection[tuple[str, str]] = ()
    until: datetime | None = None


Kind = Literal["audit", "spending"]


class SharedReader(Reader, Protocol):
    """A reader of a store that many workers share. It can also add a message, and erase."""

    def workers(self) -> Sequence[WorkerRow]:
        """Return all workers, also those that are gone and not yet cleared away."""

    def tables(self) -> Sequence[tuple[str, int]]:
        """Return the tables with their bytes, the largest first."""

    def receive(self, incoming: Incoming) -> bool:
        """Make a message durable for whichever worker takes it up; False when its id is known already."""

    def quiet_threads(self, before: datetime) -> Sequence[tuple[str, datetime]]:
        """Return the threads that nobody serves, with nothing owed, and since when: before that time."""

    def sizes(self, thread: str) -> Mapping[str, tuple[int, int]]:
        """Return how many pieces and bytes each part of a thread has, without those that have nothing."""

    def months(self, kind: Kind, before: str) -> Sequence[tuple[str, int, int]]:
        """Return how many lines and bytes each month has before that of a day (UTC), with the day after the month."""

    def drop_months(self, kind: Kind, before: str) -> int:
        """Drop the lines from before the month of a day (UTC), and return how many they were; sums of calls stay."""

    def values(self) -> Iterable[tuple[str, str]]:
        """Return the small values and the texts of the memory, by the name that their file would have."""

    def forget(self, forgotten: Forgotten) -> Sequence[str]:
        """Erase all of it, or nothing: then the threads that are served, or owed something, are returned."""
