"""The parts of the running bot whose state is observed. Nothing here changes them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from bot.guards.redaction import Masker
from bot.ports.status import CircuitStatus, Spend
from threads.actor.registry import Registry
from threads.actor.slots import Slots
from threads.ports import Journal
from threads.store.disk_threads import DiskThreads

if TYPE_CHECKING:
    import h11
    from anyio.abc import ByteStream

Posts = Mapping[str, "Callable[[ByteStream, h11.Connection, h11.Request], Awaitable[None]]"]
"""What takes a POST, by path, within limits of its own: it reads the body and answers."""


async def nothing_to_prepare() -> None:
    """Return at once."""


class TransportLink(Protocol):
    """The observed state of a transport."""

    @property
    def name(self) -> str: ...

    @property
    def state(self) -> str: ...

    @property
    def trouble(self) -> str: ...

    @property
    def silent_s(self) -> float | None: ...


@dataclass(frozen=True, slots=True)
class LiveParts:
    """``troubles`` lists what does not work now, one clause each. ``facts`` is what extensions say.

    ``prepare`` does once the bot is ready what its first answer would wait for. ``mask`` removes the bot's secrets
    from a text. ``store_trouble`` returns why nothing can be stored now, or a blank. ``servers`` are as in `Status`.
    ``posts`` is what extensions take on the socket of the data folder.
    """

    data: Path
    model: str
    edges: Sequence[TransportLink]
    disk_threads: Sequence[DiskThreads]
    registry: Registry
    slots: Slots
    journal: Journal
    circuits: Callable[[], Sequence[CircuitStatus]]
    spend: Callable[[], Sequence[Spend]]
    facts: Mapping[str, str]
    troubles: Callable[[], Sequence[str]]
    mask: Masker = field(default_factory=Masker)
    prepare: Callable[[], Coroutine[Any, Any, None]] = nothing_to_prepare
    store_trouble: Callable[[], str] = lambda: ""
    servers: Callable[[], Sequence[str]] = tuple
    posts: Posts = field(default_factory=dict)
