"""How far each channel has been read: one small file, so that a start knows where to go on.

A channel's mark says: all up to here was handed over. While a message is being handed over, and from a gap (a start,
a lost link, a message that the disk refused) until a catch-up has closed it, the mark stands still; live messages
only raise ``seen``, which the mark takes over afterwards. A kill in between reads again from the mark.

                  taking begins    taken            refused, or gap    catch-up done, no newer gap
held by nobody    held             -                due                -
held              held             mark := seen     due                -
due               due              due (seen up)    due, newer gap     mark := seen or what was read

A channel that is seen for the first time starts at that message. Only a DM may have been opened while nobody
listened: until a catch-up has looked for those, a new one starts at ``alive_at``, when the bot was last known to hear
everything.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal

import anyio
from pydantic import BaseModel, Field, ValidationError

from threads.disk import Disk, Offload, read_or_empty, replace_file, set_aside
from transports.slack.wire.shapes import instant, is_direct

log = logging.getLogger(__name__)

MOST_CHANNELS = 5_000
"""How many channels are followed; beyond, the one that was quiet for longest starts at now when it speaks again."""

ALIVE_EVERY_S = 60
"""How old the written ``alive_at`` may be while nothing else changes."""

TICK = Decimal("0.000001")
"""The finest step of Slack's times."""

AHEAD_S = 3600
"""How far Slack's clock may be ahead of ours."""

SKEW_S = 2
"""A message that was said before the link came up, by clocks that differ so much at most, was delivered again."""

UNKNOWN = ""
"""Stands for all the channels that are not known yet."""

UNNOTICED_S = Decimal(120)
"""For how long a link may be dead at most before that is noticed."""

_Stamp = Annotated[str, Field(pattern=r"^[0-9]{1,11}(\.[0-9]{1,9})?$")]


class _File(BaseModel):
    """All times are Slack's."""

    v: Literal[1] = 1
    first_at: _Stamp = "0"
    alive_at: _Stamp
    channels: dict[str, _Stamp] = {}


@dataclass(slots=True)
class _Place:
    """``taking`` counts the messages in hand; ``due`` is the number of the gap to be closed, 0 for none."""

    mark: str
    seen: str
    taking: int = 0
    due: int = 0

    def settle(self) -> None:
        if not (self.taking or self.due):
            self.mark = later(self.mark, self.seen)


def _worth_writing(old: _File, new: _File) -> bool:
    older = instant(new.alive_at) - instant(old.alive_at)
    return old.channels != new.channels or older >= ALIVE_EVERY_S


def before(ts: str, seconds: Decimal) -> str:
    return f"{max(instant(ts) - seconds, Decimal(0)):.6f}"


def later(one: str, other: str) -> str:
    return max(one, other, key=instant)


class Marks:
    """The marks of one workspace, in the file *path*. Everything but `save` is plain state and never waits."""

    def __init__(self, disk: Disk, path: Path, offload: Offload, now: Callable[[], datetime]) -> None:
        self._disk, self._path, self._offload, self._now = disk, path, offload, now
        self._first, self._fresh = self.clock(), True
        self._alive = _Place(self._first, "0")
        self._places: dict[str, _Place] = {}
        self._gaps, self._gap_at = 0, "0"
        self._written: _File | None = None
        self._saving = anyio.Lock()

    def open(self) -> None:
        """Read the file, blocking; with one that cannot be understood every channel starts at now."""
        self._first = self.clock()
        self._alive = _Place(self._first, "0")
        try:
            data = read_or_empty(self._disk, self._path)
            stored = _File.model_validate_json(data) if data else None
        except ValidationError as error:
            log.warning("%s is damaged or newer, was put aside, and starts anew: %s", self._path.name, error)
            set_aside(self._disk, self._path, data)
            stored = None
        if stored is None:  # or a kill in the first moments would make the next start the first
            self._write(_File(first_at=self._first, alive_at=self._first))
        else:
            self._first, self._fresh = stored.first_at, False
            self._alive = _Place(stored.alive_at, "0")
            self._places = {channel: _Place(mark, "0") for channel, mark in stored.channels.items()}
            self.gap()

    def clock(self) -> str:
        """Return now, as Slack writes a time."""
        return f"{max(0.0, self._now().timestamp()):.6f}"

    @property
    def alive_at(self) -> str:
        """When everything that was said had surely come in; a link may be dead for a while before it shows."""
        return later(self._first, before(self._alive.mark, UNNOTICED_S))

    def alive(self) -> None:
        """Note that the link works, and that what is said comes in."""
        self._alive.seen = self.clock()
        self._alive.settle()

    def gap(self) -> int:
        """Messages may have been missed from here on, anywhere, until a catch-up; returns the gap's number."""
        self._gaps += 1
        self._gap_at = self.clock()
        for place in (self._alive, *self._places.values()):
            place.due = self._gaps
        return self._gaps

    @contextmanager
    def taking(self, channel: str, ts: str) -> Iterator[None]:
        """Hold the mark while a live message is handed over; if that fails, it was missed."""
        # A time that is not yet would end all catching up there.
        ts = min(ts, f"{self._now().timestamp() + AHEAD_S:.6f}", key=instant)
        if self._alive.due and is_direct(channel):
            self.start(channel, self.alive_at, missed=True)
        place = self._place(channel, before(ts, TICK))
        place.taking += 1
        try:
            yield
        except BaseException:
            self._gaps += 1
            place.due = self._gaps
            raise
        else:
            place.seen = later(place.seen, ts)
        finally:
            place.taking -= 1
            place.settle()

    def begins_late(self, channel: str, ts: str) -> bool:
        """Follow a channel from its first message on, if that was delivered late: others after it may be missed."""
        late = channel not in self._places and instant(ts) < instant(self._gap_at) + SKEW_S
        if late:
            self.start(channel, before(ts, TICK), missed=True)
        return late

    def move(self, channel: str, ts: str) -> None:
        """Note that a live message was handed over, or was not for us."""
        with self.taking(channel, ts):
            pass

    def start(self, channel: str, at: str, *, missed: bool = False) -> None:
        """Follow a channel from *at* on, unless it is followed already; with *missed* there is a gap since then.

        Nothing was before the very first start, whose gap is the first.
        """
        if channel not in self._places:
            none = self._fresh and self._alive.due <= 1 and instant(at) <= instant(self._first)
            self._place(channel, at).due = self._gaps if missed and not none else 0

    def joined(self, channel: str, at: str) -> None:
        """Follow a channel from when the bot joined it, which may be told late: what was said since may be missed."""
        self.start(channel, at, missed=True)
        place = self._places[channel]
        if instant(at) < instant(place.mark):
            place.seen, place.mark = later(place.seen, place.mark), at
            self._gaps = max(self._gaps, 1)
            place.due = self._gaps

    def drop(self, channel: str) -> None:
        self._places.pop(channel, None)

    def due(self) -> list[str]:
        """Return the channels to catch up on, those where something was said last first."""
        found = [channel for channel, place in self._places.items() if place.due]
        return sorted(found, key=lambda channel: instant(self._places[channel].mark), reverse=True)

    def gap_of(self, channel: str) -> int:
        """Return the number of the newest gap in a channel, 0 for none."""
        place = self._alive if channel == UNKNOWN else self._places.get(channel)
        return place.due if place else 0

    def mark_of(self, channel: str) -> str:
        return self._places[channel].mark

    def close(self, channel: str, gap: int, upto: str = "0") -> None:
        """Note that a gap is closed, which was read *upto* there; a newer one stays, and with it the old mark."""
        place = self._alive if channel == UNKNOWN else self._places.get(channel)
        if place and place.due == gap:
            place.due = 0
            place.seen = later(place.seen, upto)
            place.settle()

    @property
    def unwritten(self) -> bool:
        """Whether a channel is followed that the file does not know: a kill would forget it."""
        return self._written is None or not self._places.keys() <= self._written.channels.keys()

    async def save(self) -> None:
        """Write what has changed; the caller does this every few seconds. A failure is logged, and tried again."""
        async with self._saving:
            await self._save()

    async def _save(self) -> None:
        marks = {channel: place.mark for channel, place in self._places.items()}
        stored = _File(first_at=self._first, alive_at=self._alive.mark, channels=marks)
        if self._written is None or _worth_writing(self._written, stored):
            await self._offload(self._write, stored)

    def _write(self, stored: _File) -> None:
        try:
            replace_file(self._disk, self._path, stored.model_dump_json().encode())
        except OSError as error:
            log.warning("%s could not be written, trying again soon: %s", self._path.name, error)
        else:
            self._written = stored

    def _place(self, channel: str, ts: str) -> _Place:
        if channel not in self._places:
            if len(self._places) >= MOST_CHANNELS:
                quiet = min(self._places, key=lambda known: instant(self._places[known].mark))
                log.warning("more than %d channels: %s is not followed any more", MOST_CHANNELS, quiet)
                del self._places[quiet]
            self._places[channel] = _Place(ts, "0")
        return self._places[channel]
