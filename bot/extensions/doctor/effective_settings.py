"""What holds in one place, and which scope of settings.json decided it: `threadfast check --for`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import BaseModel, JsonValue

from bot.config.scopes import OWN_DAY, Effective, Place, covering, resolve, scope_keys
from bot.config.settings import SCOPE, Settings
from bot.config.tool_profiles import rules_of
from bot.reports.safe_text import flat
from bot.routing.access import is_admin, may_use
from threads.model import Author, ThreadId

EVERYBODY = "for everybody"
DEFAULT = "default"
FOUND = "found at the start: no model is named"
LONGEST_VALUE = 60
"""Characters of a value in the table."""


@dataclass(frozen=True, slots=True)
class Row:
    """A key, its value in the place, and what decided it: a scope, the settings for everybody, or the default."""

    key: str
    value: JsonValue
    by: str


@dataclass(frozen=True, slots=True)
class PlaceReport:
    """``scopes`` are those that cover the place, the most specific last. ``served`` is None without a person."""

    place: str
    person: str
    scopes: tuple[str, ...]
    rows: tuple[Row, ...]
    served: bool | None = None
    admin: bool | None = None


def place_of(text: str, person: str) -> Place | None:
    """Parse "transport", "transport:workspace" or "transport:workspace:channel". Returns None for anything else."""
    if not SCOPE.fullmatch(text) or text.startswith("user:"):
        return None
    transport, workspace, channel = [*text.split(":"), "", ""][:3]
    return Place(transport, workspace, channel, person)


def report(settings: Settings, place: Place) -> PlaceReport:
    """Return what holds in a place for a person, or for nobody in particular if ``person`` is blank."""
    effective, access = resolve(settings, place), resolve(settings, place).settings.access
    thread = ThreadId(place.transport, place.workspace, place.channel, "")
    return PlaceReport(
        ":".join(filter(None, (place.transport, place.workspace, place.channel))),
        place.person,
        covering(settings, place),
        tuple(_rows(settings, effective)),
        may_use(access, Author(place.person), thread) if place.person else None,
        is_admin(access, place.person) if place.person else None,
    )


def table(found: PlaceReport) -> str:
    """Return a report for people."""
    cells = [(row.key, _short(row.value), row.by) for row in found.rows]
    widths = [max(len(row[column]) for row in cells) for column in (0, 1)]
    lines = [f"{key:<{widths[0]}}  {value:<{widths[1]}}  {by}".rstrip() for key, value, by in cells]
    covers = f"Scopes: {', '.join(found.scopes)}" if found.scopes else "No scope covers it"
    head = f"{covers}. The last one that has a key decides." if found.scopes else f"{covers}."
    return "\n".join([f"What holds in {found.place}{_whom(found)}. {head}", "", *lines])


def _whom(found: PlaceReport) -> str:
    if not found.person:
        return ""
    rights = "is served" if found.served else "is not served"
    return f" for {found.person}, who {rights}{' and is an admin' if found.admin else ''}"


def _rows(settings: Settings, effective: Effective) -> Iterator[Row]:
    for path in scope_keys():
        value = (
            rules_of(effective.settings.tools) if path == "tools.policy" else _find(effective.settings, path)
        )
        usual = EVERYBODY if _is_written(settings, path) else FOUND if path == "model" else DEFAULT
        if isinstance(value, Mapping):
            for name, entry in value.items():
                yield Row(f"{path}.{name}", entry, effective.decided.get(f"{path}.{name}", usual))
        else:
            by = effective.decided.get(path, usual)
            yield Row(path, None if by == FOUND else _plain(value), by)
        if path == OWN_DAY:
            yield from (
                Row(f"{path} (of {name} alone)", usd, name) for name, usd in effective.day_limits.items()
            )


def _find(section: BaseModel, path: str) -> object:
    for name in path.split("."):
        section = getattr(section, name)
    return section


def _is_written(section: BaseModel, path: str) -> bool:
    for name in path.split("."):
        if name not in section.model_fields_set:
            return False
        section = getattr(section, name)
    return True


def _plain(value: object) -> JsonValue:
    plain: JsonValue = json.loads(json.dumps(value))
    return plain


def _short(value: JsonValue) -> str:
    text = flat(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"
