"""accepted.json: events that have no turn yet, and which came before. A change is durable before it counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from operator import itemgetter

import anyio
from pydantic import BaseModel, ConfigDict, Field

from bot.extensions.events.refused import Refused
from threads.store.json_file import JsonState, State

MOST_WAITING = 100
REPLAY_S = 900.0
"""An event is known for so long at least: longer than a request that is sent again has a time that counts."""

KNOWN_S = 7 * 24 * 3600.0
MOST_KNOWN = 2_000
"""Events that are known beyond `REPLAY_S`."""

LEASE_S = 30.0
"""Seconds after which another worker takes an event over whose worker does not say that it is at work."""


class Event(BaseModel):
    """``id`` is "SOURCE:DIGEST". ``at`` and ``until`` are seconds since 1970.

    ``asks`` is what its turn is asked, from the settings, and ``text`` what came. ``by`` is the worker that has it
    ``until`` then, blank for none. ``tried``: it may be posted. ``root`` is the id of its post, once that is known.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    id: str
    source: str
    channel: str
    asks: str
    text: str
    at: float
    by: str = ""
    until: float = 0.0
    tried: bool = False
    root: str = ""


class AcceptedFile(JsonState):
    """``known`` has when each event was accepted, by its id."""

    waiting: tuple[Event, ...] = ()
    known: dict[str, float] = Field(default_factory=dict)


def event_id(source: str, key: str) -> str:
    """Return the id of an event: the same for the same key of a source."""
    return f"{source}:{sha256(key.encode('utf-8', 'replace')).hexdigest()[:32]}"


@dataclass(slots=True)
class AcceptedEvents:
    """The events of all workers. ``alone``: no other process has them. ``me`` names this one."""

    state: State[AcceptedFile]
    now: Callable[[], float]
    me: str
    alone: bool
    changed: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        self.state.on_change = self._wake

    async def accept(self, event: Event, per_minute: int) -> None:
        """Return once an event is durable, or was before. Raises `Refused`, and `StoreUnavailable`."""

        def change(old: AcceptedFile) -> AcceptedFile:
            if event.id in old.known or any(one.id == event.id for one in old.waiting):
                return old
            lately = (one for one, at in old.known.items() if at > event.at - 60)
            if sum(one.startswith(f"{event.source}:") for one in lately) >= per_minute:
                raise Refused(429, f"at most {per_minute} events a minute are taken of {event.source}")
            if len(old.waiting) >= MOST_WAITING:
                raise Refused(503, f"{MOST_WAITING} events wait already; try again later")
            known = _pruned(old.known | {event.id: event.at}, event.at)
            return old.model_copy(update={"waiting": (*old.waiting, event), "known": known})

        await self.state.change(change)

    async def claim(self, at_work: set[str]) -> list[Event]:
        """Return the events that this worker is to start now, as they were, and keep those that it is *at_work* on.

        Raises `StoreUnavailable`.
        """
        found, now = list[Event](), self.now()

        def claimed(event: Event) -> Event:
            if event.id in at_work:
                late = event.until - now < LEASE_S / 2
                return event.model_copy(update={"until": now + LEASE_S}) if late else event
            if event.until > now and not (self.alone and event.by != self.me):  # its worker may be alive
                return event
            found.append(event)
            return event.model_copy(update={"by": self.me, "until": now + LEASE_S, "tried": True})

        def change(old: AcceptedFile) -> AcceptedFile:
            found.clear()
            waiting = tuple(map(claimed, old.waiting))
            return old if waiting == old.waiting else old.model_copy(update={"waiting": waiting})

        await self.state.change(change)
        return found

    async def update(self, event_id: str, **fields: object) -> None:
        """Change an event, or without *fields* forget it but for its id. Raises `StoreUnavailable`."""

        def change(old: AcceptedFile) -> AcceptedFile:
            kept = (one for one in old.waiting if fields or one.id != event_id)
            waiting = (one.model_copy(update=fields) if one.id == event_id else one for one in kept)
            return old.model_copy(update={"waiting": tuple(waiting)})

        await self.state.change(change)

    def _wake(self) -> None:
        changed, self.changed = self.changed, anyio.Event()
        changed.set()


def _pruned(known: dict[str, float], now: float) -> dict[str, float]:
    """Return what is to be known further: all of the last minutes, and the newest of the last days."""
    newest = enumerate(sorted(known.items(), key=itemgetter(1), reverse=True))
    days = {one: at for place, (one, at) in newest if place < MOST_KNOWN and now - at < KNOWN_S}
    return {one: at for one, at in known.items() if one in days or now - at < REPLAY_S}
