"""The form of a tool's schema that model providers take, hosted and local. It says less; it refuses nothing more.

One schema that a provider does not take fails every request of a thread. So all get one form, which also keeps the
prompt the same when another model goes on. What only says more than types can is told in the description.

| in the schema                                     | in the form                  | because of                |
|---------------------------------------------------|------------------------------|---------------------------|
| combinators, ``$ref`` and the like at the top     | all their properties in one  | OpenAI, Anthropic         |
| names of properties that are not `_KEY`           | others, see `other_names`    | Anthropic                 |
| patterns beyond `_PLAIN`                          | told in the description      | OpenAI, llama.cpp, Ollama |
| ``not``, ``if``, ``patternProperties`` and so on  | left out                     | llama.cpp, OpenAI         |
| ``oneOf``, ``const``                              | ``anyOf``, ``enum``          | OpenAI, Gemini            |
| arrays without ``items``, or with a list of them  | ``items`` for all            | OpenAI, Gemini            |
| bounds of lengths over `MAX_REPEATS`              | left out                     | llama.cpp                 |
| a required property that is not described         | described as any value       | Gemini                    |

Sources: cline 14019, opencode 49434, Dokploy/mcp 45, oh-my-pi 2784, email-mcp 72, and the schema converter of
llama.cpp (`common/json-schema-to-grammar.cpp`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue

from bot.extensions.mcp.plain_text import clean

MAX_REPEATS = 2000
"""Repetitions that llama.cpp's grammars may have."""
MAX_PATTERN = 200
"""Characters of a pattern that is told in a description."""
MAX_NESTED = 8
"""Combinators within combinators at the top that are looked into."""

Schema = dict[str, JsonValue]

_KEY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""The names of properties that Anthropic accepts."""
_PLAIN = re.compile(
    r"\^(?:[\w @:/,=|)-]|\[[\w @:/,.=-]+\]|\\[.\-/]|\((?!\?)|(?:[*+?]|\{\d{1,3}(?:,\d{0,3})?\})(?![*+?]))+\$",
    re.ASCII,
)
"""Patterns that every engine reads alike: anchored, of letters, classes, groups and repetitions."""
_KEPT = frozenset((
    "type", "description", "title", "format", "default", "examples", "enum", "required", "uniqueItems",
    "$ref", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
))  # fmt: skip
_REPEATS = frozenset({"minLength", "maxLength", "minItems", "maxItems"})
_AT_TOP = frozenset({"type", "description", "title", "properties", "required", "additionalProperties"})


def provider_schema(parameters: Schema) -> Schema:
    """Return the form of a valid schema of an object."""
    definitions = _dict(parameters.get("$defs"))
    form = {**_form(_Merge(definitions).merged(parameters, 0)), "type": "object"}
    used = _used(form, {name: _form(one) for name, one in definitions.items()})
    return {**form, "$defs": used} if used else form


def other_names(parameters: Schema) -> Mapping[str, str]:
    """Return the own name of each property that has another in the form, by that."""
    odd = {name for name in _property_names(parameters) if not _KEY.fullmatch(name)}
    return {_other_name(name): name for name in sorted(odd)}


def rename(value: JsonValue, names: Mapping[str, str]) -> JsonValue:
    """Return arguments with the keys in *names* replaced, at every level."""
    match value:
        case dict() if names:
            return {names.get(key, key): rename(one, names) for key, one in value.items()}
        case list() if names:
            return [rename(one, names) for one in value]
        case _:
            return value


def _other_name(name: str) -> str:
    """Return a name that providers take; the hash keeps it from being that of anything else."""
    digest = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:6]
    return f"{re.sub('[^A-Za-z0-9_.-]+', '_', name).strip('_')[:50]}_{digest}".lstrip("_")


def _property_names(value: JsonValue) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(properties := value.get("properties"), dict):
            yield from properties
        yield from (name for name in _list(value.get("required")) if isinstance(name, str))
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from _property_names(one)


@dataclass(frozen=True, slots=True)
class _Merge:
    """Puts all that a schema is combined of into one. Each of the ``definitions`` is read once: schemas can laugh."""

    definitions: Mapping[str, JsonValue]
    _known: dict[str, Schema] = field(default_factory=dict)

    def merged(self, schema: JsonValue, level: int) -> Schema:
        """Return a schema of an object with the properties of all its parts, and no combinators."""
        if not isinstance(schema, dict) or level > MAX_NESTED:
            return {}
        merged = {key: value for key, value in schema.items() if key in _AT_TOP}
        properties, required = dict(_dict(merged.get("properties"))), [*_names(merged)]
        for part, always in self._parts(schema, level):
            if part:
                merged.pop("additionalProperties", None)
            for name, one in _dict(part.get("properties")).items():
                properties[name] = _either(properties[name], one) if name in properties else one
            if always:
                required += _names(part)
                merged = {"description": about, **merged} if (about := part.get("description")) else merged
        for choices in filter(None, (self._choices(schema, key, level) for key in ("anyOf", "oneOf"))):
            needs = [_names(one) for one in choices]
            required += [name for name in needs[0] if all(name in others for others in needs)]
            if len({*map(tuple, needs)}) > 1:
                sets = "; or ".join(
                    ", ".join(f"`{clean(name)}`" for name in one) or "nothing more" for one in needs
                )
                merged["description"] = f"{merged.get('description') or ''} (Give {sets}.)".strip()
        return {**merged, "properties": properties, "required": [*dict.fromkeys(required)]}

    def _parts(self, schema: Schema, level: int) -> Iterator[tuple[Schema, bool]]:
        """Yield the schemas that may hold beside this one, and whether they always do."""
        if isinstance(reference := schema.get("$ref"), str):
            yield self._definition(reference.rpartition("/")[2], level), True
        for part in _list(schema.get("allOf")):
            yield self.merged(part, level + 1), True
        for key in ("anyOf", "oneOf"):
            for part in self._choices(schema, key, level):
                yield part, False
        for one in (schema.get("then"), schema.get("else"), *_dict(schema.get("dependentSchemas")).values()):
            yield self.merged(one, level + 1), False

    def _choices(self, schema: Schema, key: str, level: int) -> Sequence[Schema]:
        return [self.merged(one, level + 1) for one in _list(schema.get(key))]

    def _definition(self, name: str, level: int) -> Schema:
        if name not in self._known:
            self._known[name] = {}  # a definition that refers to itself adds nothing
            self._known[name] = self.merged(self.definitions.get(name), level + 1)
        return self._known[name]


def _names(schema: Schema) -> Sequence[str]:
    """Return the names of the required properties."""
    return [name for name in _list(schema.get("required")) if isinstance(name, str)]


def _either(one: JsonValue, other: JsonValue) -> JsonValue:
    if one == other:
        return one
    if isinstance(one, dict) and one.keys() == {"anyOf"}:
        return {"anyOf": [*_list(one["anyOf"]), *([] if other in _list(one["anyOf"]) else [other])]}
    return {"anyOf": [one, other]}


def _form(schema: JsonValue) -> Schema:
    """Return the form of a schema anywhere."""
    if not isinstance(schema, dict):
        return {}
    form = {key: value for key, value in schema.items() if key in _KEPT}
    form |= {key: value for key, value in schema.items() if key in _REPEATS and _number(value) <= MAX_REPEATS}
    if "const" in schema:
        form["enum"] = [schema["const"]]
    if isinstance(extra := schema.get("additionalProperties"), bool | dict):
        form["additionalProperties"] = extra if isinstance(extra, bool) else _form(extra)
    if choices := [*_list(schema.get("anyOf")), *_list(schema.get("oneOf"))]:
        form["anyOf"] = [_form(one) for one in choices]
    if "allOf" in schema:
        form["allOf"] = [_form(one) for one in _list(schema["allOf"])]
    if "properties" in schema or "required" in form:
        _describe_properties(form, _dict(schema.get("properties")))
    if (
        "array" in _list(kind if isinstance(kind := schema.get("type"), list) else [kind])
        or "items" in schema
    ):
        form["items"] = _items(schema)
    if isinstance(pattern := schema.get("pattern"), str):
        _describe_pattern(form, pattern)
    return form


def _describe_properties(form: Schema, properties: Mapping[str, JsonValue]) -> None:
    required = _names(form)
    form.pop("required", None)
    shown: Schema = {}
    for name, one in [*properties.items(), *((name, {}) for name in required if name not in properties)]:
        described = _form(one)
        if not _KEY.fullmatch(name):
            described["description"] = f"`{clean(name)[:80]}`. {described.get('description') or ''}".strip()
        shown[_shown_name(name)] = described
    form["properties"] = shown
    if required:
        form["required"] = [_shown_name(name) for name in required]


def _shown_name(name: str) -> str:
    return name if _KEY.fullmatch(name) else _other_name(name)


def _items(schema: Schema) -> JsonValue:
    """Return one schema for all items of an array."""
    rest = schema.get("items")
    forms = [
        _form(one) for one in [*_list(schema.get("prefixItems")), *([rest] if isinstance(rest, dict) else [])]
    ]
    unlike = [one for index, one in enumerate(forms) if one not in forms[:index]]
    if not unlike:
        return {}
    return unlike[0] if len(unlike) == 1 else {"anyOf": [*unlike]}


def _describe_pattern(form: Schema, pattern: str) -> None:
    """Keep a pattern that every engine reads, and tell any other to the model."""
    try:
        plain = bool(_PLAIN.fullmatch(pattern) and re.compile(pattern))
    except re.error:
        plain = False
    if plain:
        form["pattern"] = pattern
    elif told := clean(pattern[:MAX_PATTERN]):
        form["description"] = f"{form.get('description') or ''} (It matches the pattern {told})".strip()


def _used(form: JsonValue, definitions: Mapping[str, Schema]) -> dict[str, JsonValue]:
    """Return the definitions that *form* refers to, and those that they refer to."""
    used: dict[str, JsonValue] = {}
    left = [form]
    while left:
        for name in re.findall(r'"\$ref": "#/\$defs/([^"]+)"', json.dumps(left.pop())):
            if name in definitions and name not in used:
                used[name] = definitions[name]
                left.append(definitions[name])
    return dict(sorted(used.items()))


def _dict(value: JsonValue) -> Mapping[str, JsonValue]:
    return value if isinstance(value, dict) else {}


def _list(value: JsonValue) -> Sequence[JsonValue]:
    return value if isinstance(value, list) else []


def _number(value: JsonValue) -> float:
    return value if isinstance(value, int | float) else 0
