"""schedules.json: what is to be sent to which thread and when. Durable before anybody is told.

A schedule has the time it is due next, in UTC. One with a cron expression goes on to the next occurrence after each,
until its end, a year at most; any other is gone once it was due.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import anyio
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field

from bot.ports.errors import ToolDenied, ToolInvalidInput
from bot.schedules.times import find_zone, format_time, next_after
from threads.model import Author, Incoming, ThreadId
from threads.scheduled_messages import scheduled_id, shortened
from threads.store.disk import Disk, Offload
from threads.store.json_file import JsonFile, JsonState

SHOWN = 20
"""Schedules that a list names."""


class Schedule(BaseModel):
    """One schedule. ``source`` is the call that made it; ``times`` is how often it still comes, None is any.

    ``last_at`` is the occurrence that was handed over last. ``barred``: the thread was told that its author may not
    use the bot any more.
    """

    model_config = ConfigDict(frozen=True)

    thread: Annotated[str, AfterValidator(lambda thread: str(ThreadId.parse(thread)))]
    author: Author
    text: str
    next_at: AwareDatetime
    zone: str = "UTC"
    cron: str = ""
    until: AwareDatetime | None = None
    times: int | None = None
    source: str = ""
    id: str = ""
    last_at: AwareDatetime | None = None
    barred: bool = False

    def incoming(self, due: datetime) -> Incoming:
        """Return the message of one occurrence: the same however often it is handed over."""
        thread = ThreadId.parse(self.thread)
        return Incoming(scheduled_id(self.id, due), thread, self.author, self.text, due.isoformat())

    def after(self, moment: datetime) -> Schedule | None:
        """Return it with the first occurrence after *moment*; None when it is over."""
        at = self._following(moment) if self.cron else None
        if at is None or (self.until and at > self.until):
            return None
        return self.model_copy(update={"next_at": at})

    def after_delivery(self, due: datetime) -> Schedule | None:
        """Return what is left of it once that occurrence is in the journal."""
        again = self.last_at is not None and due <= self.last_at  # the clock went back
        times = self.times if self.times is None or again else self.times - 1
        if times is not None and times < 1:
            return None
        done = self.model_copy(update={"times": times, "last_at": due, "barred": False})
        return done.after(due)

    def _following(self, moment: datetime) -> datetime | None:
        try:
            return next_after(self.cron, self.zone, moment)
        except (
            ToolInvalidInput
        ):  # the zone database does not know the zone any more: there is nothing to go by
            return None


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many schedules there may be: per thread, per person, in all."""

    per_thread: int = 20
    per_user: int = 10
    total: int = 200


class _File(JsonState):
    """``told`` has the day, in UTC, on which a thread was last told that nothing more may be spent."""

    schedules: tuple[Schedule, ...] = ()
    told: dict[str, str] = Field(default_factory=dict)


Change = Mapping[str, Schedule | None]
"""What becomes of schedules, by id; None: it is over."""


class Schedules:
    """All schedules of one data folder. Construct, then `open`."""

    def __init__(
        self, disk: Disk, path: Path, offload: Offload, now: Callable[[], datetime], bounds: Bounds = Bounds()
    ) -> None:
        self.now = now
        self.changed = anyio.Event()
        self._kept = JsonFile(disk, path, offload, _File())
        self.changing = self._kept.changing
        self._bounds = bounds

    def open(self) -> None:
        """Read the file and the time zones. Blocking. Raises `NewerSchema` and OSError."""
        self._kept.open()
        for schedule in self.all:
            try:
                find_zone(schedule.zone)
            except ToolInvalidInput:
                continue  # it is sent once more, when it is due, and then it is over

    @property
    def all(self) -> Sequence[Schedule]:
        return self._kept.value.schedules

    def of(self, thread: ThreadId) -> list[Schedule]:
        """Return the thread's schedules, the next one first."""
        return sorted((s for s in self.all if s.thread == str(thread)), key=lambda s: (s.next_at, s.id))

    def find(self, schedule_id: str) -> Schedule | None:
        return next((schedule for schedule in self.all if schedule.id == schedule_id), None)

    async def add(self, wanted: Schedule) -> Schedule:
        """Keep a new schedule and return it with its id; the same ``source`` again is the same one.

        Raises `ToolDenied` when there are too many, `StoreUnavailable`.
        """
        async with self.changing:
            for known in self.all:
                if known.source == wanted.source and known.thread == wanted.thread:
                    return known
            self._room_for(wanted)
            schedule = wanted.model_copy(update={"id": self._free_id(wanted)})
            await self.put({schedule.id: schedule})
            return schedule

    async def cancel(self, thread: ThreadId, schedule_id: str) -> Schedule | None:
        """Take back one of the thread's schedules and return it; None if there is none. Raises `StoreUnavailable`."""
        async with self.changing:
            found = self.find(schedule_id)
            if found is None or found.thread != str(thread):
                return None
            await self.put({found.id: None})
            return found

    async def command(self, thread: ThreadId, words: str) -> str:
        """Carry out ``/schedule [cancel ID]`` and return what to tell the person. Raises `StoreUnavailable`."""
        match words.split():
            case [] | ["list"]:
                return self.listing(thread)
            case ["cancel", schedule_id]:
                gone = await self.cancel(thread, schedule_id.lower())
                return (
                    f"Cancelled: {shortened(gone.text)}"
                    if gone
                    else f"There is no such schedule here.\n{_HOW}"
                )
            case _:
                return _HOW

    def listing(self, thread: ThreadId) -> str:
        """Return the thread's schedules, one a line."""
        found = self.of(thread)
        lines = [f"{schedule.id}: {self.describe(schedule)}" for schedule in found[:SHOWN]]
        more = [f"and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
        return "\n".join([*lines, *more, _HOW]) if found else NONE_HERE

    def describe(self, schedule: Schedule) -> str:
        """Return in words what comes when."""
        now = self.now()
        when = f"next on {format_time(schedule.next_at, schedule.zone, now)}"
        ends = f", until {format_time(schedule.until, schedule.zone, now)}" if schedule.until else ""
        times = f", {schedule.times} more" if schedule.times is not None else ""
        rule = f" ({schedule.cron}{times}{ends})" if schedule.cron else ""
        return f"“{shortened(schedule.text)}”, {when}{rule}"

    def notified_on(self, thread: str) -> str:
        """Return the day on which the thread was last told that nothing more may be spent."""
        return self._kept.value.told.get(thread, "")

    async def put(self, change: Change, told: Mapping[str, str] | None = None) -> None:
        """Make a change durable; whoever calls holds ``changing``. Raises `StoreUnavailable`, and nothing changed."""
        by_id = {schedule.id: schedule for schedule in self.all} | dict(change)
        left = tuple(schedule for schedule in by_id.values() if schedule is not None)
        threads = {schedule.thread for schedule in left}
        days = {
            thread: day
            for thread, day in {**self._kept.value.told, **(told or {})}.items()
            if thread in threads
        }
        await self._kept.replace(_File(schedules=left, told=days))
        self.wake()

    def wake(self) -> None:
        """Have whoever waits for ``changed`` look again."""
        changed, self.changed = self.changed, anyio.Event()
        changed.set()

    def _room_for(self, wanted: Schedule) -> None:
        for most, there, whose in (
            (
                self._bounds.per_thread,
                self._count(s.thread == wanted.thread for s in self.all),
                "in this thread",
            ),
            (
                self._bounds.per_user,
                self._count(_owner(s) == _owner(wanted) for s in self.all),
                "of this person",
            ),
            (self._bounds.total, len(self.all), "in all"),
        ):
            if there >= most:
                raise ToolDenied(
                    f"There are {there} schedules {whose} already, and no more may be.",
                    suggestion="Say so; one that is there can be cancelled.",
                )

    @staticmethod
    def _count(found: Iterable[bool]) -> int:
        return sum(found)

    def _free_id(self, wanted: Schedule) -> str:
        digest = sha256(f"{wanted.thread}\0{wanted.source}".encode("utf-8", "replace")).hexdigest()
        taken = {schedule.id for schedule in self.all}
        return next(f"s{digest[:size]}" for size in range(4, 64) if f"s{digest[:size]}" not in taken)


NONE_HERE = 'Nothing is scheduled here. Ask me to, for example "remind me on Monday at 9 to call Ann".'
_HOW = "/schedule cancel ID takes one back."


def _owner(schedule: Schedule) -> tuple[str, str, str]:
    """Return who a schedule is of: a person's id is only theirs in one workspace."""
    thread = ThreadId.parse(schedule.thread)
    return thread.transport, thread.workspace, schedule.author.id
