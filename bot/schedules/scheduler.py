"""Schedules that are due are handed over, as messages, each occurrence once; what cannot be is told of.

| the occurrence                              | what is done                          | the schedule goes on |
|---------------------------------------------|---------------------------------------|----------------------|
| is in the journal: a crash came in between  | nothing                               | from there           |
| was missed, and a later one is not too old  | nothing: that one is handed over      | from that one        |
| was missed, and is older than ``max_age_s`` | the thread is told                    | from now             |
| is of somebody who is served no more        | the thread is told, once              | from now, silently   |
| has nothing left to spend today             | the thread is told, once a day        | from now             |
| any other                                   | handed over, and once that is durable | from there           |
| the disk refuses, or nobody can be told     | tried again later                     | not yet              |

Going on is durable, too; a one-shot is over then, and always told of if it was left out. The id of the message is
made of the schedule and the time it was due, so the journal takes it once, wherever a crash falls. The wall clock may
jump: it is looked at every minute, and when it went back, or at the start, what comes next is worked out anew.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Literal

import anyio
from anyio.abc import TaskGroup

from bot.schedules.store import Schedule, Schedules
from bot.schedules.times import format_time
from threads.errors import PostFailed, StoreUnavailable
from threads.model import Incoming, Outgoing, Sink, ThreadId
from threads.scheduled_messages import shortened

log = logging.getLogger(__name__)

LOOK_S = 60.0
"""Longest sleep: a machine that was suspended, or a clock that was set, is noticed by then."""

AGAIN_S = 10.0
"""Pause after the disk refused."""

TELL_AGAIN_S = 60.0

Why = Literal["missed", "barred", "spent"]

REASONS: dict[Why, str] = {
    "missed": "I was not there when it was due",
    "barred": "whoever scheduled it may not use me here any more",
    "spent": "scheduled messages have used up what they may spend today",
}


@dataclass(frozen=True, slots=True)
class _LeftOut:
    """An occurrence that the thread is to be told of."""

    schedule: Schedule
    due: datetime
    why: Why


@dataclass(slots=True)
class Scheduler:
    """Hands over what is due. ``sink`` makes a message durable, ``known`` asks the journal for a key.

    ``allowed`` is the one decision who is served, ``may_spend`` whether a scheduled turn may still cost something
    today; ``tell`` posts a notice and raises `PostFailed`; ``served`` are the names of the transports that run: what
    belongs to another one rests. Occurrences that are older than ``max_age_s`` are not made up for.
    """

    schedules: Schedules
    sink: Sink
    known: Callable[[str], Awaitable[bool]]
    allowed: Callable[[Incoming], bool]
    may_spend: Callable[[], bool]
    tell: Callable[[Outgoing], Awaitable[object]]
    served: Collection[str]
    max_age_s: float
    _seen: datetime = field(default=datetime.max.replace(tzinfo=UTC), init=False)
    _telling: set[str] = field(default_factory=set, init=False)

    async def run(self) -> None:
        """Hand over until cancelled."""
        async with anyio.create_task_group() as tasks:
            while True:
                changed = self.schedules.changed
                pause = await self._round(tasks)
                with anyio.move_on_after(pause):
                    await changed.wait()

    async def _round(self, tasks: TaskGroup) -> float:
        """Do all that is due, and return how long nothing will be, in seconds."""
        now = self.schedules.now()
        left_out: dict[str, list[_LeftOut]] = {}
        try:
            if now < self._seen:
                await self._realign(now)
            self._seen = now
            for schedule in sorted(self._waiting(), key=lambda s: (s.next_at, s.id)):
                if schedule.next_at <= now and (found := await self._due(schedule, now)):
                    left_out.setdefault(schedule.thread, []).append(found)
        except StoreUnavailable as error:
            log.warning("schedule.waits: for the disk: %s", error, extra={"code": error.code})
            return AGAIN_S
        for thread, missing in left_out.items():
            self._telling.update(left.schedule.id for left in missing)
            tasks.start_soon(self._tell, thread, missing, now)
        coming = [schedule.next_at for schedule in self._waiting()]
        wait_s = (min(coming) - self.schedules.now()).total_seconds() if coming else float("inf")
        return max(0.0, min(wait_s, LOOK_S)) if coming else wait_s

    def _waiting(self) -> list[Schedule]:
        """Return the schedules that are looked after here, but those that a thread is just being told of."""
        return [
            schedule
            for schedule in self.schedules.all
            if ThreadId.parse(schedule.thread).transport in self.served and schedule.id not in self._telling
        ]

    async def _realign(self, now: datetime) -> None:
        """Work out what comes next, for a clock, or a zone database, that is not the one it was worked out by."""
        async with self.schedules.changing:
            coming = [schedule for schedule in self.schedules.all if schedule.cron and schedule.next_at > now]
            anew = {schedule.id: schedule.after(now) or schedule for schedule in coming}
            if any(anew[schedule.id] != schedule for schedule in coming):
                await self.schedules.put(anew)

    async def _due(self, schedule: Schedule, now: datetime) -> _LeftOut | None:
        """Do what the table says; return what has to be told first. Raises `StoreUnavailable`."""
        async with self.schedules.changing:
            if self.schedules.find(schedule.id) is not schedule:  # cancelled meanwhile
                return None
            due = self._latest(schedule, now)
            if due is not None and due != schedule.next_at:
                # Durable first: after a crash it is this one that the journal is asked for.
                schedule = schedule.model_copy(update={"next_at": due})
                await self.schedules.put({schedule.id: schedule})
            incoming = schedule.incoming(schedule.next_at)
            if not await self.known(incoming.key):
                if why := "missed" if due is None else self._refusal(incoming):
                    return await self._leave_out(schedule, why, now)
                await self.sink(incoming)
            await self.schedules.put({schedule.id: schedule.after_delivery(schedule.next_at)})
            return None

    def _latest(self, schedule: Schedule, now: datetime) -> datetime | None:
        """Return the last occurrence up to now; None when it is too old to be made up for."""
        oldest = now - timedelta(seconds=min(self.max_age_s, 1e8))
        found = schedule.next_at if schedule.next_at >= oldest else None
        next_ = schedule.after(max(schedule.next_at, oldest))
        while next_ is not None and next_.next_at <= now:
            found = next_.next_at
            next_ = next_.after(found)
        return found

    def _refusal(self, incoming: Incoming) -> Why | None:
        if not self.allowed(incoming):
            return "barred"
        return None if self.may_spend() else "spent"

    async def _leave_out(self, schedule: Schedule, why: Why, now: datetime) -> _LeftOut | None:
        """Return what the thread has to be told, or go on if it was told already."""
        today = _day(now)
        told = schedule.barred if why == "barred" else self.schedules.notified_on(schedule.thread) == today
        if why == "missed" or not schedule.cron or not told:
            return _LeftOut(schedule, schedule.next_at, why)
        log.info("schedule.left_out: %s: %s", schedule.id, why, extra={"thread_id": schedule.thread})
        await self.schedules.put({schedule.id: schedule.after(now)})
        return None

    async def _tell(self, thread: str, missing: list[_LeftOut], now: datetime) -> None:
        """Tell the thread, and then have its schedules go on."""
        try:
            await self._post(ThreadId.parse(thread), missing, now)
            async with self.schedules.changing:
                gone_on = {left.schedule.id: self._gone_on(left, now) for left in missing}
                there = {name: left for name, left in gone_on.items() if self.schedules.find(name)}
                spent = {thread: _day(now)} if any(left.why == "spent" for left in missing) else {}
                await self.schedules.put(there, spent)
        except (PostFailed, StoreUnavailable) as error:
            fields = {"thread_id": thread, "code": error.code}
            log.warning("schedule.told_later: what was left out: %s", error, extra=fields)
            await anyio.sleep(TELL_AGAIN_S)
        self._telling.difference_update(left.schedule.id for left in missing)
        self.schedules.wake()

    async def _post(self, thread: ThreadId, missing: list[_LeftOut], now: datetime) -> None:
        key = f"{missing[0].schedule.incoming(missing[0].due).key}+left"
        lines = [self._sentence(left, now) for left in missing]
        try:
            await self.tell(Outgoing(thread, key, "\n".join(lines), "notice"))
        except PostFailed as error:
            if error.retryable and not error.maybe_posted:
                raise
            # It will not get through, or has: there is no use in trying for ever.
            log.warning(
                "schedule.untold: nobody was told what was left out: %s",
                error,
                extra={"thread_id": str(thread)},
            )

    def _sentence(self, left: _LeftOut, now: datetime) -> str:
        schedule, zone = left.schedule, left.schedule.zone
        next_ = self._gone_on(left, now)
        goes_on = f"Next on {format_time(next_.next_at, zone, now)}." if next_ else "It will not come again."
        return (
            f"⏰ Left out: “{shortened(schedule.text)}” ({schedule.id}) of {format_time(left.due, zone, now)}, "
            f"because {REASONS[left.why]}. {goes_on}"
        )

    @staticmethod
    def _gone_on(left: _LeftOut, now: datetime) -> Schedule | None:
        barred = {"barred": left.why == "barred" or left.schedule.barred}
        return left.schedule.model_copy(update=barred).after(max(now, left.due))


def _day(now: datetime) -> str:
    day: date = now.astimezone(UTC).date()
    return day.isoformat()
