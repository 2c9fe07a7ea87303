"""Turns the schema that a server sends for a tool's arguments into a valid JSON Schema (2020-12) of an object.

What is only written in another way is rewritten; what cannot be understood, or would cost too much, is left out and
named, and the tool is offered with less. The result refers to nothing outside of itself and holds no hidden text.

| sent                                                  | becomes                                                |
|-------------------------------------------------------|--------------------------------------------------------|
| null in place of a keyword; keywords that nobody knows | nothing                                                |
| ``exclusiveMinimum: true``, ``items`` as a list,       | the form of 2020-12                                    |
| ``dependencies``, ``definitions`` and other old forms  |                                                        |
| ``int``, ``str``, ``list`` and other names of types    | ``integer``, ``string``, ``array``                     |
| a reference to any part of the schema                  | one to ``$defs``, where a copy of that part stands     |
| a reference that leads nowhere, or elsewhere           | any value, and that is said                            |
| values that no such keyword has                        | nothing, and that is said                              |
| values with characters that are not seen               | nothing, and that is said                              |
| no schema of an object at all                          | any arguments, and that is said                        |
| over `MAX_SCHEMA` characters or `MAX_DEPTH` levels     | the upper levels, without descriptions if need be      |
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import unquote

from pydantic import JsonValue

from bot.extensions.mcp.plain_text import clean, is_plain

MAX_SCHEMA = 20_000
"""Characters of one schema."""
MAX_SENT = 400_000
"""Characters of a schema as it was sent; a longer one is not looked at."""
MAX_DEPTH = 12
"""Levels of schemas within schemas; those that people use have fewer than 8."""
MAX_FAULTS = 5
"""Faults of one schema that are named."""

Schema = dict[str, JsonValue]
_Compound = Literal["schema", "schemas", "map", "names", "type"]
_Simple = Literal["prose", "text", "number", "factor", "count", "flag", "values", "value"]
_Shape = _Compound | _Simple

_SHAPES: Mapping[str, _Shape] = {
    **dict.fromkeys(
        (
            *("additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then"),
            *("unevaluatedItems", "unevaluatedProperties"),
        ),
        "schema",
    ),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), "schemas"),
    **dict.fromkeys(("dependentSchemas", "patternProperties", "properties"), "map"),
    **dict.fromkeys(("description", "title"), "prose"),
    **dict.fromkeys(("format", "pattern"), "text"),
    **dict.fromkeys(("exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum"), "number"),
    "multipleOf": "factor",
    **dict.fromkeys(("maxContains", "maxItems", "maxLength", "maxProperties"), "count"),
    **dict.fromkeys(("minContains", "minItems", "minLength", "minProperties"), "count"),
    **dict.fromkeys(("const", "default"), "value"),
    **dict.fromkeys(("enum", "examples"), "values"),
    "required": "names",
    "type": "type",
    "uniqueItems": "flag",
}
"""The keywords that stay, and what their values have to be."""
_FOR_PEOPLE = frozenset({"default", "description", "examples", "title"})
_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_OTHER_NAMES: Mapping[str, str] = {
    **dict.fromkeys(("str", "text", "char", "date", "datetime", "uuid", "enum", "file"), "string"),
    **dict.fromkeys(("int", "int32", "int64", "long", "short"), "integer"),
    **dict.fromkeys(("decimal", "double", "float", "numeric"), "number"),
    **dict.fromkeys(("bool",), "boolean"),
    **dict.fromkeys(("list", "set", "tuple", "sequence"), "array"),
    **dict.fromkeys(("dict", "hash", "json", "map", "record", "struct"), "object"),
    **dict.fromkeys(("nil", "none", "undefined", "void"), "null"),
}
_ANY_TYPE = frozenset({"any", "mixed", "unknown", ""})
_ODD = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(frozen=True, slots=True)
class Repaired:
    """A valid schema of an object, and what of the sent one it lacks, in words for people."""

    schema: Schema
    faults: tuple[str, ...] = ()


def repair_schema(sent: JsonValue) -> Repaired:
    """Return the schema that stands for *sent*, whatever that is."""
    if sent is None:
        return _any("it has no schema")
    if not isinstance(sent, dict):
        return _any("its schema is not an object")
    if not _is_of_object(sent):
        return _any("its schema is not one of an object")
    if len(json.dumps(sent)) > MAX_SENT:
        return _any(f"its schema is longer than {MAX_SENT:,} characters")
    for depth, texts in ((MAX_DEPTH, True), (MAX_DEPTH, False), (4, False), (2, False), (1, False)):
        try:
            repaired = _repair(sent, depth, texts=texts)
        except RecursionError:  # one part refers to the next, some hundred times
            break
        if len(json.dumps(repaired.schema, ensure_ascii=False)) <= MAX_SCHEMA:
            return repaired if _is_valid(repaired.schema) else _any("its schema is not a JSON Schema")
    return _any(f"its schema is longer than {MAX_SCHEMA:,} characters")


def _any(fault: str) -> Repaired:
    """Return the schema of any arguments."""
    return Repaired({"type": "object", "properties": {}}, (fault,))


def _is_valid(schema: Schema) -> bool:
    from jsonschema import Draft202012Validator, FormatChecker, SchemaError  # noqa: PLC0415 - most start without

    try:
        # Without formats: a pattern in another language is not a mistake, and none is run here.
        Draft202012Validator.check_schema(schema, format_checker=FormatChecker(formats=()))
    except (SchemaError, RecursionError):
        return False
    return True


def _repair(sent: Schema, depth: int, *, texts: bool) -> Repaired:
    repair = _Repair(sent, depth, texts)
    schema = {**repair.schema(sent, "", 0), "type": "object"}
    if repair.definitions:
        schema["$defs"] = dict(sorted(repair.definitions.items()))
    faults = [*([] if texts else [f"it is shorter: it has over {MAX_SCHEMA:,} characters"]), *repair.faults]
    more = [f"and {len(faults) - MAX_FAULTS} more"] if len(faults) > MAX_FAULTS else []
    return Repaired(schema, (*faults[:MAX_FAULTS], *more))


def _is_of_object(sent: Schema) -> bool:
    kinds = sent.get("type")
    known = [_type_name(name) for name in (kinds if isinstance(kinds, list) else [kinds])]
    return kinds is None or "object" in known or not any(known)


def _type_name(name: JsonValue) -> str:
    """Return the JSON Schema's name of a type, "" if there is none."""
    if not isinstance(name, str):
        return ""
    lower = name.strip().lower()
    return lower if lower in _TYPES else _OTHER_NAMES.get(lower, "")


@dataclass(slots=True)
class _Repair:
    """The repair of one schema. ``faults`` are the keys of a dict, which keeps their order."""

    root: Schema
    depth: int
    texts: bool
    definitions: Schema = field(default_factory=dict)
    faults: dict[str, None] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)

    def fault(self, path: str, what: str) -> None:
        self.faults[f"{clean(path)[:80]}: {what}" if path else what] = None

    def schema(self, sent: JsonValue, path: str, level: int) -> Schema:
        """Return a valid schema for *sent*, which stands at *path* within the arguments."""
        if sent is False:
            return {"not": {}}
        if sent is True or sent is None:
            return {}
        if isinstance(sent, str):  # a name of a type in place of a schema
            sent = {"type": sent}
        if not isinstance(sent, dict):
            self.fault(path, "its schema is not an object")
            return {}
        if level > self.depth:
            self.fault(path, f"it has more than {self.depth} levels")
            return {}
        schema: Schema = {}
        for key, value in _modern(sent).items():
            if key == "$ref":
                self._refer(schema, value, path)
            elif key in _SHAPES and (self.texts or key not in _FOR_PEOPLE):
                self._take(schema, key, value, path, level)
        return schema

    def _take(self, schema: Schema, key: str, value: JsonValue, path: str, level: int) -> None:
        """Put the value of a keyword into *schema*, or say that it is left out."""
        match _SHAPES[key], value:
            case "schema", bool() if key.endswith("Properties"):
                schema[key] = value
            case "schema", dict() | bool() | str():
                schema[key] = self.schema(value, f"{path}[]" if key == "items" else path, level + 1)
            case "schemas", [_, *_]:
                schema[key] = [self.schema(one, path, level + 1) for one in value]
            case "map", dict():
                schema[key] = self._map(key, value, path, level)
                if key == "properties":
                    self._require(schema, [name for name, one in value.items() if _is_required(one)])
            case "names", list():
                self._require(schema, [name for name in value if isinstance(name, str) and is_plain(name)])
            case "names", bool():
                pass  # of draft 3: the schema above says so
            case "type", _:
                self._type(schema, value, path)
            case shape, _ if shape in _CHECKS and _CHECKS[shape](value):
                schema[key] = clean(value) if shape == "prose" and isinstance(value, str) else value
            case _:
                self.fault(path, f"its {key} is left out")

    def _map(self, key: str, value: Schema, path: str, level: int) -> Schema:
        schemas: Schema = {}
        for name, one in value.items():
            if is_plain(name):
                inner = f"{path}.{name}".lstrip(".") if key == "properties" else path
                schemas[name] = self.schema(one, inner, level + 1)
            else:
                self.fault(path, "an argument is left out, since its name has characters that are not seen")
        return schemas

    def _require(self, schema: Schema, names: Sequence[str]) -> None:
        known = schema.get("required")
        if required := list(dict.fromkeys([*(known if isinstance(known, list) else []), *names])):
            schema["required"] = required

    def _type(self, schema: Schema, value: JsonValue, path: str) -> None:
        names = value if isinstance(value, list) else [value]
        if any(isinstance(name, dict) for name in names):  # draft 3: schemas among the types
            schema["anyOf"] = [self.schema(name, path, self.depth) for name in names]
            return
        if any(isinstance(name, str) and name.strip().lower() in _ANY_TYPE for name in names):
            return
        known = list(dict.fromkeys(filter(None, map(_type_name, names))))
        if len(known) < len(names) and not known:
            self.fault(path, "its type is left out")
        if known:
            schema["type"] = [*known] if len(known) > 1 else known[0]

    def _refer(self, schema: Schema, reference: JsonValue, path: str) -> None:
        """Refer to a copy of what *reference* leads to, or say that it leads nowhere."""
        if not isinstance(reference, str):
            self.fault(path, "its $ref is left out")
            return
        own = self.root.get("$id") or self.root.get("id")
        pointer = reference.removeprefix(own.rstrip("#")) if isinstance(own, str) else reference
        if pointer in ("", "#"):
            schema["$ref"] = "#"
            return
        if pointer not in self._names:
            target = _look_up(self.root, pointer)
            if not isinstance(target, dict | bool):
                self.fault(path, "it refers to something that is not in its schema")
                return
            stem = _ODD.sub("_", unquote(pointer).rpartition("/")[2])[:40] or "part"
            name = stem if stem not in self._names.values() else f"{stem}_{len(self._names)}"
            self._names[pointer] = name
            self.definitions[name] = {}
            self.definitions[name] = self.schema(target, path, 1)
        schema["$ref"] = f"#/$defs/{self._names[pointer]}"


def _all_plain(value: JsonValue) -> bool:
    """Return whether all texts within *value* can stand in a prompt to the letter."""
    match value:
        case str():
            return is_plain(value)
        case dict():
            return all(is_plain(key) and _all_plain(one) for key, one in value.items())
        case list():
            return all(map(_all_plain, value))
        case float():
            return math.isfinite(value)
        case _:
            return True


def _is_number(value: JsonValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_count(value: JsonValue) -> bool:
    return isinstance(value, int | float) and _is_number(value) and value >= 0 and value == int(value)


_CHECKS: Mapping[_Shape, Callable[[JsonValue], bool]] = {
    "count": _is_count,
    "factor": lambda value: isinstance(value, int | float) and _is_number(value) and value > 0,
    "flag": lambda value: isinstance(value, bool),
    "number": _is_number,
    "prose": lambda value: isinstance(value, str),
    "text": lambda value: isinstance(value, str) and is_plain(value),
    "value": _all_plain,
    "values": lambda value: isinstance(value, list) and value != [] and _all_plain(value),
}


def _modern(sent: Schema) -> Schema:
    """Return a schema without nulls, with the keywords of older drafts and of OpenAPI in the form of 2020-12."""
    modern = {key: value for key, value in sent.items() if value is not None or key == "const"}
    for older in ("$dynamicRef", "$recursiveRef"):
        if older in modern:
            modern.setdefault("$ref", modern.pop(older))
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(flag := modern.get(exclusive), bool):
            del modern[exclusive]
            if flag and bound in modern:
                modern[exclusive] = modern.pop(bound)
    if isinstance(items := modern.get("items"), list):
        del modern["items"]
        rest = {"items": modern["additionalItems"]} if "additionalItems" in modern else {}
        modern |= {**({"prefixItems": items} if items else {}), **rest}
    if modern.get("nullable") is True and isinstance(kind := modern.get("type"), str):
        modern["type"] = [kind, "null"]
        if isinstance(values := modern.get("enum"), list) and None not in values:
            modern["enum"] = [*values, None]
    return _modern_dependencies(modern)


def _modern_dependencies(schema: Schema) -> Schema:
    """Return *schema* with all that depends on a property as schemas."""
    depend: Schema = {}
    for key in ("dependentRequired", "dependencies", "dependentSchemas"):
        if isinstance(given := schema.pop(key, None), dict):
            depend |= {
                name: {"required": one} if isinstance(one, list) else one for name, one in given.items()
            }
    return {**schema, "dependentSchemas": depend} if depend else schema


def _is_required(sent: JsonValue) -> bool:
    """Return whether a property says by itself that it is required, as in draft 3."""
    return isinstance(sent, dict) and sent.get("required") is True


def _look_up(root: Schema, pointer: str) -> JsonValue:
    """Return what a reference within *root* leads to, None if that is nothing."""
    if not pointer.startswith("#"):
        return None
    if not pointer.startswith("#/"):
        anchors = ("$anchor", "$dynamicAnchor")
        return next(
            (one for one in _dicts(root) if any(one.get(key) == pointer[1:] for key in anchors)), None
        )
    value: JsonValue = root
    for step in unquote(pointer[2:]).split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            value = value.get(name)
        elif isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value


def _dicts(value: JsonValue) -> Iterable[Schema]:
    if isinstance(value, dict):
        yield value
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _dicts(one)
