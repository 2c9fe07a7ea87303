"""Delivers scheduled messages when they are due, each occurrence once, and notifies the thread of skipped ones.

| the occurrence                                | what happens                              | the schedule continues |
|-----------------------------------------------|-------------------------------------------|------------------------|
| is in the journal, after a crash              | nothing                                   | from there             |
| was missed, and a later one is not too old    | nothing: the later one is delivered       | from that one          |
| was missed, and is older than ``max_age_s``   | the thread is told                        | from now               |
| has an author who has no access any more      | the thread is told, once                  | from now, silently     |
| exceeds the daily budget of schedules         | the thread is told, once a day            | from now               |
| any other                                     | it is delivered                           | from there             |
| the disk fails, or the thread cannot be told  | it is tried again later                   | not yet                |

A schedule continues once the message or the notice is durable. A one-shot ends then; the thread is always told if it
was skipped. The message id comes from the schedule and the due time, so the journal takes it once, also after a
crash. The wall clock may jump: it is read every minute, and when it went back, and at the start, the next times are
computed again.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal

import anyio
from anyio.abc import TaskGroup

from bot.schedules.store import Schedule, Schedules
from bot.schedules.times import format_time
from threads.errors import PostFailed, StoreUnavailable, error_fields
from threads.model import Incoming, Outgoing, Sink, ThreadId
from threads.scheduled_messages import shortened

log = logging.getLogger(__name__)

POLL_S = 60.0
"""Longest sleep; then a suspended machine or a changed clock is noticed."""

RETRY_S = 10.0
"""Pause after the disk failed."""

NOTIFY_RETRY_S = 60.0

SkipReason = Literal["missed", "no_access", "over_budget"]

REASONS: dict[SkipReason, str] = {
    "missed": "I was not running when it was due",
    "no_access": "the person who scheduled it may not use me here any more",
    "over_budget": "scheduled messages have used up their budget for today",
}


@dataclass(frozen=True, slots=True)
class _SkippedOccurrence:
    """An occurrence that was not delivered; the thread gets a notice."""

    schedule: Schedule
    due: datetime
    why: SkipReason

    def following(self, now: datetime) -> Schedule | None:
        """Return the schedule with its next occurrence, or None if it is over."""
        barred = {"barred": self.why == "no_access" or self.schedule.barred}
        return self.schedule.model_copy(update=barred).after(max(now, self.due))

    def sentence(self, now: datetime) -> str:
        schedule, zone = self.schedule, self.schedule.zone
        following = self.following(now)
        next_time = (
            f"Next on {format_time(following.next_at, zone, now)}."
            if following
            else "It will not come again."
        )
        return (
            f"⏰ Left out: “{shortened(schedule.text)}” ({schedule.id}) of {format_time(self.due, zone, now)}, "
            f"because {REASONS[self.why]}. {next_time}"
        )


@dataclass(slots=True)
class Scheduler:
    """``sink`` makes a message durable; ``in_journal`` returns whether the journal has a key.

    ``has_access`` returns whether the author may use the bot, ``within_budget`` whether today's budget of scheduled
    turns has anything left. ``post_notice`` raises `PostFailed`. Only schedules of ``transports`` are delivered, and
    with ``only_returns`` only those by which an extension keeps a promise.
    """

    schedules: Schedules
    sink: Sink
    in_journal: Callable[[str], Awaitable[bool]]
    has_access: Callable[[Incoming], bool]
    within_budget: Callable[[], bool]
    post_notice: Callable[[Outgoing], Awaitable[object]]
    transports: Collection[str]
    max_age_s: float
    only_returns: bool = False
    _last_round: datetime = field(default=datetime.max.replace(tzinfo=UTC), init=False)
    _notifying: set[str] = field(default_factory=set, init=False)

    async def run(self) -> None:
        """Run until cancelled. It may run again: a worker that is not sure of its role stops, and goes on later."""
        self._notifying.clear()  # a notice that was cancelled is posted again
        async with anyio.create_task_group() as tasks:
            while True:
                changed = self.schedules.changed
                with anyio.move_on_after(await self._round(tasks)):
                    await changed.wait()

    async def _round(self, tasks: TaskGroup) -> float:
        """Handle everything that is due, and return the seconds until the next round."""
        now = self.schedules.now()
        skipped: dict[str, list[_SkippedOccurrence]] = {}
        try:
            if now < self._last_round:
                await self._realign(now)
            self._last_round = now
            for schedule in sorted(self._active(), key=lambda s: (s.next_at, s.id)):
                if schedule.next_at <= now and (skip := await self._deliver(schedule, now)):
                    skipped.setdefault(schedule.thread, []).append(skip)
        except StoreUnavailable as error:
            log.warning("schedule.waits: for the disk: %s", error, extra=error_fields(error))
            return RETRY_S
        for thread, skips in skipped.items():
            self._notifying.update(skip.schedule.id for skip in skips)
            tasks.start_soon(self._notify, thread, skips, now)
        if not (coming := [schedule.next_at for schedule in self._active()]):
            return math.inf
        return max(0.0, min((min(coming) - self.schedules.now()).total_seconds(), POLL_S))

    def _active(self) -> list[Schedule]:
        """Return the schedules of our transports, without those about which a notice is being posted."""
        return [
            schedule
            for schedule in self.schedules.all
            if ThreadId.parse(schedule.thread).transport in self.transports
            and schedule.id not in self._notifying
            and (schedule.is_return or not self.only_returns)
        ]

    async def _realign(self, now: datetime) -> None:
        """Compute the next times again: the clock or the zone database has changed."""
        async with self.schedules.lock:
            coming = [schedule for schedule in self.schedules.all if schedule.cron and schedule.next_at > now]
            realigned = {schedule.id: schedule.after(now) or schedule for schedule in coming}
            if any(realigned[schedule.id] != schedule for schedule in coming):
                await self.schedules.save(realigned)

    async def _deliver(self, schedule: Schedule, now: datetime) -> _SkippedOccurrence | None:
        """Do what the table says; return an occurrence that needs a notice first.

        Raises `StoreUnavailable`.
        """
        async with self.schedules.lock:
            if self.schedules.find(schedule.id) is not schedule:  # cancelled meanwhile
                return None
            due = self._latest(schedule, now)
            if due is not None and due != schedule.next_at:
                # Durable first: after a crash, the journal is asked for this occurrence.
                schedule = schedule.model_copy(update={"next_at": due})
                await self.schedules.save({schedule.id: schedule})
            incoming = schedule.incoming(schedule.next_at)
            if not await self.in_journal(incoming.key):
                if why := "missed" if due is None else self._refusal(incoming):
                    return await self._skip(schedule, why, now)
                await self.sink(incoming)
            await self.schedules.save({schedule.id: schedule.after_delivery(schedule.next_at)})
            return None

    def _latest(self, schedule: Schedule, now: datetime) -> datetime | None:
        """Return the last occurrence up to *now*, or None if it is older than ``max_age_s``.

        A promise is kept however late it is, and it is one-shot.
        """
        if schedule.is_return:
            return schedule.next_at
        oldest = now - timedelta(seconds=min(self.max_age_s, 1e8))
        latest = schedule.next_at if schedule.next_at >= oldest else None
        following = schedule.after(max(schedule.next_at, oldest))
        while following is not None and following.next_at <= now:
            latest = following.next_at
            following = following.after(latest)
        return latest

    def _refusal(self, incoming: Incoming) -> SkipReason | None:
        if not self.has_access(incoming):
            return "no_access"
        return None if self.within_budget() else "over_budget"

    async def _skip(self, schedule: Schedule, why: SkipReason, now: datetime) -> _SkippedOccurrence | None:
        """Return the occurrence if it needs a notice; without one, only continue."""
        notified_today = self.schedules.notified_on(schedule.thread) == _day(now)
        notified = schedule.barred if why == "no_access" else notified_today
        if why == "missed" or not schedule.cron or not notified:
            return _SkippedOccurrence(schedule, schedule.next_at, why)
        log.info("schedule.left_out: %s: %s", schedule.id, why, extra={"thread_id": schedule.thread})
        await self.schedules.save({schedule.id: schedule.after(now)})
        return None

    async def _notify(self, thread: str, skips: list[_SkippedOccurrence], now: datetime) -> None:
        """Post a notice, and then let the schedules of the thread continue."""
        try:
            await self._post(ThreadId.parse(thread), skips, now)
            async with self.schedules.lock:
                following = {
                    skip.schedule.id: skip.following(now)
                    for skip in skips
                    if self.schedules.find(skip.schedule.id)
                }
                notified = {thread: _day(now)} if any(skip.why == "over_budget" for skip in skips) else {}
                await self.schedules.save(following, notified)
        except (PostFailed, StoreUnavailable) as error:
            fields = {"thread_id": thread, **error_fields(error)}
            log.warning("schedule.told_later: what was left out: %s", error, extra=fields)
            await anyio.sleep(NOTIFY_RETRY_S)
        self._notifying.difference_update(skip.schedule.id for skip in skips)
        self.schedules.wake()

    async def _post(self, thread: ThreadId, skips: list[_SkippedOccurrence], now: datetime) -> None:
        key = f"{skips[0].schedule.incoming(skips[0].due).key}+left"
        text = "\n".join(skip.sentence(now) for skip in skips)
        try:
            await self.post_notice(Outgoing(thread, key, text, "notice"))
        except PostFailed as error:
            if error.retryable and not error.maybe_posted:
                raise
            # Another attempt cannot succeed, or would post it twice.
            fields = {"thread_id": str(thread)}
            log.warning("schedule.untold: nobody was told what was left out: %s", error, extra=fields)


def _day(now: datetime) -> str:
    return now.astimezone(UTC).date().isoformat()
