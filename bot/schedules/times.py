"""When something is due: cron expressions by cronsim, time zones by the zone database.

Where the clocks go forward, what is set for an hour that does not exist comes right after it; where they go back,
what is set for the hour that comes twice comes in the first. What is set by the hour or the minute
(``*/30 * * * *``) follows real time. So does Debian's cron, which cronsim goes by.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import cache, lru_cache
from importlib.resources import files
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from bot.ports.errors import ToolInvalidInput

FARTHEST = timedelta(days=366)
"""How far ahead anything may be set."""

LONGEST_CRON, LONGEST_TIME = 100, 40
"""Characters."""

LOOKED_AT = 200
"""Occurrences whose distance is measured: two days of what comes every 15 min, which is all that can differ."""

_CRON = "Five fields are needed: minute, hour, day of month, month, day of week, such as '0 9 * * 1-5'."
_TIME = "Write it as 2026-11-23T09:00+01:00, or without the offset and with the time zone in `zone`."
_ZONE = "Name the time zone, such as Europe/Berlin; ask the person if you do not know it."


@lru_cache(1000)  # a name in each of its spellings would be too many
def find_zone(name: str) -> ZoneInfo:
    """Return a time zone by its name, whatever its case. Reads files the first time.

    Raises `ToolInvalidInput`, naming the nearest ones.
    """
    names = _zones()
    known = names.get(name.casefold())
    if known is None:
        raise ToolInvalidInput(
            f"There is no time zone named {name[:60]!r}.", suggestion=_nearest(name[:60], names)
        )
    try:
        return ZoneInfo(known)
    except (OSError, ValueError) as error:  # the database of the system is another one
        raise ToolInvalidInput(f"The time zone {known} cannot be read here.", suggestion=_ZONE) from error


def next_after(cron: str, zone: str, after: datetime) -> datetime | None:
    """Return the first occurrence later than *after*, in UTC; None if there is none in 50 years.

    Raises `ToolInvalidInput` for what `parse_cron` would not have let pass.
    """
    for found in CronSim(cron, after.astimezone(find_zone(zone))):
        # In the hour that comes twice the library goes by the local time, and may begin with what is past.
        if (at := found.astimezone(UTC)) > after:
            return at
    return None


def parse_cron(cron: str, zone: str, now: datetime, least: timedelta) -> tuple[str, datetime]:
    """Return the expression and its first occurrence, in UTC; its occurrences must be *least* apart.

    Raises `ToolInvalidInput`. Takes a few milliseconds whatever is given.
    """
    if not zone:
        raise ToolInvalidInput("A cron expression needs a time zone.", suggestion=_ZONE)
    fields = cron.split() if len(cron) <= LONGEST_CRON and cron.isascii() else []
    cron = " ".join(fields)
    if len(fields) != 5:
        raise ToolInvalidInput("This is no cron expression.", suggestion=_CRON)
    try:
        first = next_after(cron, zone, now)
        # As if there were no summer time: a gap that it makes shorter once a year is no reason to refuse.
        times = list(islice(CronSim(cron, now.astimezone(UTC)), LOOKED_AT))
    except CronSimError as error:
        raise ToolInvalidInput(f"This is no cron expression: {error}.", suggestion=_CRON) from error
    if first is None or first > now + FARTHEST:
        raise ToolInvalidInput(
            "This does not come round within a year.", suggestion="Choose a time that does, or use `at`."
        )
    if any(later - earlier < least for earlier, later in pairwise(times)):
        raise ToolInvalidInput(
            f"This comes round more often than every {least.total_seconds() / 60:g} minutes.",
            suggestion="Leave more time in between.",
        )
    return cron, first


def parse_time(written: str, zone: str, now: datetime) -> datetime:
    """Return a time that was written in ISO 8601, in UTC; *zone* counts where it has no offset.

    Raises `ToolInvalidInput` when it cannot be understood, is past, or farther away than a year.
    """
    try:
        read = datetime.fromisoformat(written[: LONGEST_TIME + 1])
        if read.tzinfo is None:
            if not zone:
                raise ToolInvalidInput("The time has neither an offset nor a time zone.", suggestion=_ZONE)
            read = read.replace(tzinfo=find_zone(zone))
        at = read.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ToolInvalidInput(f"{written[:LONGEST_TIME]!r} is no time.", suggestion=_TIME) from error
    if at <= now:
        raise ToolInvalidInput(
            f"That is past: it is {now.astimezone(UTC):%Y-%m-%d %H:%M} UTC now.", suggestion=_TIME
        )
    return within_a_year(at, now)


def within_a_year(at: datetime, now: datetime) -> datetime:
    """Return the time if it is not too far away; raises `ToolInvalidInput`."""
    if at > now + FARTHEST:
        raise ToolInvalidInput("That is more than a year ahead.", suggestion="Choose an earlier time.")
    return at


def format_time(at: datetime, zone: str, now: datetime) -> str:
    """Return a time as people say it there: "Mon 23 Nov 09:00 Europe/Berlin"."""
    try:
        local = at.astimezone(find_zone(zone))
    except ToolInvalidInput:
        local, zone = at.astimezone(UTC), "UTC"
    year = "" if local.year == now.year else f" {local.year}"
    return f"{local:%a} {local.day} {local:%b}{year} {local:%H:%M} {zone}"


@cache
def _zones() -> Mapping[str, str]:
    """Return the names of all time zones by their folded form."""
    names = files("tzdata").joinpath("zones").read_text().split()
    return {name.casefold(): name for name in names}


def _nearest(name: str, names: Mapping[str, str]) -> str:
    folded = name.casefold().replace(" ", "_")
    cities = [known for low, known in names.items() if folded and folded == low.rpartition("/")[2]]
    close = [names[low] for low in get_close_matches(folded, names, n=3, cutoff=0.5)]
    nearest = list(dict.fromkeys([*cities, *close]))[:3]
    return f"Did you mean {' or '.join(nearest)}?" if nearest else _ZONE
