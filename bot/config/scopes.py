"""Settings by scope: what holds for a message, by where it was written and by whom. Pure.

| scope            | covers                                                  |
|------------------|---------------------------------------------------------|
| none             | everything: the keys outside of ``scopes``              |
| ``slack``        | all of one transport, by its name in ``transports``     |
| ``slack:T1``     | a workspace                                             |
| ``discord:G1``   | a guild; ``discord:@me`` is all direct messages         |
| ``slack:T1:C1``  | a channel                                               |
| ``user:U1``      | a person, wherever they write                           |

A key of a later row wins over the same key of an earlier one. The order in the file means nothing. A key that no
scope has is the one for everybody. ``tools.policy`` is laid over rule by rule, a list is replaced as a whole.

``budget.limit_usd.day`` of a scope is a limit of its own, on all that the scope covers. It stands beside the ``day``
of everybody, and each scope that covers a message has its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from cachetools import LRUCache

from bot.config.settings import Scope, Section, Settings
from threads.model import Feedback, Incoming, ThreadId

OWN_DAY = "budget.limit_usd.day"
"""The key of a scope that is not laid over the one for everybody."""

OVERRIDE = "override"

MOST_PLACES = 1_000
"""Combinations of scopes whose settings are remembered."""

S = TypeVar("S", bound=Section)


@dataclass(frozen=True, slots=True)
class Place:
    """Where something was written, and by whom. Parts that are blank are in no scope."""

    transport: str = ""
    workspace: str = ""
    channel: str = ""
    person: str = ""

    @classmethod
    def of(cls, event: Incoming | Feedback) -> Place:
        return cls.in_thread(event.thread, event.author.id)

    @classmethod
    def in_thread(cls, thread: ThreadId, person: str = "") -> Place:
        return cls(thread.transport, thread.workspace, thread.channel, person)

    @property
    def scopes(self) -> tuple[str, ...]:
        """Return the names of the scopes that can cover it, the most specific last."""
        workspace = f"{self.transport}:{self.workspace}"
        return self.transport, workspace, f"{workspace}:{self.channel}", f"user:{self.person}"


@dataclass(frozen=True, eq=False)
class Effective:
    """The settings that hold in one place. Two are equal only if they are the same object.

    ``decided`` has the scope of each key that a scope decided, by the key's path. ``day_limits`` has the scopes' own
    limits, in USD per day.
    """

    settings: Settings
    decided: Mapping[str, str] = field(default_factory=dict)
    day_limits: Mapping[str, float] = field(default_factory=dict)

    def override(self, scope: Scope, name: str = OVERRIDE) -> Effective:
        """Return these settings with one more scope on top of all, such as that of a part of a turn.

        What is made from settings is remembered by this object: keep it for as long as it is used.
        """
        keys: list[str] = []
        settings = _lay_over(self.settings, scope, keys, "")
        day = scope.budget.limit_usd.day
        own = {} if day is None else {name: day}
        return Effective(settings, {**self.decided, **dict.fromkeys(keys, name)}, {**self.day_limits, **own})


def scope_keys(section: type[Section] = Scope, prefix: str = "") -> Iterator[str]:
    """Yield the path of each key that a scope may have."""
    for name, about in section.model_fields.items():
        inner = about.annotation
        if isinstance(inner, type) and issubclass(inner, Section):
            yield from scope_keys(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def resolve(settings: Settings, place: Place) -> Effective:
    """Return what holds in a place: each key by the most specific scope that has it."""
    effective = Effective(settings)
    for name in covering(settings, place):
        effective = effective.override(settings.scopes[name], name)
    return effective


def covering(settings: Settings, place: Place) -> tuple[str, ...]:
    """Return the names of the settings' scopes that cover a place, the most specific last."""
    return tuple(name for name in place.scopes if name in settings.scopes)


def _lay_over(base: S, over: Section, keys: list[str], prefix: str) -> S:
    """Return *base* with each key that is written in *over*; adds the paths of these keys to *keys*."""
    changes: dict[str, object] = {}
    for name in sorted(over.model_fields_set):
        path, value = f"{prefix}{name}", getattr(over, name)
        if isinstance(value, Section):
            changes[name] = _lay_over(getattr(base, name), value, keys, f"{path}.")
        elif isinstance(value, dict):
            # A default of everybody is no rule: it must not go before what the scope says in another way.
            changes[name] = {**(getattr(base, name) if name in base.model_fields_set else {}), **value}
            keys += [f"{path}.{rule}" for rule in value]
        elif path != OWN_DAY:
            changes[name] = value
            keys.append(path)
    return base.model_copy(update=changes)


def day_limits(settings: Settings) -> dict[str, float]:
    """Return the limit per day, in USD, of each scope that has one of its own."""
    own = ((name, scope.budget.limit_usd.day) for name, scope in settings.scopes.items())
    return {name: day for name, day in own if day is not None}


def enabled_anywhere(settings: Settings) -> frozenset[str]:
    """Return the names in `tools.enabled` for everybody and in scopes."""
    scoped = (name for scope in settings.scopes.values() for name in scope.tools.enabled)
    return frozenset((*settings.tools.enabled, *scoped))


class CurrentSettings:
    """The settings that hold now. A change replaces all of them at once.

    Who has got an `Effective` keeps it: a turn ends with the settings that it began with.
    """

    def __init__(self, settings: Settings) -> None:
        self.replace(settings)

    @property
    def settings(self) -> Settings:
        """The settings for everybody, with their scopes."""
        return self._everywhere.settings

    def replace(self, settings: Settings) -> None:
        """Let these settings hold from now on."""
        self._everywhere = Effective(settings)
        self._places: LRUCache[tuple[str, ...], Effective] = LRUCache(MOST_PLACES)

    def at(self, place: Place) -> Effective:
        """Return what holds in a place: the same object for all places with the same scopes, until a change."""
        if not (names := covering(self.settings, place)):
            return self._everywhere
        if names not in self._places:
            self._places[names] = resolve(self.settings, place)
        return self._places[names]
