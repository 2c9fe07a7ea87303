"""Everything that can go wrong with one call, and the script that says when.

``applied=True``: the call was carried out all the same, only its answer is lost or a lie.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.discord.records import Call


@dataclass(frozen=True)
class Status:
    """A bare status, with a page or with JSON that says nothing."""

    status: int = 503
    applied: bool = False
    html: bool = True


@dataclass(frozen=True)
class RateLimited:
    """429. Without *via* and with a page it is Cloudflare's: the address is banned."""

    seconds: float = 1.0
    via: bool = True
    is_global: bool = False
    applied: bool = False


@dataclass(frozen=True)
class Refused:
    """One of Discord's JSON errors."""

    status: int
    code: int
    message: str = "Refused"
    applied: bool = False


@dataclass(frozen=True)
class Cut:
    """The connection is reset without an answer. aiohttp tries a GET, PUT or DELETE a second time by itself."""

    applied: bool = False


@dataclass(frozen=True)
class Stall:
    """No answer, ever."""

    applied: bool = False


@dataclass(frozen=True)
class Slow:
    """Answer as ever, *seconds* later."""

    seconds: float
    applied: bool = False


@dataclass(frozen=True)
class Garbage:
    """200, and a body that is no JSON though its header says so."""

    applied: bool = False
    body: str = '{"id": tr'


@dataclass(eq=False)
class Gate:
    """Holds a call, before it is carried out or (``applied``) after, until ``open`` is called."""

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


Fault = Status | RateLimited | Refused | Cut | Stall | Slow | Garbage | Gate
When = Callable[[Call], Any]


@dataclass
class Entry:
    faults: deque[Fault]
    forever: bool
    when: When | None


class Script:
    """Faults per route, "*" for every route of REST; each is used once and in order, unless it is forever."""

    def __init__(self) -> None:
        self._entries: dict[str, list[Entry]] = {}

    def add(self, route: str, faults: tuple[Fault, ...], *, forever: bool, when: When | None) -> None:
        self._entries.setdefault(route, []).append(Entry(deque(faults), forever, when))

    def clear(self, route: str | None) -> None:
        if route is None:
            self._entries.clear()
        else:
            self._entries.pop(route, None)

    def take(self, call: Call) -> Fault | None:
        """The fault for this call, used up unless it is forever."""
        general: Iterable[Entry] = (
            () if call.route in ("GET /cdn", "GET /gateway") else self._entries.get("*", [])
        )
        for entry in (*self._entries.get(call.route, []), *general):
            if entry.faults and (entry.when is None or entry.when(call)):
                if not entry.forever:
                    return entry.faults.popleft()
                entry.faults.rotate(-1)
                return entry.faults[-1]
        return None
