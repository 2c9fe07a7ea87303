"""Which extensions there are, and the settings that each of them brings.

Those of the program stand in `bot.config.built_in_extensions`. Those of others are installed packages with an entry
point in the group `threadfast.extensions`, and count only if the settings name them under `extensions`. One that
cannot be loaded is a fault of its own and leaves the rest as it is. What an extension may bring is in
`bot.host.extension`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Literal, Protocol, runtime_checkable

from pydantic import JsonValue
from pydantic.fields import FieldInfo

from bot.config.built_in_extensions import BUILT_IN
from bot.config.document import Document, everywhere, object_in, path_of, plain
from bot.config.parts import SettingsPart, with_parts
from bot.config.settings import Section, Settings
from bot.config.transports import Instances, Kinds, instances_in, transport_faults, transport_parts

GROUP = "threadfast.extensions"


@runtime_checkable
class HasSettings(Protocol):
    """An extension as the settings see it."""

    @property
    def name(self) -> str: ...

    @property
    def settings(self) -> Sequence[SettingsPart[Any]]: ...

    @property
    def transports(self) -> Kinds: ...

    @property
    def models(self) -> Mapping[str, Callable[..., Any]]: ...


@dataclass(frozen=True, slots=True)
class Installed:
    """The extensions that are here by name, and where each comes from.

    ``failed`` says why one could not be loaded: the bot is served without it. ``faults`` are names in the settings
    that mean no extension at all.
    """

    extensions: Mapping[str, HasSettings]
    sources: Mapping[str, str]
    failed: Mapping[str, str]
    faults: Mapping[str, str]

    @property
    def parts(self) -> Iterator[SettingsPart[Any]]:
        """The parts of settings.json that they bring."""
        for extension in self.extensions.values():
            yield from extension.settings

    @property
    def kinds(self) -> Kinds:
        """The kinds of transports that they bring, by name."""
        return {name: kind for one in self.extensions.values() for name, kind in one.transports.items()}

    @property
    def models(self) -> Mapping[str, Callable[..., Any]]:
        """What makes models, by the kind of their provider."""
        return {kind: make for one in self.extensions.values() for kind, make in one.models.items()}

    def owner_of(self, path: str) -> str:
        """Return the extension of the program that a key belongs to and that is not here; "" if there is none."""
        missing = (name for name in BUILT_IN if name not in self.extensions)
        owns = (name for name in missing for key in BUILT_IN[name].keys if f"{path}.".startswith(f"{key}."))
        return next(owns, "")

    def missing(self, part: Literal["tools", "stores", "models"]) -> Mapping[str, str]:
        """Return the extension of each name that would mean something if it was here."""
        missing = (name for name in BUILT_IN if name not in self.extensions)
        return {one: name for name in missing for one in getattr(BUILT_IN[name], part)}


@cache
def installed(named: tuple[str, ...] = ()) -> Installed:
    """Return the extensions of the program, and of the others those that are *named*."""
    found: dict[str, HasSettings] = {}
    sources, failed, faults = dict[str, str](), dict[str, str](), dict[str, str]()
    for name, built_in in BUILT_IN.items():
        _load(name, f"{built_in.module}:extension", found, failed)
        sources[name] = built_in.module
    others = {one.name: one for one in entry_points(group=GROUP)} if named else {}
    for name in named:
        if name in BUILT_IN:
            faults[name] = "comes with the program, and its settings have keys of their own"
        elif entry := others.get(name):
            _load(name, entry.value, found, failed)
            sources[name] = f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value
        else:
            faults[name] = "no installed package brings an extension of this name"
    return Installed(found, sources, failed, faults)


def _load(name: str, place: str, found: dict[str, HasSettings], failed: dict[str, str]) -> None:
    module, _, attribute = place.partition(":")
    try:
        extension = getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        if name not in BUILT_IN or not module.startswith(f"{error.name}"):
            failed[name] = str(error)
    except Exception as error:  # noqa: BLE001 - whatever an extension does when it is imported, the others are served
        failed[name] = f"{type(error).__name__}: {error}"
    else:
        if isinstance(extension, HasSettings):
            found[name] = extension
        else:
            failed[name] = f"{place} is not an extension"


def installed_for(settings: Settings) -> Installed:
    """Return what is installed of what these settings name."""
    return installed(tuple(sorted(type(settings.extensions).model_fields)))


class NoSettings(Section):
    """An extension that is named and has no settings: ``{}``."""


def model_for(document: Document) -> type[Settings]:
    """Return the model of a settings file: its parts are those of the extensions and transports that it names."""
    named = named_in(document)
    return settings_model(named, instances_in(document, installed(named).kinds))


def settings_model(named: tuple[str, ...] = (), instances: Instances = ()) -> type[Settings]:
    """Return the model of settings.json with the parts of these extensions; one that fails keeps its key as it is.

    *instances* are the transports with a name of their own. The same arguments give the same model.
    """
    return _model(named, instances)


@cache
def _model(named: tuple[str, ...], instances: Instances) -> type[Settings]:
    here = installed(named)
    parts = {part.path: part for part in (*here.parts, *transport_parts(here.kinds, instances))}
    for path in (f"extensions.{name}" for name in named):
        form = NoSettings if path.removeprefix("extensions.") in here.extensions else JsonValue
        parts.setdefault(path, SettingsPart[object](path, form, FieldInfo(default=None)))
    return with_parts(Settings, parts.items())


def named_in(document: Document) -> tuple[str, ...]:
    """Return the extensions of others that a settings file names."""
    given = document.get("extensions")
    return tuple(sorted(given)) if isinstance(given, dict) else ()


def extension_faults(document: Document, here: Installed) -> Iterator[str]:
    """Return what the extensions find wrong in a settings file, and what is asked of one that is not here."""
    for name, fault in here.faults.items():
        yield f"extensions.{name}: {fault}"
    for part in here.parts:
        yield from part.faults(document)
    yield from transport_faults(document, here.kinds)
    for name, kind in instances_in(document, here.kinds):
        if kind not in here.kinds:
            yield f"{path_of(('transports', name, 'kind'))}: {_unknown_kind(kind, here)}"
    for path, asked, where in _asked(document):
        if isinstance(asked, str) and (owner := here.missing(where).get(asked)):
            yield f"{path}: {missing_words(asked, owner)}"


def _asked(document: Document) -> Iterator[tuple[str, JsonValue, Literal["tools", "stores", "models"]]]:
    """Yield what a settings file asks for by a name, with the path."""
    yield "store.kind", object_in(document.get("store")).get("kind"), "stores"
    for name, entry in object_in(document.get("providers")).items():
        yield path_of(("providers", name, "kind")), object_in(entry).get("kind"), "models"
    for place, given in everywhere(document):
        enabled = object_in(given.get("tools")).get("enabled")
        for i, tool in enumerate(enabled if isinstance(enabled, list) else []):
            yield path_of((*place, "tools", "enabled", i)), tool, "tools"


def _unknown_kind(kind: str, here: Installed) -> str:
    if f"transports.{kind}" in (key for built_in in BUILT_IN.values() for key in built_in.keys):
        return missing_words(kind, kind)
    return f'no platform is called "{plain(kind)}"; there are {", ".join(sorted(here.kinds))}'


def missing_words(key: str, extension: str) -> str:
    return f"{key} belongs to the extension {extension}, which is not installed here"
