"""What the operator's commands read, whatever keeps it: lines as they were written, and which threads there are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

Wait = Callable[[], None]
"""Returns when it is time to look for more."""


class Thread(Protocol):
    """A thread by its id; ``changed_at`` (seconds since 1970) is when its history last grew."""

    @property
    def name(self) -> str: ...
    @property
    def path(self) -> Path:
        """Where its files lie on this machine."""
        ...

    @property
    def changed_at(self) -> float: ...


class Reader(Protocol):
    """Reads a store beside the running bots; takes no lock and changes nothing. All methods raise OSError.

    Lines come without their newline. *having* asks only for those that hold one of these pieces; others may come too.
    With *wait* the lines never end: whenever there are no more, it waits and looks again.
    """

    def threads(self, transport: str = "") -> Sequence[Thread]:
        """Return the threads of one transport, or of all, the last written to first."""
        ...

    def find(self, wanted: str) -> Sequence[Thread]:
        """Return the thread of this id, or those whose id ends so; a link to a message will do."""
        ...

    def holding(self, pieces: Sequence[bytes]) -> Sequence[Thread]:
        """Return the threads whose history may hold one of these pieces."""
        ...

    def journal(self, having: Sequence[bytes] = (), thread: str = "") -> Iterator[bytes]:
        """Return the lines of the promises, of all threads or at least of that one."""
        ...

    def log(self, thread: Thread, last: int | None = None, wait: Wait | None = None) -> Iterator[bytes]:
        """Return a thread's history, or at least that of its last so many messages."""
        ...

    def count(self, thread: Thread) -> int:
        """Return how many messages its history tells of."""
        ...

    def conversation(self, thread: Thread) -> Iterator[bytes]:
        """Return the lines of its conversation, those that were put aside first."""
        ...

    def spending(self, month: str = "", having: Sequence[bytes] = ()) -> Sequence[Iterable[bytes]]:
        """Return the lines of the ledger from a month on, in parts that are read one by one."""
        ...

    def accounts(self) -> Iterable[Sequence[object]]:
        """Return the accounts: scope, key and the fields of a `bot.budget.budgets.Total`."""
        ...

    def audit(
        self, since: str = "", having: Sequence[bytes] = (), wait: Wait | None = None
    ) -> Iterator[bytes]:
        """Return the lines of the audit from the day of *since* (UTC, ISO 8601) on."""
        ...
