"""Answers that follow a schema: the provider is given the hint, and what it says is judged here, whole."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from pydantic import JsonValue

from bot.llm.adapters.wire_form import load_json
from bot.ports.errors import OutputInvalid
from bot.ports.model import Completion, ModelWrapper, Request
from threads.model import OnEvent

if TYPE_CHECKING:
    from jsonschema.protocols import Validator
    from referencing.jsonschema import SchemaRegistry

FENCED = re.compile(r"\s*```(?:json)?[ \t]*\n(.*)\n[ \t]*```\s*", re.DOTALL | re.IGNORECASE)

FAULTS = 3
"""How many faults of an answer are named."""


@dataclass(frozen=True, slots=True)
class StructuredOutputModel(ModelWrapper):
    """Lets only answers through that follow ``Request.output_schema``, where there is one."""

    async def complete(self, request: Request, on_event: OnEvent) -> Completion:
        """See `bot.ports.model.Model.complete`; raises `OutputInvalid`, and ValueError for what is no schema."""
        if request.output_schema is None:
            return await self.model.complete(request, on_event)
        judge = validator(request.output_schema)
        completion = await self.model.complete(request, on_event)
        if completion.stop in ("end", "length"):  # Else it goes on: with a tool's result, or after a pause.
            try:
                check(completion.message.text, judge)
            except OutputInvalid as error:
                provider, _, model = self.name.partition("/")
                error.fields |= {"provider": provider, "model": model}
                error.usage = completion.usage
                raise
        return completion


def validator(schema: dict[str, JsonValue]) -> Validator:
    """Return the judge of *schema*; nothing is ever fetched. Raises ValueError for one that cannot be used."""
    from jsonschema import Draft202012Validator  # noqa: PLC0415
    from jsonschema.exceptions import SchemaError  # noqa: PLC0415
    from jsonschema.validators import validator_for  # noqa: PLC0415
    from referencing import Registry, Resource  # noqa: PLC0415
    from referencing.exceptions import Unresolvable  # noqa: PLC0415
    from referencing.jsonschema import DRAFT202012  # noqa: PLC0415

    kind = validator_for(schema, default=Draft202012Validator)
    registry: SchemaRegistry = Registry()
    try:
        kind.check_schema(schema)
    except SchemaError as error:
        raise ValueError(f"no JSON Schema: {error.json_path}: {error.message}") from error
    root = Resource.from_contents(schema, default_specification=DRAFT202012)
    resolver = registry.resolver_with_root(root)
    for reference in _references(schema):
        try:
            resolver.lookup(reference)
        except Unresolvable as error:
            raise ValueError(f"no JSON Schema: {reference} is not in it") from error
    return kind(schema, registry=registry, format_checker=kind.FORMAT_CHECKER)


def _references(schema: JsonValue) -> Iterator[str]:
    match schema:
        case dict():
            yield from (ref for name in ("$ref", "$dynamicRef") if isinstance(ref := schema.get(name), str))
            for part in schema.values():
                yield from _references(part)
        case list():
            for part in schema:
                yield from _references(part)


def check(text: str, judge: Validator) -> None:
    """Raise `OutputInvalid` that names where *text*, JSON or JSON in a fence, goes against the schema."""
    fenced = FENCED.fullmatch(text)
    try:
        answer = load_json(fenced[1] if fenced else text)
        faults = sorted(judge.iter_errors(answer), key=lambda fault: list(map(str, fault.absolute_path)))
    except json.JSONDecodeError as error:
        raise OutputInvalid(f"the answer is no JSON: {error}") from error
    except (ValueError, RecursionError) as error:
        raise OutputInvalid(f"the answer is no JSON that can be read: {error}") from error
    if faults:
        named = "; ".join(f"{fault.json_path}: {fault.message[:200]}" for fault in islice(faults, FAULTS))
        more = f"; and {len(faults) - FAULTS} more" if len(faults) > FAULTS else ""
        raise OutputInvalid(f"the answer does not follow its schema: {named}{more}")
