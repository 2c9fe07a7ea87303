"""Answers that follow a schema: the provider gets a hint, and the whole answer is validated here."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

import anyio
from pydantic import JsonValue

from bot.llm.adapters.wire_form import load_json
from bot.ports.errors import SchemaMismatch, model_retry_fields
from bot.ports.model import Completion, Models, ModelWrapper, Request, TurnModel, TurnModelWrapper
from threads.model import Message, OnEvent, Text, TextReset, Turn

if TYPE_CHECKING:
    from jsonschema.protocols import Validator
    from referencing.jsonschema import SchemaRegistry

FENCED = re.compile(r"\s*```(?:json)?[ \t]*\n(.*)\n[ \t]*```\s*", re.DOTALL | re.IGNORECASE)

log = logging.getLogger(__name__)

UNFIT = "That cannot be used: {error}. Answer again, with nothing but JSON that follows the schema."

FAULTS = 3
"""The number of faults in an error text."""


@dataclass(frozen=True, slots=True)
class StructuredOutputModel(ModelWrapper):
    """Validates answers against ``Request.output_schema``, if there is one."""

    async def complete(self, request: Request, on_event: OnEvent) -> Completion:
        """See `bot.ports.model.Model.complete`; raises `SchemaMismatch`, and ValueError for an invalid schema."""
        if request.output_schema is None:
            return await self.model.complete(request, on_event)
        schema = validator(request.output_schema)
        completion = await self.model.complete(request, on_event)
        if completion.stop in ("end", "length"):  # Otherwise the answer is not complete yet.
            try:
                check(completion.message.text, schema)
            except SchemaMismatch as error:
                error.answer = completion.message.text
                provider, _, model = self.name.partition("/")
                error.fields |= {"provider": provider, "model": model}
                error.usage = completion.usage
                raise
        return completion


@dataclass(frozen=True, slots=True)
class FittingModels:
    """A `bot.ports.model.Models` that tells a model why its answer does not follow the schema, and asks once more."""

    models: Models

    @property
    def name(self) -> str:
        return self.models.name

    async def for_turn(self, turn: Turn) -> TurnModel:
        return FittingModel(await self.models.for_turn(turn))


class FittingModel(TurnModelWrapper):
    """The model of one turn, as `FittingModels` has it."""

    async def complete(self, request: Request, on_event: OnEvent) -> Completion:
        """See `bot.ports.model.Model.complete`; raises `SchemaMismatch` if the second answer does not fit either."""
        began = anyio.current_time()
        try:
            completion = await self.model.complete(request, on_event)
        except SchemaMismatch as error:
            seconds = anyio.current_time() - began
            log.warning("model.retry: %s", error, extra=model_retry_fields(error, 2, 0, self.name, seconds))
            await on_event(TextReset())
            answer = Message("assistant", (Text(error.answer or "(nothing)"),), model=self.name)
            faults = Message("user", (Text(UNFIT.format(error=error)),))
            request = replace(request, messages=(*request.messages, answer, faults))
            completion = await self.model.complete(request, on_event)
        if request.output_schema is None or completion.stop not in ("end", "length"):
            return completion
        message = completion.message
        others = (block for block in message.blocks if not isinstance(block, Text))
        blocks = *others, Text(without_fence(message.text).strip())
        return replace(completion, message=replace(message, blocks=blocks))


def validator(schema: dict[str, JsonValue]) -> Validator:
    """Return a validator for *schema*; it fetches nothing. Raises ValueError for an invalid schema."""
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
        raise ValueError(f"not a valid JSON Schema: {error.json_path}: {error.message}") from error
    resolver = registry.resolver_with_root(Resource.from_contents(schema, default_specification=DRAFT202012))
    for reference in _references(schema):
        try:
            resolver.lookup(reference)
        except Unresolvable as error:
            raise ValueError(f"not a valid JSON Schema: {reference} is not in it") from error
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


def without_fence(text: str) -> str:
    """Return the JSON of an answer that may stand in a fence."""
    fenced = FENCED.fullmatch(text)
    return fenced[1] if fenced else text


def check(text: str, schema: Validator) -> None:
    """Raise `SchemaMismatch` with the faults of *text*, which is JSON or JSON in a fence."""
    try:
        answer = load_json(without_fence(text))
        faults = sorted(schema.iter_errors(answer), key=lambda fault: list(map(str, fault.absolute_path)))
    except (ValueError, RecursionError) as error:
        raise SchemaMismatch(f"the answer is not valid JSON: {error}") from error
    if faults:
        named = "; ".join(f"{fault.json_path}: {fault.message[:200]}" for fault in islice(faults, FAULTS))
        more = f"; and {len(faults) - FAULTS} more" if len(faults) > FAULTS else ""
        raise SchemaMismatch(f"the answer does not follow its schema: {named}{more}")
