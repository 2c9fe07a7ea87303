"""Everything that can go wrong with one call, and the script that says when.

``applied=True``: the call was carried out all the same, only its answer is lost or a lie.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.fakes.slack.records import Json


@dataclass(frozen=True)
class RateLimited:
    """429 with Retry-After."""

    retry_after: int = 1
    applied: bool = False


@dataclass(frozen=True)
class Html:
    """A 5xx (or any status) with a page instead of JSON."""

    status: int = 503
    applied: bool = False


@dataclass(frozen=True)
class Cut:
    """The connection ends without an answer: reset, or closed politely."""

    applied: bool = False
    how: Literal["rst", "fin"] = "rst"


@dataclass(frozen=True)
class Stall:
    """No answer, ever."""

    applied: bool = False


@dataclass(frozen=True)
class Garbage:
    """200 and a body that is no JSON."""

    applied: bool = False
    body: str = '{"ok": tr'
    kind: str = "application/json"


@dataclass(frozen=True)
class ApiError:
    """``{"ok": false, "error": error, **more}``."""

    error: str
    more: Json = field(default_factory=dict)
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

    async def reached(self, limit: float = 10.0) -> None:
        async with asyncio.timeout(limit):
            await self._reached.wait()

    def open(self) -> None:
        self._open.set()

    async def hold(self) -> None:
        self.held += 1
        self._reached.set()
        await self._open.wait()


Fault = RateLimited | Html | Cut | Stall | Garbage | ApiError | Slow | Gate
When = Callable[[Json], Any]


@dataclass
class Entry:
    faults: deque[Fault]
    forever: bool
    when: When | None


class Script:
    """Faults per method, "*" for every method; each is used once and in order, unless it is forever."""

    def __init__(self) -> None:
        self._entries: dict[str, list[Entry]] = {}

    def add(self, method: str, faults: tuple[Fault, ...], *, forever: bool, when: When | None) -> None:
        self._entries.setdefault(method, []).append(Entry(deque(faults), forever, when))

    def clear(self, method: str | None) -> None:
        if method is None:
            self._entries.clear()
        else:
            self._entries.pop(method, None)

    def take(self, method: str, args: Json) -> Fault | None:
        for entry in (*self._entries.get(method, ()), *self._entries.get("*", ())):
            if entry.faults and (entry.when is None or entry.when(args)):
                if not entry.forever:
                    return entry.faults.popleft()
                entry.faults.rotate(-1)
                return entry.faults[-1]
        return None
