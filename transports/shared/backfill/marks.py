"""How far each channel has been read, in one small text, so that a start knows where to go on.

Everything up to a channel's mark was handed over. The mark stands still while a message is being handed over, and
from a gap (a start, a lost link, a message that the disk refused) until a catch-up has closed it. Live messages only
raise ``seen``, which the mark takes over afterwards. A message that others have overtaken moves the mark back while
it is handed over. After a kill everything since the mark is read again.

                  taking begins    taken            refused, or gap    catch-up done, no newer gap
held by nobody    held             -                due                -
held              held             mark := seen     due                -
due               due              due (seen up)    due, newer gap     mark := seen or what was read

A catch-up may note its progress; the mark moves there while it is due. A new channel starts at its first message. In
some channels messages may have been missed before (see `Scale`): until a catch-up has looked for those, such a
channel starts at ``alive_at``, when the bot was last known to receive everything.

Where several processes serve, each has marks of what it hears. What one that is gone has left is taken over by
another, which reads every channel of it since it was last known to receive everything. What several have missed is
read by one of them.

All times are the platform's (`transports.shared.backfill.message_time`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Annotated, Literal, TypeVar

import anyio
from pydantic import BaseModel, Field, ValidationError

from threads.errors import NewerSchema, StoreUnavailable
from threads.journal.deduplication import DEDUPE_WINDOW
from threads.store.checksummed_lines import version_of
from threads.store.disk import Offload
from threads.store.mark_file import MarkStore
from transports.shared.backfill.message_time import NEVER, Scale

log = logging.getLogger(__name__)

R = TypeVar("R")

MOST_CHANNELS = 5_000
"""Channels that are followed; beyond, the one that was quiet for longest is dropped."""

SAVE_EVERY_S = 2.0
"""How often moved marks are written: what a kill loses of them is read again."""

ALIVE_EVERY_S = 60
"""How old the written ``alive_at`` may become while nothing else changes."""

AHEAD_S = 3600
"""How far the platform's clock may be ahead of ours."""

SKEW_S = 2
"""A message from before the link came up was delivered late; the clocks may differ by this much."""

UNKNOWN = ""
"""Stands for all channels that are not known yet."""

UNNOTICED_S = 120
"""How long a link may be dead before that is noticed."""

QUIET, LONGEST_S = 10, 300
"""A quiet channel waits: by a tenth (QUIET) of the time for which it was quiet, at most so many seconds."""

_Time = Annotated[str, Field(pattern=r"^[0-9]{1,20}(\.[0-9]{1,9})?$")]


class _File(BaseModel):
    v: Literal[1] = 1
    first_at: _Time = NEVER
    alive_at: _Time
    channels: dict[str, _Time] = {}
    due: dict[str, _Time] = {}
    """Since when a channel has a gap. Without it, channels that were just read would come first after a restart."""


@dataclass(slots=True)
class ChannelProgress:
    """How far one channel was read.

    ``taking`` counts the messages that are being handed over; ``due`` is the number of the gap to be closed, 0 for
    none. ``since`` is when the channel became due: newer gaps do not change it until the channel was read once.
    ``noted`` is when the newest gap was noted.
    """

    scale: Scale
    mark: str
    seen: str = NEVER
    taking: int = 0
    due: int = 0
    since: str = NEVER
    noted: str = NEVER

    def open_gap(self, gap: int, now: str) -> None:
        self.since, self.due, self.noted = self.since if self.due else now, gap, now

    @property
    def priority(self) -> tuple[Decimal, Decimal]:
        """The sort key: the channel that waits longest, or had a message shortly before, is read first."""
        since, spoke = self.scale.order(self.since), self.scale.order(self.scale.later(self.mark, self.seen))
        most = since - self.scale.order(self.scale.before(self.since, LONGEST_S))
        return since + min(max((since - spoke) / QUIET, Decimal(0)), most), -spoke

    def go_back(self, at: str) -> None:
        if self.scale.is_before(at, self.mark):
            self.seen, self.mark = self.scale.later(self.seen, self.mark), at

    def settle(self) -> None:
        if not (self.taking or self.due):
            self.mark = self.scale.later(self.mark, self.seen)


class Marks:
    """The marks of one workspace. Only `save`, `note` and `keep` wait.

    ``on_take_over`` is called when there is something to read that another process has left, and ``on_store_back``
    when the store answers again.
    """

    def __init__(self, store: MarkStore, offload: Offload, now: Callable[[], datetime], scale: Scale) -> None:
        self._store, self._offload, self._now = store, offload, now
        self.on_take_over: Callable[[], None] = lambda: None
        self.on_store_back: Callable[[], None] = lambda: None
        self._store_is_away = False
        self.scale = scale
        self._first, self._fresh = self.clock(), True
        self._alive = ChannelProgress(scale, self._first)
        self._progress: dict[str, ChannelProgress] = {}
        self._gaps, self._gap_at = 0, NEVER
        self._written: _File | None = None
        self._saving, self._noting = anyio.Lock(), anyio.Lock()

    def open(self) -> None:
        """Read what is stored, blocking. If it is damaged, every channel starts at now.

        Raises `NewerSchema` if a newer version of the program wrote it, and OSError.
        """
        try:
            data = self._store.read()
            stored = _File.model_validate_json(data) if data else None
        except ValidationError as error:
            if version_of(data) > 1:
                raise NewerSchema(
                    "How far channels were read was written by a newer Threadfast, and is left as it is; "
                    "update this one."
                ) from None
            log.warning(
                "marks.damaged: how far channels were read is damaged, was put aside, and starts anew: %s",
                error,
            )
            self._store.set_aside(data)
            stored = None
        if stored is None:  # or a kill in the first moments would make the next start the first
            self._write(_File(first_at=self._first, alive_at=self._first))
        else:
            self._first, self._fresh = stored.first_at, False
            self._alive = ChannelProgress(self.scale, stored.alive_at)
            self._progress = {
                channel: ChannelProgress(self.scale, mark) for channel, mark in stored.channels.items()
            }
            for channel, since in stored.due.items():
                if channel in self._progress:
                    self._progress[channel].open_gap(1, self.scale.earlier(since, self.clock()))
            self.gap()

    def take_over(self, data: bytes) -> None:
        """Add the marks of a process that is gone; what it may have missed has to be read."""
        try:
            left = _File.model_validate_json(data)
        except ValidationError as error:
            log.warning("marks.damaged: what a process has left cannot be understood: %s", error)
            return
        self._fresh, self._first = False, self.scale.earlier(self._first, left.first_at)
        alive = self.scale.before(left.alive_at, UNNOTICED_S)
        begins = {
            channel: mark if channel in left.due else self.scale.later(mark, alive)
            for channel, mark in left.channels.items()
        }
        for channel, at in begins.items():
            self._progress_of(channel, at).go_back(at)
        self._alive.go_back(left.alive_at)
        self._open_gap(self._alive, *(self._progress[channel] for channel in begins))

    def clock(self) -> str:
        """Return now, as the platform writes a time."""
        return self.scale.at(self._now())

    @property
    def alive_at(self) -> str:
        """The time until which everything surely came in: a dead link may go unnoticed for a while."""
        return self.scale.later(self._first, self.scale.before(self._alive.mark, UNNOTICED_S))

    def heard_all_since(self, at: str) -> bool:
        """Return whether all that was said after *at* came in live, as far as is known while the link is up."""
        return not self.scale.is_before(self.scale.before(at, SKEW_S), self._gap_at)

    def alive(self) -> None:
        """Note that the link works, and messages come in."""
        self._alive.seen = self.clock()
        self._alive.settle()

    def gap(self) -> int:
        """Note that messages may be missed anywhere from now on, until a catch-up; return the gap's number."""
        self._gap_at = self.clock()
        self._open_gap(self._alive, *self._progress.values())
        return self._gaps

    @contextmanager
    def taking(self, channel: str, at: str) -> Iterator[None]:
        """Hold the mark while a live message is handed over; if that fails, it was missed."""
        # A time in the future would end all catch-up there.
        at = self.scale.earlier(at, self.scale.at(self._now() + timedelta(seconds=AHEAD_S)))
        progress = self._progress_before(channel, at)
        progress.taking += 1
        try:
            yield
        except BaseException:
            self.missed(channel, at)
            raise
        else:
            progress.seen = self.scale.later(progress.seen, at)
        finally:
            progress.taking -= 1
            progress.settle()

    def missed(self, channel: str, at: str) -> None:
        """Note that a message was not handed over: its channel has a gap since then."""
        self._open_gap(self._progress_before(channel, at))

    def begins_late(self, channel: str, at: str) -> bool:
        """Follow a channel from its first message on, if that came late: later ones may be missed."""
        late = channel not in self._progress and self.scale.is_before(
            self.scale.before(at, SKEW_S), self._gap_at
        )
        if late:
            self._follow_unheard(channel)
            self.start(channel, self.scale.just_before(at), missed=True)
        return late

    def move(self, channel: str, at: str) -> None:
        """Note that a live message was handed over, or was not for us."""
        with self.taking(channel, at):
            pass

    def start(self, channel: str, at: str, *, missed: bool = False) -> None:
        """Follow a channel from *at* on, unless it is followed already; *missed* means a gap since then.

        Before the very first start nothing was missed.
        """
        if channel not in self._progress:
            none = self._fresh and self._alive.due <= 1 and not self.scale.is_before(self._first, at)
            progress = self._progress_of(channel, at)
            if missed and not none:
                self._open_gap(progress)

    def joined(self, channel: str, at: str) -> None:
        """Follow a channel from when the bot joined it. That may be reported late, so there is a gap since then."""
        self.start(channel, at, missed=True)
        progress = self._progress[channel]
        if self.scale.is_before(at, progress.mark):
            progress.go_back(at)
            self._open_gap(progress)

    def drop(self, channel: str) -> None:
        self._progress.pop(channel, None)

    def due(self) -> list[str]:
        """Return the channels to catch up on: first those with the latest messages, or due for longest.

        No channel waits for ever behind others that become due again and again.
        """
        found = {channel: progress.priority for channel, progress in self._progress.items() if progress.due}
        return sorted(found, key=found.__getitem__)

    def gap_of(self, channel: str) -> int:
        """Return the number of the newest gap in a channel, 0 for none."""
        progress = self._alive if channel == UNKNOWN else self._progress.get(channel)
        return progress.due if progress else 0

    def mark_of(self, channel: str) -> str:
        return self._progress[channel].mark

    def begin_of(self, channel: str) -> str:
        """Return where to read a channel from: its mark, or before it while the journal surely drops repeats."""
        mark = self.mark_of(channel)
        surely = self.scale.before(self.clock(), DEDUPE_WINDOW.total_seconds())
        return self.scale.before(mark, self._store.overlap_s) if self.scale.is_before(surely, mark) else mark

    async def claim(self, channel: str) -> str | None:
        """Return "" if this process is to read a channel, and None while another does.

        Otherwise another has done so; return up to where. Raises `StoreUnavailable`.
        """
        progress, now = self._progress[channel], self.scale.before(self.clock(), SKEW_S)
        return await self._ask(
            self._store.claim, channel, progress.mark, self.begin_of(channel), progress.noted, now
        )

    async def finish(self, channel: str, upto: str) -> None:
        """Tell other processes up to where a claimed channel was read. Raises `StoreUnavailable`."""
        await self._ask(self._store.finish, channel, upto)

    async def _ask(self, work: Callable[..., R], *arguments: str) -> R:
        try:
            return await self._offload(work, *arguments)
        except OSError as error:
            raise StoreUnavailable(f"marks: {error}") from error

    def reached(self, channel: str, upto: str) -> None:
        """Note that a running catch-up has handed over everything up to there."""
        if (progress := self._progress.get(channel)) and progress.due:
            progress.mark = self.scale.later(progress.mark, upto)

    def close(self, channel: str, gap: int, upto: str = NEVER) -> None:
        """Close a gap that was read *upto* there. A newer gap stays, and with it the old mark."""
        progress = self._alive if channel == UNKNOWN else self._progress.get(channel)
        if progress and progress.due == gap:
            progress.due = 0
            progress.seen = self.scale.later(progress.seen, upto)
            progress.settle()
        elif progress:
            progress.since = self.clock()

    @property
    def unwritten(self) -> bool:
        """Whether the file lacks a followed channel: a kill would forget it."""
        return self._written is None or not self._progress.keys() <= self._written.channels.keys()

    async def note(self) -> None:
        """Return when the file has every followed channel, or cannot be written. Callers keep their order."""
        if self.unwritten or self._noting.locked():
            async with self._noting:
                if self.unwritten:
                    await self.save()

    async def keep(self, is_up: Callable[[], bool]) -> None:
        """Write changes every few seconds, until cancelled. While the link *is_up*, everything comes in."""
        while True:
            await anyio.sleep(SAVE_EVERY_S)
            if is_up():
                self.alive()
                await self._take_over()
            await self.save()

    async def save(self) -> None:
        """Write what has changed. A failure is logged; the next save tries again."""
        async with self._saving:
            marks = {channel: progress.mark for channel, progress in self._progress.items()}
            due = {channel: progress.since for channel, progress in self._progress.items() if progress.due}
            stored = _File(first_at=self._first, alive_at=self._alive.mark, channels=marks, due=due)
            if self._is_news(stored):
                await self._offload(self._write, stored)

    async def _take_over(self) -> None:
        try:
            left = await self._offload(self._store.take_over)
        except OSError as error:
            if not self._store_is_away:
                log.warning("marks.not_taken_over: trying again until it works: %s", error)
            self._store_is_away = True
            return
        if self._store_is_away:
            self._store_is_away = False
            self.on_store_back()
        for data in left:
            self.take_over(data)
        if left:
            self._written = None
            self.on_take_over()

    def _is_news(self, stored: _File) -> bool:
        old = self._written
        return (
            old is None
            or (old.channels, old.due) != (stored.channels, stored.due)
            or not self.scale.is_before(self.scale.before(stored.alive_at, ALIVE_EVERY_S), old.alive_at)
        )

    def _write(self, stored: _File) -> None:
        try:
            self._store.write(stored.model_dump_json().encode())
        except OSError as error:
            log.warning(
                "marks.not_written: how far channels were read could not be written, trying again soon: %s",
                error,
            )
        else:
            self._written = stored

    def _open_gap(self, *channels: ChannelProgress) -> None:
        """Note that messages were missed there: a newer gap replaces an older one."""
        self._gaps += 1
        now = self.clock()
        for progress in channels:
            progress.open_gap(self._gaps, now)

    def _progress_before(self, channel: str, at: str) -> ChannelProgress:
        """Return the progress of a live message's channel, with a mark before the message."""
        self._follow_unheard(channel)
        progress = self._progress_of(channel, before := self.scale.just_before(at))
        progress.go_back(before)
        return progress

    def _follow_unheard(self, channel: str) -> None:
        """Follow a channel since we were last alive, if it may have begun before the message that we hear first."""
        if self._alive.due and self.scale.unheard(channel):
            self.start(channel, self.alive_at, missed=True)

    def _progress_of(self, channel: str, at: str) -> ChannelProgress:
        if channel not in self._progress:
            if len(self._progress) >= MOST_CHANNELS:
                quiet = min(self._progress, key=self._order_of)
                log.warning(
                    "marks.full: more than %d channels: %s is not followed any more", MOST_CHANNELS, quiet
                )
                del self._progress[quiet]
            self._progress[channel] = ChannelProgress(self.scale, at)
        return self._progress[channel]

    def _order_of(self, channel: str) -> Decimal:
        return self.scale.order(self._progress[channel].mark)
