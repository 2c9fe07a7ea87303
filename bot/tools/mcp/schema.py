"""The arguments of a server's tool: its JSON Schema is checked, and then checks what the language model sends.

A schema is somebody else's program, so its cost is bounded: its length and depth, no reference out of it, no regular
expression of it is run, and a check ends after `MAX_STEPS` keywords (ten lines of schema can ask for a billion).
The server checks its arguments in any case; here a mistake is found sooner. Arguments that cannot be checked within
these bounds pass.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, ClassVar

from pydantic import ConfigDict, JsonValue, create_model, model_validator
from pydantic_core import PydanticCustomError

from bot.ports.tool import Arguments

MAX_SCHEMA = 20_000
"""Characters of one schema."""
MAX_DEPTH = 32
"""Levels of braces and brackets; schemas that people use have fewer than 15."""
MAX_STEPS = 20_000
"""Keywords checked for one call: some 0.2 s at the very worst."""
MAX_ERRORS = 5
MAX_ERROR = 300
"""Characters of one error: it repeats what was sent."""

_KEY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""The names of properties that Anthropic accepts."""
_NOT_AT_TOP = frozenset(
    "allOf anyOf oneOf not if then else dependentSchemas $ref $dynamicRef enum const".split()  # noqa: SIM905
)
"""Keywords that providers refuse at the top of a tool's schema."""
_UNCHECKED = frozenset(
    "pattern patternProperties format unevaluatedProperties unevaluatedItems uniqueItems".split()  # noqa: SIM905
)
"""Keywords that can be made to cost more than they are worth."""


class _TooManySteps(Exception):
    """A check has used up `MAX_STEPS`."""


class McpArguments(Arguments):
    """The arguments of a server's tool: any names, checked by ``parameters``, its own JSON Schema."""

    model_config = ConfigDict(extra="allow", frozen=True)
    parameters: ClassVar[dict[str, JsonValue]] = {}

    @model_validator(mode="before")
    @classmethod
    def _check(cls, arguments: Any) -> Any:
        if errors := argument_errors(cls.parameters, arguments):
            raise PydanticCustomError("schema", "{errors}", {"errors": "; ".join(errors)})
        return arguments

    @classmethod
    def model_json_schema(cls, *_args: Any, **_named: Any) -> dict[str, Any]:
        """Return the schema as providers take it: of an object, with no combinator at its top."""
        plain = {key: value for key, value in cls.parameters.items() if key not in _NOT_AT_TOP}
        return {**plain, "type": "object", "properties": plain.get("properties", {})}


def arguments_model(name: str, parameters: dict[str, JsonValue]) -> type[McpArguments]:
    """Return the model of the arguments of the tool *name*; *parameters* must have no `schema_problem`."""
    model = create_model(f"{name}_arguments", __base__=McpArguments)
    model.parameters = parameters
    return model


def schema_problem(parameters: dict[str, JsonValue]) -> str:
    """Return why a tool with such arguments cannot be offered, or ""."""
    if len(json.dumps(parameters, ensure_ascii=False)) > MAX_SCHEMA:
        return f"its schema is longer than {MAX_SCHEMA:,} characters"
    if any(depth == MAX_DEPTH and isinstance(item, dict | list) for depth, _, item in walk(parameters)):
        return f"its schema has more than {MAX_DEPTH} levels"
    from jsonschema import Draft202012Validator, FormatChecker, SchemaError  # noqa: PLC0415 - most start without

    try:
        # Without formats: a pattern in another language is not a mistake, and none is run here.
        Draft202012Validator.check_schema(parameters, format_checker=FormatChecker(formats=()))
        is_object = parameters.get("type", "object") == "object"
    except (SchemaError, RecursionError):
        is_object = False
    if not is_object:
        return "its schema is not a JSON Schema of an object"
    return next(filter(None, (_problem(parameters, key, item) for _, key, item in walk(parameters))), "")


def _problem(parameters: dict[str, JsonValue], key: str, value: JsonValue) -> str:
    if key in {"$id", "$anchor", "$dynamicAnchor", "$dynamicRef"}:
        return f"its schema uses {key}"
    if key == "$ref" and not _resolves(parameters, value):
        return "its schema refers to something outside of it"
    if key == "properties" and isinstance(value, dict) and not all(map(_KEY.fullmatch, value)):
        return "its arguments have names that model providers do not take"
    return ""


def _resolves(parameters: dict[str, JsonValue], reference: JsonValue) -> bool:
    """Return whether a reference leads to a schema within *parameters*."""
    from referencing import Registry  # noqa: PLC0415
    from referencing.exceptions import Unresolvable  # noqa: PLC0415
    from referencing.jsonschema import DRAFT202012  # noqa: PLC0415

    resolver = Registry().resolver_with_root(DRAFT202012.create_resource(parameters))
    try:
        return isinstance(resolver.lookup(str(reference)).contents, dict | bool)
    except (Unresolvable, TypeError, ValueError):
        # TypeError and ValueError: the path leads into a text or a number.
        return False


def argument_errors(parameters: dict[str, JsonValue], arguments: JsonValue) -> list[str]:
    """Return the first few errors in *arguments*; nothing if they cannot be checked within the bounds."""
    from jsonschema import Draft202012Validator  # noqa: PLC0415
    from jsonschema.validators import extend  # noqa: PLC0415
    from referencing import Registry  # noqa: PLC0415

    steps = iter(range(MAX_STEPS))

    def counted(keyword: str, check: Callable[..., Any]) -> Callable[..., Any]:
        def step(validator: Any, value: Any, instance: Any, schema: dict[str, Any]) -> Any:
            if next(steps, None) is None:
                raise _TooManySteps
            # Without its patterns nobody can tell which properties of a schema are additional.
            skipped = keyword == "additionalProperties" and "patternProperties" in schema
            return None if skipped or keyword in _UNCHECKED else check(validator, value, instance, schema)

        return step

    checks = {name: counted(name, check) for name, check in Draft202012Validator.VALIDATORS.items()}
    validator = extend(Draft202012Validator, checks)  # type: ignore[no-untyped-call]
    try:
        found = islice(validator(parameters, registry=Registry()).iter_errors(arguments), MAX_ERRORS)
        return [f"{error.json_path}: {error.message}"[:MAX_ERROR] for error in found]
    except (_TooManySteps, RecursionError):
        return []


def walk(value: JsonValue, depth: int = 1) -> Iterator[tuple[int, str, JsonValue]]:
    """Yield everything within *value*: how deep it is, its key ("" in a list), and itself."""
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else (("", item) for item in value):
            yield depth, key, item
            yield from walk(item, depth + 1)
