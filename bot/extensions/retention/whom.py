"""Who or what is to be forgotten, and how it is recognised in what is stored. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from pydantic import JsonValue

from threads.model import ThreadId

PERSONAL = "web"
"""The transport whose threads are each one person's: the channel is the person."""


def counted(messages: int, files: int) -> str:
    """Return in words how much of somebody there is."""
    return f"{messages:,} message{'s' * (messages != 1)} and {files:,} file{'s' * (files != 1)}"


@dataclass(frozen=True, slots=True)
class Whom:
    """A person, or one thread. ``threads`` are the ids of threads that are forgotten whole."""

    person: str = ""
    thread: str = ""
    threads: frozenset[str] = field(default_factory=frozenset)

    @property
    def name(self) -> str:
        """The name in the list of what was forgotten: "person U1", or "thread " and its id."""
        return f"person {self.person}" if self.person else f"thread {self.thread}"

    @staticmethod
    def named(name: str) -> Whom:
        """Return what `name` stands for."""
        kind, _, rest = name.partition(" ")
        return Whom(person=rest) if kind == "person" else Whom(thread=rest)

    def with_threads(self, threads: Iterable[ThreadId]) -> Whom:
        """Return this with the threads that go whole; a thread that is named always does."""
        return replace(self, threads=frozenset({*map(str, threads), self.thread} - {""}))

    def has_thread(self, thread: ThreadId, authors: Collection[str]) -> bool:
        """Return whether a thread is forgotten whole: it is the one, or nobody else wrote in it."""
        if self.thread:
            return str(thread) == self.thread
        is_own = thread.transport == PERSONAL and thread.channel == self.person
        return is_own or {*authors} == {self.person}

    def is_named(self, name: str) -> bool:
        """Return whether a name that is stored is theirs: of a person, a thread, or a message of such a thread."""
        if self.person and name == self.person:
            return True
        if any(thread.startswith(f"{PERSONAL}:") and thread.endswith(f":{name}") for thread in self.threads):
            return True  # the page keeps what is said of a thread by the last part of its id
        own = f"{PERSONAL}::{self.person}" if self.person else self.thread
        return any(f"{name}:".startswith(f"{place}:") for place in (*self.threads, own))

    def is_quoted_in(self, line: bytes) -> bool:
        """Return whether a line of a conversation has words of the person, maybe said to others."""
        labels = (f"({self.person})", f"[{self.person}]", f"[{self.person},")
        return bool(self.person) and any(label.encode() in line for label in labels)

    def is_in(self, value: JsonValue) -> bool:
        """Return whether a stored value names them anywhere."""
        match value:
            case str():
                return self.is_named(value)
            case list():
                return any(map(self.is_in, value))
            case dict():
                return any(map(self.is_in, (*value, *value.values())))
            case _:
                return False

    def out_of(self, state: dict[str, JsonValue]) -> dict[str, JsonValue]:
        """Return a small state without the members of its fields that name them."""
        pruned: dict[str, JsonValue] = {}
        for name, members in state.items():
            match members:
                case list():
                    pruned[name] = [one for one in members if not self.is_in(one)]
                case dict():
                    pruned[name] = {key: one for key, one in members.items() if not self.is_in([key, one])}
                case _:
                    pruned[name] = members
        return pruned
