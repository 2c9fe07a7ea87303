"""The running bot's own parts, as far as they are asked how they are; nothing here changes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bot.ports.status import CircuitStatus, Spend
from threads.actor.registry import Registry
from threads.actor.slots import Slots
from threads.journal.journal import Journal


class Edge(Protocol):
    """What is asked of a transport."""

    @property
    def name(self) -> str: ...

    @property
    def state(self) -> str: ...

    @property
    def trouble(self) -> str: ...

    @property
    def silent_s(self) -> float | None: ...


@dataclass(frozen=True, slots=True)
class Live:
    """``troubles`` says what does not work now, a clause each; ``sandbox`` is the layer of the shell."""

    data: Path
    model: str
    edges: Sequence[Edge]
    registry: Registry
    slots: Slots
    journal: Journal
    circuits: Callable[[], Sequence[CircuitStatus]]
    spend: Callable[[], Sequence[Spend]]
    sandbox: str
    troubles: Callable[[], Sequence[str]]
