"""What a fake's faults have in common: those that need no platform's words, and the script that hands them out."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from tests.patience import WITHIN_S

F = TypeVar("F")
C = TypeVar("C")


@dataclass(frozen=True)
class Stall:
    """No answer, ever."""

    applied: bool = False


@dataclass(frozen=True)
class Slow:
    """Answer as ever, *seconds* later."""

    seconds: float
    applied: bool = False


@dataclass(eq=False)
class Gate:
    """Holds calls, before they are carried out or (``applied``) after, until ``open`` is called."""

    applied: bool = False
    held: int = 0
    _reached: asyncio.Event = field(default_factory=asyncio.Event)
    _open: asyncio.Event = field(default_factory=asyncio.Event)

    async def reached(self, limit: float = WITHIN_S) -> None:
        async with asyncio.timeout(limit):
            await self._reached.wait()

    def open(self) -> None:
        self._open.set()

    async def hold(self) -> None:
        self.held += 1
        self._reached.set()
        await self._open.wait()


@dataclass
class _Entry(Generic[F, C]):
    faults: deque[F]
    forever: bool
    when: Callable[[C], Any] | None


class Script(Generic[F, C]):
    """Faults *F* per kind of call, "*" for every kind; each is used once and in order, unless it is forever.

    Whether it is due may depend on the call *C* itself.
    """

    def __init__(self) -> None:
        self._entries: dict[str, list[_Entry[F, C]]] = {}

    def add(
        self, kind: str, faults: tuple[F, ...], *, forever: bool, when: Callable[[C], Any] | None
    ) -> None:
        self._entries.setdefault(kind, []).append(_Entry(deque(faults), forever, when))

    def clear(self, kind: str | None) -> None:
        if kind is None:
            self._entries.clear()
        else:
            self._entries.pop(kind, None)

    def take(self, kind: str, call: C, *, own: bool = False) -> F | None:
        """The fault for this call, used up unless it is forever; *own*: "*" does not mean it."""
        general = () if own else self._entries.get("*", ())
        for entry in (*self._entries.get(kind, ()), *general):
            if entry.faults and (entry.when is None or entry.when(call)):
                if not entry.forever:
                    return entry.faults.popleft()
                entry.faults.rotate(-1)
                return entry.faults[-1]
        return None


class Failing(Generic[F, C]):
    """A fake whose calls fail as its ``script`` says, by their kinds."""

    script: Script[F, C]

    def fail(
        self, kind: str, *faults: F, forever: bool = False, when: Callable[[C], Any] | None = None
    ) -> None:
        """Let calls of this kind fail, one fault per call."""
        self.script.add(kind, faults, forever=forever, when=when)

    def gate(self, kind: str, *, applied: bool = False, when: Callable[[C], Any] | None = None) -> Gate:
        """Hold the next call of this kind until the gate's ``open()``; wait for the call with ``reached()``."""
        gate = Gate(applied)
        self.script.add(kind, (gate,), forever=False, when=when)
        return gate

    def heal(self, kind: str | None = None) -> None:
        self.script.clear(kind)
