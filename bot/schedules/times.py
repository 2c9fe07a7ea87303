"""Cron expressions, by cronsim, and times, with the zones of the zone database.

As in Debian's cron: a time in the hour that a clock change skips comes right after it, and a time in the hour that
comes twice comes in the first. Expressions by the hour or the minute (``*/30 * * * *``) follow real time.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from importlib.resources import files
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from bot.ports.errors import ToolInvalidInput

HORIZON = timedelta(days=366)
"""How far ahead a time may be."""

LONGEST_CRON, LONGEST_TIME = 100, 40
"""Characters."""

CHECKED_OCCURRENCES = 200
"""Occurrences whose distance is checked: two days at every 15 minutes; later ones do not differ."""

_CRON = "Five fields are needed: minute, hour, day of month, month, day of week, such as '0 9 * * 1-5'."
_TIME = "Write it as 2026-11-23T09:00+01:00, or without the offset and with the time zone in `zone`."
_ZONE = "Name the time zone, such as Europe/Berlin; ask the person if you do not know it."


@lru_cache(1000)  # not unlimited: names come in any case
def find_zone(name: str) -> ZoneInfo:
    """Return a time zone by its name, in any case. Reads files the first time. Raises `ToolInvalidInput`."""
    try:
        return ZoneInfo(_zones()[name.casefold()])
    except (KeyError, OSError, ValueError) as error:  # the system can have another database
        raise ToolInvalidInput(f"There is no time zone named {name[:60]!r}.", suggestion=_ZONE) from error


def next_after(cron: str, zone: str, after: datetime) -> datetime | None:
    """Return the first occurrence after *after*, in UTC, or None if there is none in 50 years.

    Raises `ToolInvalidInput` for a zone or an expression that `parse_cron` refuses.
    """
    for local in CronSim(cron, after.astimezone(find_zone(zone))):
        # In the hour that comes twice, the library compares local times and may start with a past one.
        if (at := local.astimezone(UTC)) > after:
            return at
    return None


def parse_cron(cron: str, zone: str, now: datetime, min_interval: timedelta) -> tuple[str, datetime]:
    """Return the expression and its first occurrence, in UTC; its occurrences must be at least *min_interval* apart.

    Raises `ToolInvalidInput`. Takes at most a few milliseconds.
    """
    if not zone:
        raise ToolInvalidInput("A cron expression needs a time zone.", suggestion=_ZONE)
    fields = cron.split() if len(cron) <= LONGEST_CRON and cron.isascii() else []
    cron = " ".join(fields)
    if len(fields) != 5:
        raise ToolInvalidInput("This is not a cron expression.", suggestion=_CRON)
    try:
        first = next_after(cron, zone, now)
        # In UTC: a gap that summer time makes shorter once a year is no reason to refuse.
        times = list(islice(CronSim(cron, now.astimezone(UTC)), CHECKED_OCCURRENCES))
    except CronSimError as error:
        raise ToolInvalidInput(f"This is not a cron expression: {error}.", suggestion=_CRON) from error
    if first is None or first > now + HORIZON:
        raise ToolInvalidInput(
            "This does not occur within a year.", suggestion="Choose an earlier time, or use `at`."
        )
    if any(later - earlier < min_interval for earlier, later in pairwise(times)):
        raise ToolInvalidInput(
            f"This occurs more often than every {min_interval.total_seconds() / 60:g} minutes.",
            suggestion="Leave more time between two occurrences.",
        )
    return cron, first


def parse_time(text: str, zone: str, now: datetime) -> datetime:
    """Return a time in ISO 8601 in UTC; *zone* counts if it has no offset.

    Raises `ToolInvalidInput` if it is not valid, past, or more than a year ahead.
    """
    try:
        time = datetime.fromisoformat(text[: LONGEST_TIME + 1])
        if time.tzinfo is None:
            if not zone:
                raise ToolInvalidInput("The time has neither an offset nor a time zone.", suggestion=_ZONE)
            time = time.replace(tzinfo=find_zone(zone))
        at = time.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ToolInvalidInput(f"{text[:LONGEST_TIME]!r} is not a time.", suggestion=_TIME) from error
    if at <= now:
        raise ToolInvalidInput(
            f"That is past: it is {now.astimezone(UTC):%Y-%m-%d %H:%M} UTC now.", suggestion=_TIME
        )
    if at > now + HORIZON:
        raise ToolInvalidInput("That is more than a year ahead.", suggestion="Choose an earlier time.")
    return at


def format_time(at: datetime, zone: str, now: datetime) -> str:
    """Return a time such as "Mon 23 Nov 09:00 Europe/Berlin"."""
    try:
        local = at.astimezone(find_zone(zone))
    except ToolInvalidInput:
        local, zone = at.astimezone(UTC), "UTC"
    year = "" if local.year == now.year else f" {local.year}"
    return f"{local:%a} {local.day} {local:%b}{year} {local:%H:%M} {zone}"


@cache
def _zones() -> Mapping[str, str]:
    """Return the names of all time zones by their case-folded form."""
    return {name.casefold(): name for name in files("tzdata").joinpath("zones").read_text().split()}
