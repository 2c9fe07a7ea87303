"""Which changes of settings.json count while the bot runs, and which need a restart. Pure.

| key                                                     | counts from         |
|---------------------------------------------------------|---------------------|
| ``access``, ``scopes``, ``prices``, ``budget``          | the next turn on    |
| whatever a scope may have, such as ``model``            | the next turn on    |
| all others, such as ``transports`` and ``providers``    | the next start on   |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel

from bot.config.scopes import scope_keys
from bot.config.settings import Section, Settings

S = TypeVar("S", bound=Section)


@dataclass(frozen=True, slots=True)
class Changes:
    """``settings`` are the ones to go on with; ``live`` and ``restart`` are the paths of the keys that differ."""

    settings: Settings
    live: tuple[str, ...]
    restart: tuple[str, ...]


def changes(current: Settings, new: Settings) -> Changes:
    """Return what *new* changes now, and what it changes at the next start only."""
    live: list[str] = []
    restart: list[str] = []
    return Changes(_merge(current, new, "", live, restart), tuple(live), tuple(restart))


def _merge(current: S, new: S, path: str, live: list[str], restart: list[str]) -> S:
    taken: dict[str, object] = {}
    for name in type(current).model_fields:
        here, old, value = f"{path}{name}", getattr(current, name), getattr(new, name)
        if here not in LIVE and isinstance(old, Section) and isinstance(value, Section):
            taken[name] = _merge(old, value, f"{here}.", live, restart)
        elif differing := list(_differing(here, old, value)):
            (live if here in LIVE else restart).extend(differing)
            if here in LIVE:
                taken[name] = value
    return current.model_copy(update=taken)


def _differing(path: str, old: object, new: object) -> Iterator[str]:
    """Yield the paths below which two values differ: those of a section's keys, and of a map's entries."""
    if isinstance(old, Section) and isinstance(new, Section):
        for name in type(old).model_fields:
            yield from _differing(f"{path}.{name}", getattr(old, name), getattr(new, name))
    elif isinstance(old, dict) and isinstance(new, dict):
        yield from (f"{path}.{key}" for key in {**old, **new} if _plain(old.get(key)) != _plain(new.get(key)))
    elif old != new:
        yield path


def _plain(value: object) -> object:
    """Return what is written in a section: a key that is written with its default is one of a scope."""
    return value.model_dump(exclude_unset=True) if isinstance(value, BaseModel) else value


LIVE = frozenset(("access", "scopes", "prices", "budget", *scope_keys()))
"""The paths of the keys and sections that count while the bot runs."""
