"""A value that follows a JSON Schema, for the offline model. Pure.

Patterns, formats and conditions are not looked at.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

DEEPEST = 20
"""Levels of a value; a schema may refer to itself."""

SIMPLE: Mapping[str, JsonValue] = {
    "string": "example",
    "integer": 1,
    "number": 1,
    "boolean": True,
    "null": None,
}


def sample(schema: Mapping[str, JsonValue]) -> JsonValue:
    """Return a value with all that the schema requires."""
    return _value(dict(schema), schema, DEEPEST)


def _value(schema: JsonValue, root: Mapping[str, JsonValue], depth: int) -> JsonValue:
    if not isinstance(schema, dict) or depth <= 0:
        return SIMPLE["string"]
    match schema:
        case {"const": value}:
            return value
        case {"enum": [value, *_]} | {"examples": [value, *_]} | {"default": value}:
            return value
        case {"$ref": str(reference)}:
            return _value(_referred(reference, root), root, depth - 1)
        case {"anyOf": [first, *_]} | {"oneOf": [first, *_]} | {"allOf": [first, *_]}:
            return _value(first, root, depth - 1)
    return _of_type(schema, root, depth)


def _of_type(schema: Mapping[str, JsonValue], root: Mapping[str, JsonValue], depth: int) -> JsonValue:
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    if kind == "object":
        return _object(schema, root, depth)
    if kind == "array":
        items = [_value(schema.get("items", {}), root, depth - 1)]
        least = schema.get("minItems")
        return items * (least if isinstance(least, int) and 1 < least < 100 else 1)
    return _simple(str(kind), schema)


def _object(schema: Mapping[str, JsonValue], root: Mapping[str, JsonValue], depth: int) -> JsonValue:
    properties, required = schema.get("properties"), schema.get("required")
    known = properties if isinstance(properties, dict) else {}
    names = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    return {name: _value(known.get(name, {}), root, depth - 1) for name in names}


def _simple(kind: str, schema: Mapping[str, JsonValue]) -> JsonValue:
    value = SIMPLE.get(kind, SIMPLE["string"])
    least = schema.get("minLength" if kind == "string" else "minimum")
    if isinstance(value, str) and isinstance(least, int):
        return value + "." * (min(least, 10_000) - len(value))
    return least if kind in ("integer", "number") and isinstance(least, int | float) else value


def _referred(reference: str, root: Mapping[str, JsonValue]) -> JsonValue:
    found: JsonValue = dict(root)
    for part in reference.removeprefix("#").split("/")[1:]:
        found = found.get(part) if isinstance(found, dict) else None
    return found
