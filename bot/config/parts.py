"""A part of settings.json that an extension brings, and the model of settings that has the parts of all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from pydantic import create_model
from pydantic.fields import FieldInfo

from bot.config.document import Document
from bot.config.settings import Section, Settings, section_in

T = TypeVar("T")
S = TypeVar("S", bound=Section)


@dataclass(frozen=True)
class SettingsPart(Generic[T]):
    """One key of settings.json. ``path`` is dotted; all but its last step are sections of the core.

    ``field`` has the default and the description. ``faults`` returns what is wrong beyond single values, also if
    those are wrong too; ``references`` the references to secrets in a value, by the path below this key; ``models``
    the models that a value names, whose keys a start needs.
    """

    path: str
    type: Any
    field: FieldInfo
    faults: Callable[[Document], Iterable[str]] = lambda _: ()
    references: Callable[[T], Mapping[str, str | None]] = lambda _: {}
    models: Callable[[T], Iterable[str]] = lambda _: ()

    def of(self, settings: Settings) -> T:
        """Return the value in these settings; the default if they were read without such a part."""
        value: Section = settings
        for step in self.path.split("."):
            if step not in type(value).model_fields:
                return cast("T", self.field.get_default(call_default_factory=True))
            value = getattr(value, step)
        return cast("T", value)


def with_parts(root: type[S], parts: Iterable[tuple[str, SettingsPart[Any]]]) -> type[S]:
    """Return *root* with these parts added, each with its path below *root*."""
    own: dict[str, Any] = {}
    below: dict[str, list[tuple[str, SettingsPart[Any]]]] = {}
    for path, part in parts:
        step, _, rest = path.partition(".")
        if rest:
            below.setdefault(step, []).append((rest, part))
        else:
            own[step] = (part.type, part.field)
    for step, inner in below.items():
        field = root.model_fields[step]
        section = with_parts(cast("type[Section]", section_in(field.annotation)), inner)
        own[step] = (section, FieldInfo(default_factory=section.default, description=field.description))
    return create_model(root.__name__, __base__=root, __doc__=root.__doc__, **own)
