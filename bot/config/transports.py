"""The settings of transports: each that is served has a key of its own under ``transports``.

The key is the transport's name. A kind that is served once is named by itself (``"slack": {}``). A second one has a
name of its own and says what it is (``"sales": {"kind": "slack", ...}``). The name stands in the ids of its threads
and in the names of its scopes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pydantic import JsonValue
from pydantic.fields import FieldInfo

from bot.config.document import Document, object_in, path_of, plain
from bot.config.parts import SettingsPart
from bot.config.settings import Section, Settings

NAME = re.compile(r"[a-z][a-z0-9_-]{0,30}")
RESERVED = frozenset(("console", "user"))
"""Names that mean something else in the ids of threads and in the names of scopes."""

Instances = tuple[tuple[str, str], ...]
"""The transports with a name of their own, each with its kind."""


class TransportSection(Section):
    """The settings of one transport."""

    kind: str


@dataclass(frozen=True)
class TransportSettings:
    """The settings that all transports of a kind have.

    ``secrets`` are keys of ``model`` that refer to secrets. ``faults`` returns what is wrong beyond single values,
    by a transport's path and JSON. ``is_single``: it is served once, under the name of its kind. ``channel`` matches
    the id of a channel, which may stand where a workspace is meant.
    """

    model: type[TransportSection]
    secrets: Sequence[str] = ()
    faults: Callable[[str, Document], Iterable[str]] = lambda *_: ()
    is_single: bool = False
    channel: re.Pattern[str] | None = None


class HasTransportSettings(Protocol):
    """A kind of transport as the settings see it."""

    @property
    def settings(self) -> TransportSettings: ...


Kinds = Mapping[str, HasTransportSettings]


def served(settings: Settings) -> Mapping[str, TransportSection]:
    """Return the settings of each transport that is served, by its name."""
    given = settings.transports
    sections = ((name, getattr(given, name)) for name in type(given).model_fields)
    return {name: section for name, section in sections if isinstance(section, TransportSection)}


def instances_in(document: Document, kinds: Kinds) -> Instances:
    """Return the transports of a settings file that have a name of their own."""
    given = ((name, object_in(value).get("kind")) for name, value in _transports(document).items())
    return tuple(sorted((name, kind) for name, kind in given if name not in kinds and isinstance(kind, str)))


def transport_parts(kinds: Kinds, instances: Instances) -> Iterator[SettingsPart[object]]:
    """Return the keys under ``transports``; one of a kind that is not here is left as it is."""
    for name, kind in (*((kind, kind) for kind in kinds), *instances):
        form = kinds[kind].settings.model | None if kind in kinds else JsonValue
        field = FieldInfo(default=None, description="Served if present; null is not served.")
        yield SettingsPart[object](f"transports.{name}", form, field)


def transport_faults(document: Document, kinds: Kinds) -> Iterator[str]:
    """Return what is wrong with the transports of a settings file beyond single values."""
    taken: dict[tuple[str, str], str] = {}
    instances = dict(instances_in(document, kinds))
    for name, value in _transports(document).items():
        kind, path, given = instances.get(name, name), path_of(("transports", name)), object_in(value)
        if name in instances:
            yield from _name_faults(name, kind, path, kinds)
        if kind in kinds and isinstance(value, dict):
            form = kinds[kind].settings
            yield from form.faults(path, given)
            for key in form.secrets:
                secret = str(given.get(key, form.model.model_fields[key].default))
                if other := taken.get((kind, secret)):
                    yield f"{path}.{key}: is the same as {other}; each transport has tokens of its own"
                taken[kind, secret] = f"{path}.{key}"
    yield from _scope_faults(document, kinds, instances)


def _name_faults(name: str, kind: str, path: str, kinds: Kinds) -> Iterator[str]:
    if not NAME.fullmatch(name) or name in RESERVED:
        yield f"{path}: a transport's name is made of small letters, digits, - and _, and is none of console and user"
    if kind in kinds and kinds[kind].settings.is_single:
        yield f"{path}: {kind} is served once, as transports.{kind}"


def _scope_faults(document: Document, kinds: Kinds, instances: Mapping[str, str]) -> Iterator[str]:
    known = {"console", *kinds, *instances}
    for scope in object_in(document.get("scopes")):
        transport, _, rest = scope.partition(":")
        if transport == "user" or not NAME.fullmatch(transport):
            continue
        path, kind = path_of(("scopes", scope)), instances.get(transport, transport)
        if transport not in known:
            yield f'{path}: no transport is called "{plain(transport)}"; there are {", ".join(sorted(known))}'
        elif kind in kinds and (channel := kinds[kind].settings.channel) and channel.fullmatch(rest):
            yield f"{path}: that is the id of a channel; write {transport}:TEAM:{plain(rest)}"


def _transports(document: Document) -> Document:
    return object_in(document.get("transports"))
