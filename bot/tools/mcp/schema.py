"""The arguments of a server's tool: its JSON Schema judged, and a model that checks what the language model sends.

A schema is a program of somebody else's. What it may cost is bounded: its length and depth, no reference out of it,
at most `MAX_STEPS` keywords in one check (a schema of ten lines can ask for a billion), and no regular expression of
it is ever run. The server checks its arguments in any case; here a mistake is found sooner, and named to the language
model. What cannot be checked within these bounds is therefore let through.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import cache, partial
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote

from pydantic import ConfigDict, JsonValue, create_model, model_validator
from pydantic_core import PydanticCustomError

from bot.ports.tool import Arguments

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

MAX_SCHEMA = 20_000
"""Characters of one schema."""
MAX_DEPTH = 32
"""Levels of braces and brackets; schemas that people use have fewer than 15."""
MAX_STEPS = 20_000
"""Keywords judged in one check: some 0.2 s at the very worst."""
MAX_FAULTS = 5
MAX_FAULT = 300
"""Characters of one fault: it repeats what was sent."""

_KEY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""What Anthropic takes as the name of a property."""
_COMBINATORS = (
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "dependentSchemas",
    "$ref",
    "$dynamicRef",
)
_UNJUDGED = frozenset(
    {"pattern", "patternProperties", "format", "unevaluatedProperties", "unevaluatedItems", "uniqueItems"}
)
"""Keywords that can be made to cost more than they are worth."""
_left: ContextVar[list[int]] = ContextVar("steps left in the check under way")


class _TooLong(Exception):
    """A check has used up its steps."""


class McpArguments(Arguments):
    """What a server's tool is called with: any names, checked by ``parameters``, its own JSON Schema."""

    model_config = ConfigDict(extra="allow", frozen=True)
    parameters: ClassVar[dict[str, JsonValue]] = {}

    @model_validator(mode="before")
    @classmethod
    def _check(cls, given: Any) -> Any:
        if found := argument_errors(cls.parameters, given):
            raise PydanticCustomError("schema", "{faults}", {"faults": "; ".join(found)})
        return given

    @classmethod
    def model_json_schema(cls, *_args: Any, **_named: Any) -> dict[str, Any]:
        return provider_schema(cls.parameters)


def arguments_of(name: str, parameters: dict[str, JsonValue]) -> type[McpArguments]:
    """Return the model of the arguments of the tool *name*; *parameters* must have no `schema_problem`."""
    model = create_model(f"{name}_arguments", __base__=McpArguments)
    model.parameters = parameters
    return model


def provider_schema(parameters: dict[str, JsonValue]) -> dict[str, Any]:
    """Return the schema as providers take it: of an object, with no combinator at its top."""
    plain = {key: value for key, value in parameters.items() if key not in {*_COMBINATORS, "enum", "const"}}
    return {**plain, "type": "object", "properties": plain.get("properties", {})}


def schema_problem(parameters: dict[str, JsonValue]) -> str:
    """Return why a tool with such arguments cannot be offered, or nothing."""
    if _too_deep(parameters):
        return f"its schema has more than {MAX_DEPTH} levels"
    if len(json.dumps(parameters, ensure_ascii=False)) > MAX_SCHEMA:
        return f"its schema is longer than {MAX_SCHEMA:,} characters"
    if parameters.get("type", "object") != "object" or not _is_schema(parameters):
        return "its schema is no JSON Schema of an object"
    return next(filter(None, (_odd(parameters, key, value) for key, value in _pairs(parameters))), "")


def _odd(parameters: dict[str, JsonValue], key: str, value: JsonValue) -> str:
    if key in {"$id", "$anchor", "$dynamicAnchor", "$dynamicRef"}:
        return f"its schema uses {key}"
    if key == "$ref" and not (isinstance(value, str) and _resolves(parameters, value)):
        return "its schema refers to something outside of it"
    if key == "properties" and isinstance(value, dict) and not all(map(_KEY.fullmatch, value)):
        return "its arguments have names that model providers do not take"
    return ""


def argument_errors(parameters: dict[str, JsonValue], given: JsonValue) -> list[str]:
    """Return what is wrong with the arguments *given*, the first few; nothing if they cannot be checked."""
    token = _left.set([MAX_STEPS])
    try:
        found = islice(_checker()(parameters).iter_errors(given), MAX_FAULTS)
        return [f"{error.json_path}: {error.message}"[:MAX_FAULT] for error in found]
    except (_TooLong, RecursionError):
        return []
    finally:
        _left.reset(token)


@cache
def _checker() -> Callable[[dict[str, JsonValue]], Validator]:
    """Return what makes validators that count their steps and fetch nothing."""
    from jsonschema import Draft202012Validator as Standard  # noqa: PLC0415
    from jsonschema.validators import extend  # noqa: PLC0415
    from referencing import Registry  # noqa: PLC0415

    def counted(judge: Callable[..., Any]) -> Callable[..., Any]:
        def judged(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
            left = _left.get()
            left[0] -= 1
            if left[0] < 0:
                raise _TooLong
            return judge(validator, value, instance, schema)

        return judged

    def additional(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        if "patternProperties" in schema:  # which of them are additional, only the patterns would tell
            return None
        return Standard.VALIDATORS["additionalProperties"](validator, value, instance, schema)

    judges = {**Standard.VALIDATORS, "additionalProperties": additional}
    unjudged = dict.fromkeys(_UNJUDGED, lambda *_: None)
    made = extend(  # type: ignore[no-untyped-call]
        Standard, {name: counted(judge) for name, judge in judges.items()} | unjudged
    )
    return partial(made, registry=Registry())


def _is_schema(parameters: dict[str, JsonValue]) -> bool:
    from jsonschema import Draft202012Validator, FormatChecker, SchemaError  # noqa: PLC0415

    try:
        # Without formats: the patterns of other languages are no mistake, and none is run here.
        Draft202012Validator.check_schema(parameters, format_checker=FormatChecker(formats=()))
    except (SchemaError, RecursionError):
        return False
    return True


def _resolves(parameters: JsonValue, reference: str) -> bool:
    """Return whether a reference leads to a place in the schema itself."""
    if reference == "#":
        return True
    if not reference.startswith("#/"):
        return False
    place = parameters
    for step in unquote(reference[2:]).split("/"):
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(place, dict) and key in place:
            place = place[key]
        elif isinstance(place, list) and key.isdecimal() and int(key) < len(place):
            place = place[int(key)]
        else:
            return False
    return isinstance(place, dict | bool)


def _too_deep(value: JsonValue) -> bool:
    level: list[JsonValue] = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for node in level
            if isinstance(node, dict | list)
            for child in (node.values() if isinstance(node, dict) else node)
        ]
    return any(isinstance(node, dict | list) for node in level)


def _pairs(value: JsonValue) -> Iterator[tuple[str, JsonValue]]:
    match value:
        case dict():
            for key, item in value.items():
                yield key, item
                yield from _pairs(item)
        case list():
            for item in value:
                yield from _pairs(item)
        case _:
            pass
