"""What an answer must look like, judged whole: whatever the provider made of the hint."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.llm.policies.structured_output import StructuredOutputModel, check, validator
from bot.ports.errors import OutputInvalid
from bot.ports.model import Completion, Request, Usage
from threads.model import Message, Text, ToolCall

SCHEMA = {
    "$defs": {"day": {"type": "string", "format": "date"}},
    "type": "object",
    "properties": {
        "due": {"$ref": "#/$defs/day"},
        "items": {"type": "array", "items": {"type": "object", "properties": {"n": {"minimum": 1}}}},
    },
    "required": ["items"],
    "additionalProperties": False,
}
GOOD = '{"items": [{"n": 1}], "due": "2026-11-22"}'
USAGE = Usage(input=3, output=4)


class FixedModel:
    """A model with one answer, which counts how often it is asked."""

    name = "p/m"

    def __init__(self, *blocks, stop="end"):
        self.completion = Completion(Message("assistant", blocks, model=self.name), USAGE, stop)
        self.calls = 0

    async def complete(self, request, on_event):
        self.calls += 1
        return self.completion


async def answer(model, schema=SCHEMA):
    return await StructuredOutputModel(model).complete(Request("", (), output_schema=schema), print)


@pytest.mark.parametrize("text", [GOOD, f" {GOOD}\n", f"```json\n{GOOD}\n```", f"\n```\n{GOOD}\n```\n"])
async def test_an_answer_that_follows_its_schema_passes_unchanged(text):
    model = FixedModel(Text(text))
    assert await answer(model) is model.completion
    assert StructuredOutputModel(model).name == "p/m"


FAULTS = {
    '{"items": [{"n": 1}, {"n": 0}]}': r"\$\.items\[1\]\.n: 0 is less",
    '{"items": 7}': r"\$\.items: 7 is not of type 'array'",
    "{}": "'items' is a required property",
    '{"items": [], "x": 1}': "'x' was unexpected",
    '{"items": [], "due": "soon"}': r"\$\.due: 'soon' is not a 'date'",
    "[]": r"\$: \[\] is not of type 'object'",
    '{"items": [{"n": 0}, {"n": 0}, {"n": 0}, {"n": 0}]}': r"items\[2\].*; and 1 more",
    "Here you are: {}": "JSON",
    f"{GOOD} and more": "JSON",
    f"Look:\n```json\n{GOOD}\n```": "JSON",
    '{"items": [NaN]}': "NaN is not JSON",
    '{"items": [': "JSON",
    "": "JSON",
    "[" * 100_000: "JSON",
}


@pytest.mark.parametrize(("text", "fault"), FAULTS.items(), ids=lambda text: text[:30])
async def test_an_answer_that_does_not_is_invalid_and_its_faults_have_their_place(text, fault):
    with pytest.raises(OutputInvalid, match=fault) as caught:
        await answer(FixedModel(Text(text)))
    assert caught.value.fields == {"provider": "p", "model": "m"}
    assert caught.value.usage == USAGE
    assert len(str(caught.value)) < 1000


async def test_an_answer_that_ran_out_of_tokens_is_judged_too():
    with pytest.raises(OutputInvalid):
        await answer(FixedModel(Text('{"items": ['), stop="length"))


@pytest.mark.parametrize(
    "model",
    [
        FixedModel(Text("Let me see."), ToolCall("c", "look", {}), stop="tool_calls"),
        FixedModel(Text("Wait."), stop="pause"),
    ],
    ids=["calls", "a pause"],
)
async def test_what_is_no_last_answer_passes(model):
    assert await answer(model) is model.completion


async def test_without_a_schema_anything_goes():
    model = FixedModel(Text("plain words"))
    assert await answer(model, None) is model.completion


NO_SCHEMAS = {
    "a wrong type": ({"type": "objekt"}, r"\$\.type: 'objekt'"),
    "a fault inside": ({"properties": {"a": {"minimum": "1"}}}, r"\$\.properties\.a\.minimum"),
    "a reference to nothing": ({"$ref": "#/$defs/gone"}, "#/\\$defs/gone is not in it"),
    "a reference to elsewhere": ({"items": [{"$ref": "http://127.0.0.1:1/x.json"}]}, "x.json|items"),
    "elsewhere, deep": ({"allOf": [{"$ref": "http://127.0.0.1:1/x.json"}]}, "x.json is not in it"),
}


@pytest.mark.parametrize(("schema", "fault"), NO_SCHEMAS.values(), ids=NO_SCHEMAS)
async def test_what_is_no_schema_is_refused_before_anybody_is_asked(schema, fault):
    model = FixedModel(Text("{}"))
    with pytest.raises(ValueError, match=fault):
        await answer(model, schema)
    assert model.calls == 0


async def test_an_older_draft_is_judged_by_its_own_rules():
    draft7 = {"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "integer"}]}
    await answer(FixedModel(Text('[1, "x"]')), draft7)
    with pytest.raises(OutputInvalid):
        await answer(FixedModel(Text('["x"]')), draft7)


async def test_a_schema_may_refer_to_itself():
    tree = {"type": "object", "properties": {"left": {"$ref": "#"}, "name": {"type": "string"}}}
    await answer(FixedModel(Text('{"left": {"left": {"name": "x"}}}')), tree)
    with pytest.raises(OutputInvalid, match=r"\$\.left\.left\.name"):
        await answer(FixedModel(Text('{"left": {"left": {"name": 1}}}')), tree)


@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_whatever_a_model_says_is_valid_or_invalid_and_nothing_else(text):
    try:
        check(text, validator(SCHEMA))
    except OutputInvalid as error:
        assert str(error)
    else:
        assert '"items"' in text
