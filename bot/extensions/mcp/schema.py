"""The arguments of a server's tool: its JSON Schema checks what the language model sends.

A schema is somebody else's program, so its cost is bounded: no regular expression of it is run, and a check ends
after `MAX_STEPS` keywords (ten lines of schema can ask for a billion). The server checks its arguments in any case;
here a mistake is found sooner. Arguments that cannot be checked within these bounds pass.

Models are shown another form of the schema: see `bot.extensions.mcp.provider_schema`. What they send back under the
names of that form gets its own names again before it is checked.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any, ClassVar

from pydantic import ConfigDict, JsonValue, create_model, model_validator
from pydantic_core import PydanticCustomError

from bot.extensions.mcp.plain_text import clean
from bot.extensions.mcp.provider_schema import other_names, provider_schema, rename
from bot.ports.tool import Arguments

MAX_STEPS = 20_000
"""Keywords checked for one call: some 0.2 s at the very worst."""
MAX_ERRORS = 5
MAX_ERROR = 300
"""Characters of one error: it repeats what was sent."""

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
        arguments = rename(arguments, other_names(cls.parameters))
        if errors := argument_errors(cls.parameters, arguments):
            raise PydanticCustomError("schema", "{errors}", {"errors": "; ".join(errors)})
        return arguments

    @classmethod
    def model_json_schema(cls, *_args: Any, **_named: Any) -> dict[str, Any]:
        """Return the schema in the form that every provider takes."""
        return provider_schema(cls.parameters)


def arguments_model(name: str, parameters: dict[str, JsonValue]) -> type[McpArguments]:
    """Return the model of the arguments of the tool *name*; *parameters* are those of a `Repaired`."""
    model = create_model(f"{name}_arguments", __base__=McpArguments)
    model.parameters = parameters
    return model


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
        return [clean(f"{error.json_path}: {error.message}"[:MAX_ERROR]) for error in found]
    except (_TooManySteps, RecursionError):
        return []
