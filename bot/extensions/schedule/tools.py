"""Scheduled messages to this thread: set, list and cancel them. Everybody in the thread sees the changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import ClassVar, Literal, Self

from pydantic import Field, JsonValue, model_validator

from bot.ports.errors import ToolDenied, ToolError, ToolInvalidInput, ToolNotFound
from bot.ports.tool import Arguments, ToolContext
from bot.routing.commands import parse
from bot.schedules.store import Schedule, Schedules
from bot.schedules.times import HORIZON, find_zone, format_time, parse_cron, parse_time
from threads.errors import StoreUnavailable
from threads.scheduled_messages import due_of, shortened
from threads.store.disk import Offload

MAX_TIMES = 10_000
MAX_MINUTES = 366 * 24 * 60


class ScheduleArguments(Arguments):
    text: str = Field(
        min_length=1,
        max_length=2000,
        description="The message, worded for that time: what to do then, complete in itself",
    )
    at: str = Field(
        default="", max_length=40, description="Once, at this time: ISO 8601, with an offset or with `zone`"
    )
    in_minutes: int | None = Field(default=None, ge=1, le=MAX_MINUTES, description="Once, in so many minutes")
    cron: str = Field(
        default="",
        max_length=100,
        description="Repeatedly: five fields (minute, hour, day of month, month, day of week), needs `zone`",
    )
    zone: str = Field(
        default="", max_length=60, description="IANA time zone of the person, such as Europe/Berlin"
    )
    until: str = Field(
        default="", max_length=40, description="With cron: the last time it may come, ISO 8601"
    )
    times: int | None = Field(default=None, ge=1, le=MAX_TIMES, description="With cron: how often it comes")

    @model_validator(mode="after")
    def _one_time(self) -> Self:
        if sum([bool(self.at), self.in_minutes is not None, bool(self.cron)]) != 1:
            raise ValueError("give exactly one of `at`, `in_minutes` and `cron`")
        if not self.cron and (self.until or self.times is not None):
            raise ValueError("`until` and `times` go with `cron` only")
        if not self.text.strip():
            raise ValueError("`text` is blank")
        return self

    def subject(self) -> str:
        """Return when and what: "0 9 * * 1-5 Europe/Berlin: Say good morning."."""
        when = self.cron or self.at or f"in {self.in_minutes} min"
        return f"{' '.join(filter(None, (when, self.zone)))}: {self.text}"


class CancelArguments(Arguments):
    id: str = Field(min_length=2, max_length=64, description="Id of the schedule, as `schedules` lists it")

    def subject(self) -> str:
        return self.id


@dataclass(frozen=True)
class SetSchedule:
    """``min_minutes`` is the shortest time between two occurrences.

    A text that would be a command if a person wrote it is refused: a model must not schedule approvals.
    """

    schedules: Schedules
    offload: Offload
    min_minutes: int
    name: ClassVar[str] = "schedule"
    description: ClassVar[str] = (
        "Have a message sent to this thread later, once or regularly, as if the person who asks now had written it "
        "then; you will answer it. Only when they ask for it. The thread is told."
    )
    risk: ClassVar[Literal["write"]] = "write"
    arguments: ClassVar[type[Arguments]] = ScheduleArguments

    async def __call__(self, arguments: ScheduleArguments, context: ToolContext) -> JsonValue:
        if due_of(context.message_id):
            raise ToolDenied(
                "A scheduled message cannot schedule others.",
                suggestion="Say what should be scheduled; a person can ask for it.",
            )
        if parse(arguments.text):
            raise ToolDenied(
                "A command cannot be scheduled: only people give commands.",
                suggestion="Schedule a message in words.",
            )
        now = self.schedules.now()
        timing: Mapping[str, object] = await self.offload(
            _timing, arguments, now, timedelta(minutes=self.min_minutes)
        )
        new = Schedule.model_validate(
            {
                "thread": str(context.thread),
                "author": context.asker,
                "text": arguments.text.strip(),
                "source": f"{context.message_id} {context.call_id} {_digest(arguments)}",
                **timing,
            }
        )
        with _store_errors():
            schedule = await self.schedules.add(new)
        context.note(f"⏰ Scheduled {self.schedules.describe(schedule)} (/schedule cancel {schedule.id})")
        return {
            "id": schedule.id,
            "next": format_time(schedule.next_at, schedule.zone, now),
            "told_the_thread": True,
        }


@dataclass(frozen=True)
class ListSchedules:
    schedules: Schedules
    name: ClassVar[str] = "schedules"
    description: ClassVar[str] = "List the schedules of this thread, with ids and times."
    risk: ClassVar[Literal["read"]] = "read"
    arguments: ClassVar[type[Arguments]] = Arguments

    async def __call__(self, arguments: Arguments, context: ToolContext) -> JsonValue:  # noqa: ARG002
        return [
            {
                "id": schedule.id,
                "text": schedule.text,
                "next": format_time(schedule.next_at, schedule.zone, self.schedules.now()),
                "cron": schedule.cron,
                "by": schedule.author.name or schedule.author.id,
            }
            for schedule in self.schedules.in_thread(context.thread)
        ]


@dataclass(frozen=True)
class CancelSchedule:
    schedules: Schedules
    name: ClassVar[str] = "unschedule"
    description: ClassVar[str] = "Cancel a schedule of this thread. The thread is told."
    risk: ClassVar[Literal["write"]] = "write"
    arguments: ClassVar[type[Arguments]] = CancelArguments

    async def __call__(self, arguments: CancelArguments, context: ToolContext) -> JsonValue:
        with _store_errors():
            cancelled = await self.schedules.cancel(context.thread, arguments.id.strip().lower())
        if cancelled is None:
            raise ToolNotFound(
                f"Nothing with the id {arguments.id[:64]!r} is scheduled in this thread.",
                suggestion="Call schedules to list them.",
            )
        context.note(f"⏰ No longer scheduled: “{shortened(cancelled.text)}” ({cancelled.id})")
        return {"cancelled": cancelled.id}


@contextmanager
def _store_errors() -> Iterator[None]:
    """Tell the model that the disk failed."""
    try:
        yield
    except StoreUnavailable as error:
        raise ToolError(
            "This could not be saved on disk, so nothing was changed.",
            suggestion="Say so, and try again later.",
        ) from error


def _timing(arguments: ScheduleArguments, now: datetime, min_interval: timedelta) -> Mapping[str, object]:
    """Return the times as fields of a `Schedule`. Reads the zone database. Raises `ToolInvalidInput`."""
    zone = find_zone(arguments.zone).key if arguments.zone else ""
    if arguments.cron:
        cron, first = parse_cron(arguments.cron, zone, now, min_interval)
        until = parse_time(arguments.until, zone, now) if arguments.until else now + HORIZON
        if until < first:
            raise ToolInvalidInput("It would end before its first occurrence.", suggestion="Correct `until`.")
        return {"cron": cron, "next_at": first, "zone": zone, "until": until, "times": arguments.times}
    if arguments.in_minutes is not None:
        return {"next_at": now + timedelta(minutes=arguments.in_minutes), "zone": zone or "UTC"}
    return {"next_at": parse_time(arguments.at, zone, now), "zone": zone or "UTC"}


def _digest(arguments: ScheduleArguments) -> str:
    """Return what distinguishes two calls to which a server gave the same id."""
    return sha256(arguments.model_dump_json().encode("utf-8", "replace")).hexdigest()[:16]
