import json
import time

import pytest
from pydantic import ValidationError

from bot.extensions.mcp.schema import argument_errors, arguments_model
from bot.extensions.mcp.schema_repair import repair_schema

ISSUE = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {
        "title": {"type": "string", "minLength": 1},
        "labels": {"type": "array", "items": {"$ref": "#/$defs/Label"}},
        "state": {"enum": ["open", "closed"]},
    },
    "required": ["title"],
    "additionalProperties": False,
    "$defs": {"Label": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}},
}


def nested(levels):
    schema = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def laughs(levels):
    """A schema of a few lines that asks for 2 ** levels checks."""
    more = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(levels)}
    return {"type": "object", "allOf": [{"$ref": "#/$defs/a0"}], "$defs": {**more, f"a{levels}": {}}}


def test_arguments_are_checked_by_the_servers_schema_and_stay_as_they_are():
    repaired = repair_schema(ISSUE)
    assert repaired.faults == ()
    model = arguments_model("github__create", repaired.schema)
    given = {"title": "x", "labels": [{"name": "bug"}]}
    arguments = model.model_validate(given)
    assert arguments.model_dump(mode="json") == given
    assert arguments.subject() == json.dumps(given, sort_keys=True)
    assert model.model_json_schema()["properties"] == ISSUE["properties"]


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({}, "$: 'title' is a required property"),
        ({"title": ""}, "$.title: '' should be non-empty"),
        ({"title": "x", "labels": [{}]}, "$.labels[0]: 'name' is a required property"),
        ({"title": "x", "state": "gone"}, "$.state: 'gone' is not one of ['open', 'closed']"),
        ({"title": "x", "other": 1}, "$: Additional properties are not allowed ('other' was unexpected)"),
    ],
)
def test_a_mistake_is_named_with_its_place(given, fault):
    with pytest.raises(ValidationError) as wrong:
        arguments_model("t", ISSUE).model_validate(given)
    assert wrong.value.errors()[0]["msg"] == fault


def test_no_name_of_an_argument_is_mistaken_for_ours():
    names = ("subject", "always", "model_config", "parameters", "model_dump", "__class__", "self", "")
    given = dict.fromkeys(names, 1)
    arguments = arguments_model("t", {"type": "object"}).model_validate(given)
    assert json.loads(arguments.subject()) == given


def test_a_fault_is_short_however_much_was_sent():
    (fault,) = argument_errors(
        {"type": "object", "properties": {"a": {"type": "integer"}}}, {"a": "x" * 100_000}
    )
    assert len(fault) <= 300
    many = {"type": "object", "additionalProperties": {"type": "integer"}}
    assert len(argument_errors(many, {f"a{n}": "x" for n in range(1000)})) == 5


@pytest.mark.parametrize(
    ("schema", "given"),
    [
        ({"properties": {"a": {"pattern": "^(a+)+$"}}}, {"a": "a" * 64 + "!"}),
        ({"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False}, {"a" * 64 + "!": 1}),
        ({"propertyNames": {"pattern": "^(a|a)*$"}}, {"a" * 64 + "!": 1}),
        ({"patternProperties": {"^(a|a)*$": {}}, "unevaluatedProperties": False}, {"a" * 64 + "!": 1}),
        ({"properties": {"a": {"uniqueItems": True}}}, {"a": [{"x": n} for n in range(20_000)]}),
        (laughs(30), {}),
        ({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}, {}),
        (
            {"properties": {"a": {"items": {"anyOf": [{"const": n} for n in range(500)]}}}},
            {"a": [499] * 20_000},
        ),
    ],
    ids=["pattern", "patternProperties", "propertyNames", "unevaluated", "unique", "laughs", "loop", "many"],
)
def test_a_check_that_would_cost_too_much_is_not_made(schema, given):
    schema = repair_schema({"type": "object", **schema}).schema
    argument_errors(schema, {})
    started = time.process_time()
    assert argument_errors(schema, given) == []
    assert time.process_time() - started < 3


def test_deep_arguments_are_no_crash():
    tree = {"type": "object", "properties": {"a": {"$ref": "#"}}}
    given: dict[str, object] = {}
    for _ in range(300):
        given = {"a": given}
    assert argument_errors(tree, given) == []
