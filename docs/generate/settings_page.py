"""docs/settings.md: every setting with its type, default, meaning and reason."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from bot.config.extensions import settings_model
from bot.config.settings import Section, section_in
from docs.generate.reasons import REASONS

HEAD = """# Every setting

`make docs` writes this page from the program's schema. A test fails when it is out of date. All settings are
optional, and a missing section has its defaults. `null` means no limit. Durations name their unit: `_ms` or `_s`.
Secrets are references: `"env:NAME"`, or `"file:NAME"` for a file in the folder `credentials` beside `settings.json`
(under systemd: its credentials). All mistakes are reported at once, with exit code 78: try `threadfast check`.
"""


def settings_in(section: type[Section], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Return each setting's dotted path, without the names that people choose themselves."""
    for name, field in section.model_fields.items():
        path = f"{prefix}{field.alias or name}"
        below = section_in(field.annotation)
        if below is None or path in REASONS:
            yield path, field
        if below is not None:
            yield from settings_in(below, f"{path}.")


def page() -> str:
    groups: dict[str, list[str]] = {}
    for path, field in settings_in(settings_model()):
        top, _, name = path.rpartition(".")
        default = "as for everybody" if path.startswith("scopes.") else _default(field)
        cells = (f"`{name}`", default, _meaning(field), REASONS.get(path, ""))
        rows = groups.setdefault(top, [])
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    parts = [HEAD]
    for top, rows in groups.items():
        parts += [f"## {top}\n\n{_about(top)}"] if top else []
        parts += ["| setting | default | meaning | why |\n|---|---|---|---|", *rows, ""]
    return "\n".join(parts)


def _about(path: str) -> str:
    """Return what stands above a section's table: what the section is for."""
    section: type[BaseModel] = settings_model()
    words = []
    for step in path.split("."):
        field = section.model_fields[step]
        words.append(field.description or "")
        section = section_in(field.annotation) or section
    return f"{words[-1]}\n"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, Section):
        return "see below"
    if isinstance(value, tuple) and any(isinstance(item, Section) for item in value):
        value = [item.model_dump() for item in value]
    return f"`{json.dumps(value, default=str, ensure_ascii=False)}`"


def _meaning(field: FieldInfo) -> str:
    choices = ", ".join(f"`{value}`" for value in _choices(field.annotation))
    return f"{field.description}{f' One of {choices}.' if choices else ''}"


def _choices(annotation: object) -> list[object]:
    """Return the values that a type allows if it lists them, bare or in a list, a map or an alternative."""
    if get_origin(annotation) is Literal:
        return [*get_args(annotation)]
    return [value for inner in get_args(annotation) for value in _choices(inner)]
