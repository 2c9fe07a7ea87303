"""schedules.json: the scheduled messages of all threads. A change is durable before it is announced.

A schedule has its next due time, in UTC. With a cron expression it continues with the next occurrence, for a year at
most; without one it ends after its first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Annotated

import anyio
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field

from bot.ports.errors import ToolDenied, ToolInvalidInput
from bot.schedules.times import find_zone, format_time, next_after
from threads.model import Author, Incoming, ThreadId, WallClock
from threads.scheduled_messages import scheduled_id, shortened
from threads.store.json_file import JsonState, State

RETURN = " return "
"""Stands in the source of a schedule by which an extension keeps a promise."""


class Schedule(BaseModel):
    """``source`` is the call that made it. ``times`` is the number of remaining occurrences, None without a limit.

    ``last_at`` is the last delivered occurrence. ``barred`` means that the thread was told that the author
    may not use the bot any more. ``play`` means that a person scheduled a command, and the text is one.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

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
    play: bool = False

    def incoming(self, due: datetime) -> Incoming:
        """Return the message of one occurrence; it has the same id each time."""
        thread = ThreadId.parse(self.thread)
        message_id = scheduled_id(self.id, due, command=self.play)
        return Incoming(message_id, thread, self.author, self.text, due.isoformat())

    @property
    def is_return(self) -> bool:
        """Whether an extension keeps a promise by it. That is possible also where people can schedule nothing."""
        return self.play and not self.cron and RETURN in self.source

    def after(self, moment: datetime) -> Schedule | None:
        """Return the schedule with its first occurrence after *moment*, or None if it is over."""
        at = self._next_occurrence(moment) if self.cron else None
        if at is None or (self.until and at > self.until):
            return None
        return self.model_copy(update={"next_at": at})

    def after_delivery(self, due: datetime) -> Schedule | None:
        """Return the schedule after the occurrence *due* is in the journal, or None if it is over."""
        again = self.last_at is not None and due <= self.last_at  # the clock went back
        times = self.times if self.times is None or again else self.times - 1
        if times is not None and times < 1:
            return None
        return self.model_copy(update={"times": times, "last_at": due, "barred": False}).after(due)

    def _next_occurrence(self, moment: datetime) -> datetime | None:
        try:
            return next_after(self.cron, self.zone, moment)
        except ToolInvalidInput:  # the zone database does not have the zone any more
            return None


@dataclass(frozen=True, slots=True)
class ScheduleLimits:
    """The most schedules per thread, per person and in total."""

    per_thread: int = 20
    per_user: int = 10
    total: int = 200


class SchedulesFile(JsonState):
    """``told`` has the day, in UTC, of each thread's last notice that the budget is used up."""

    schedules: tuple[Schedule, ...] = ()
    told: dict[str, str] = Field(default_factory=dict)


Change = Mapping[str, Schedule | None]
"""Changed schedules by id; None removes one."""


class Schedules:
    """All schedules. ``lock`` is held while one is delivered, so that it is not cancelled in between."""

    def __init__(
        self, state: State[SchedulesFile], now: WallClock, limits: ScheduleLimits = ScheduleLimits()
    ) -> None:
        self.now = now
        self.changed, self.lock = anyio.Event(), anyio.Lock()
        self._state, self._limits = state, limits
        state.on_change = self.wake

    def read_zones(self) -> None:
        """Read the time zones that will be needed. Blocking."""
        for schedule in self.all:
            try:
                find_zone(schedule.zone)
            except ToolInvalidInput:
                continue  # it is sent once more, and then ends

    @property
    def all(self) -> Sequence[Schedule]:
        return self._state.value.schedules

    def in_thread(self, thread: ThreadId) -> list[Schedule]:
        """Return the thread's schedules, the next one first."""
        return sorted((s for s in self.all if s.thread == str(thread)), key=lambda s: (s.next_at, s.id))

    def find(self, schedule_id: str) -> Schedule | None:
        return next((schedule for schedule in self.all if schedule.id == schedule_id), None)

    async def add(self, new: Schedule) -> Schedule:
        """Add a schedule and return it with its id; the same ``source`` again returns the same schedule.

        Raises `ToolDenied` if there are too many, and `StoreUnavailable`.
        """
        schedule = new

        def change(old: SchedulesFile) -> SchedulesFile:
            nonlocal schedule
            for schedule in old.schedules:
                if schedule.source == new.source and schedule.thread == new.thread:
                    return old
            self._check_limits(new, old.schedules)
            schedule = new.model_copy(update={"id": _unused_id(new, old.schedules)})
            return old.model_copy(update={"schedules": (*old.schedules, schedule)})

        async with self.lock:
            await self._state.change(change)
        return schedule

    async def cancel(self, thread: ThreadId, schedule_id: str) -> Schedule | None:
        """Remove one of the thread's schedules and return it, or None if there is none. Raises `StoreUnavailable`."""
        async with self.lock:
            found = self.find(schedule_id)
            if found is None or found.thread != str(thread):
                return None
            await self.save({found.id: None})
            return found

    def describe(self, schedule: Schedule) -> str:
        """Return in words what is sent when."""
        now = self.now()
        when = f"next on {format_time(schedule.next_at, schedule.zone, now)}"
        ends = f", until {format_time(schedule.until, schedule.zone, now)}" if schedule.until else ""
        times = f", {schedule.times} more" if schedule.times is not None else ""
        rule = f" ({schedule.cron}{times}{ends})" if schedule.cron else ""
        return f"“{shortened(schedule.text)}”, {when}{rule}"

    def notified_on(self, thread: str) -> str:
        """Return the day of the thread's last notice that the budget is used up."""
        return self._state.value.told.get(thread, "")

    async def save(self, change: Change, notified: Mapping[str, str] | None = None) -> None:
        """Make a change of schedules that are there durable; on `StoreUnavailable` nothing changed.

        The caller holds ``lock``. What another worker has removed meanwhile stays removed.
        """

        def update(old: SchedulesFile) -> SchedulesFile:
            updated = (change.get(schedule.id, schedule) for schedule in old.schedules)
            schedules = tuple(schedule for schedule in updated if schedule is not None)
            threads = {schedule.thread for schedule in schedules}
            days = {
                thread: day for thread, day in (old.told | dict(notified or {})).items() if thread in threads
            }
            return old.model_copy(update={"schedules": schedules, "told": days})

        await self._state.change(update)

    def wake(self) -> None:
        """Wake everybody who waits for ``changed``."""
        changed, self.changed = self.changed, anyio.Event()
        changed.set()

    def _check_limits(self, new: Schedule, known: Sequence[Schedule]) -> None:
        in_thread = [schedule for schedule in known if schedule.thread == new.thread]
        of_person = [schedule for schedule in known if _owner(schedule) == _owner(new)]
        for schedules, most, whose in (
            (in_thread, self._limits.per_thread, "in this thread"),
            (of_person, self._limits.per_user, "of this person"),
            (known, self._limits.total, "in all"),
        ):
            if len(schedules) >= most:
                raise ToolDenied(
                    f"There are {len(schedules)} schedules {whose} already, and no more are allowed.",
                    suggestion="Say so; one of them can be cancelled.",
                )


def _unused_id(new: Schedule, known: Sequence[Schedule]) -> str:
    digest = sha256(f"{new.thread}\0{new.source}".encode("utf-8", "replace")).hexdigest()
    taken = {schedule.id for schedule in known}
    return next(f"s{digest[:size]}" for size in range(4, 64) if f"s{digest[:size]}" not in taken)


def _owner(schedule: Schedule) -> tuple[str, str, str]:
    """Return the owner of a schedule: the id of a person is unique only within a workspace."""
    thread = ThreadId.parse(schedule.thread)
    return thread.transport, thread.workspace, schedule.author.id
