"""The status of a running bot, for `threadfast status`, health, metrics and systemd."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

CircuitState = Literal["closed", "open", "half-open"]

VERSION = 1

SOCKET = "status.sock"
EVENTS = "/events"
LONGEST = 100
"""Bytes of a path that a socket can be bound to: Linux allows 107, others fewer."""


UP = frozenset({"connected", "standby"})
"""The states of a transport in which all is well; see `transports.base.transport.LinkState`."""


@dataclass(frozen=True, slots=True)
class TransportStatus:
    """One transport. ``silent_s`` is the age of the last frame; None while it is down, or if it has no frames."""

    name: str
    state: str
    trouble: str = ""
    silent_s: float | None = None


@dataclass(frozen=True, slots=True)
class CircuitStatus:
    """The circuit breaker of one model; ``why`` is a clause for people, blank if nothing delays calls.

    ``key`` is the number of the provider's key, from 1, if it has several; else 0.
    """

    model: str
    state: CircuitState
    why: str = ""
    waiting: int = 0
    key: int = 0

    @property
    def title(self) -> str:
        return f"{self.model}, key {self.key}" if self.key else self.model


@dataclass(frozen=True, slots=True)
class Spend:
    """Spending under one limit, in USD; ``limit`` is None if there is none."""

    scope: str
    spent: float
    reserved: float
    limit: float | None


@dataclass(frozen=True, slots=True)
class Status:
    """The whole status. Times are in seconds; ``started_at`` is UTC, ISO 8601.

    ``pending`` messages have no outcome yet, the oldest for ``oldest_pending_s``. ``ready`` means that the work of
    the last process is recovered, a transport is connected and the store answers; ``stopping`` means that no new turn
    starts. ``lag_s`` is the delay of the event loop at its last check, ``worst_lag_s`` the maximum in the last
    minute. ``servers`` has a line for each model whose requests have other forms than usual. ``facts`` is what
    extensions say, by name.
    """

    pid: int
    version: str
    started_at: str
    uptime_s: float
    ready: bool
    stopping: bool
    data: str
    model: str
    transports: tuple[TransportStatus, ...] = ()
    circuits: tuple[CircuitStatus, ...] = ()
    spend: tuple[Spend, ...] = ()
    threads: int = 0
    running: int = 0
    queued: int = 0
    waiting: int = 0
    pending: int = 0
    oldest_pending_s: float = 0.0
    lag_s: float = 0.0
    worst_lag_s: float = 0.0
    rss_bytes: int = 0
    open_files: int = 0
    facts: dict[str, str] = field(default_factory=dict)
    troubles: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()
    v: int = VERSION

    def document(self) -> dict[str, object]:
        """Return it for JSON; the facts stand beside the rest."""
        return asdict(self) | self.facts


@contextmanager
def socket_path(data: Path) -> Iterator[str]:
    """Yield a path of the socket in *data* that is short enough to bind. Raises OSError."""
    path = str(data / SOCKET)
    if len(os.fsencode(path)) <= LONGEST:
        yield path
        return
    folder = os.open(data, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{SOCKET}"
    finally:
        os.close(folder)


@dataclass(frozen=True, slots=True)
class NoStatus:
    """There is no status. ``pid`` holds the data folder; 0 if no process does, or it is unknown."""

    state: Literal["absent", "mute", "stuck"]
    pid: int = 0


ABSENT = NoStatus("absent")
