"""A playbook from YAML or Markdown: all faults at once, each with its path and a hint."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from bot.config.extensions import settings_model
from bot.extensions.playbooks.definition import Playbook, json_schema
from bot.extensions.playbooks.folder import examples
from bot.extensions.playbooks.parsing import PlaybookInvalid, digest_of, parse_playbook
from bot.extensions.playbooks.references import Known

Settings = settings_model()

WHOLE = """\
name: p
description: A playbook.
stages:
  - name: one
    act: {prompt: First.}
  - name: two
    act: {prompt: Second.}
"""


def faults(text, file_name="p.yaml"):
    with pytest.raises(PlaybookInvalid) as invalid:
        parse_playbook(file_name, text)
    return list(invalid.value.faults)


def stage_two(more):
    return f"{WHOLE}{more}"


def test_a_playbook_has_its_defaults():
    playbook = parse_playbook("p.yaml", WHOLE)
    assert [stage.name for stage in playbook.stages] == ["one", "two"]
    one = playbook.stages[0]
    assert (one.unrecoverable, one.most_visits, one.retry.attempts, one.act.tools) == ("abort", 1, 1, None)
    assert playbook.following("one") == "two"
    assert playbook.following("two") == "end"


def test_markdown_has_the_prompts_below_headings():
    text = """---
name: p
description: A playbook.
stages:
  - name: one
  - {name: two, act: {tools: []}}
---
What this is for.

## one
First,
in two lines.

### not a stage

## two

Second.
"""
    one, two = parse_playbook("p.md", text).stages
    assert one.act.prompt == "First,\nin two lines.\n\n### not a stage"
    assert (two.act.prompt, two.act.tools) == ("Second.", ())


def test_all_faults_of_the_shape_are_told_with_the_nearest_key():
    text = WHOLE.replace("prompt: First.", "promt: First., timeout_s: soon").replace("Second.", "3")
    assert faults(text) == [
        "stage one: act.prompt: is required",
        "stage one: act.timeout_s: must be a valid number",
        'stage one: act.promt: unknown key; the nearest known one is "prompt"',
        'stage two: act.prompt: must be a text, such as "one"',
    ]


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        (
            "    next: {success: ons}\n",
            'stage two: next.success: no stage is called "ons"; the nearest known one is "one"',
        ),
        (
            "    next: {on_error: {timeout: nowhere}}\n",
            'stage two: next.on_error.timeout: no stage is called "nowhere"; there are one, two, end',
        ),
        ("    next: {value: {field: a, cases: {x: one}}}\n    assert: {}\n", "needs a result with fields"),
        ("    next: {failure: one}\n", 'stages lead back to "one"; say how often, with `visits`'),
        (
            "    setup: {results: [ome]}\n",
            'stage two: setup.results[0]: no stage is called "ome"; the nearest known one is "one"',
        ),
        (
            "    assert: {checks: [{file: a, command: b}]}\n",
            "must have exactly one of command, file and person",
        ),
        ("    assert: {checks: [{exit_code: 1}]}\n", "must have exactly one of command, file and person"),
        (
            "    assert: {schema: {type: strange}}\n",
            "stage two: assert.schema: not a valid JSON Schema: $.type",
        ),
        ("    next: {on_error: {never: one}}\n", "stage two: next.on_error.never"),
        ("  - name: one\n    act: {prompt: x}\n", 'stage one: name: another name is needed: "one" is taken'),
        ("  - name: end\n    act: {prompt: x}\n", 'stage end: name: another name is needed: "end" is taken'),
    ],
)
def test_each_fault_between_values_is_told(more, fault):
    assert any(fault in line for line in faults(stage_two(more))), faults(stage_two(more))


KNOWN = Known.of(
    Settings.model_validate(
        {
            "model": "local/small",
            "providers": {"local": {"kind": "openai-compatible", "base_url": "http://127.0.0.1:1/v1"}},
            "tools": {"enabled": ["files"]},
            "scopes": {"slack:T1:C1": {"tools": {"enabled": ["memory"]}}},
            "mcp_servers": {"the shop": {"command": "shop"}},
        },
        strict=False,
    )
)


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        (
            "act: {prompt: x, tools: [read_file, red_file]}",
            'act.tools[1]: there is no tool "red_file"; the nearest known one is',
        ),
        (
            "act: {prompt: x, tools: [browser]}",
            'act.tools[0]: the tool "browser": add "browser" to tools.enabled',
        ),
        (
            "act: {prompt: x, tools: [shp__buy]}",
            'act.tools[0]: a tool of the MCP server "shp", and there is none; the',
        ),
        (
            "act: {prompt: x, model: locl/big}",
            'act.model: no provider is called "locl"; the nearest known one is "local"',
        ),
        (
            "act: {prompt: x}\n    assert: {checks: [{command: ls}]}",
            "assert.checks[0].command: needs the tool",
        ),
    ],
)
def test_what_a_stage_names_and_the_settings_do_not_have_is_a_fault(more, fault):
    text = WHOLE.replace("act: {prompt: Second.}", more)
    with pytest.raises(PlaybookInvalid) as invalid:
        parse_playbook("p.yaml", text, KNOWN)
    [line] = invalid.value.faults
    assert f"stage two: {fault}" in line
    assert parse_playbook("p.yaml", text).stages[1].name == "two", "in itself it is well"


def test_what_the_settings_have_anywhere_is_no_fault():
    act = "act: {prompt: x, tools: [write_file, recall, the_shop__buy], model: local/other}"
    parse_playbook("p.yaml", WHOLE.replace("act: {prompt: Second.}", act), KNOWN)


def test_a_branch_by_a_field_that_the_schema_does_not_have_is_a_fault():
    schema = "assert: {schema: {type: object, properties: {kind: {type: string}}}}"
    text = stage_two(f"    {schema}\n    next: {{value: {{field: kid, cases: {{x: end}}}}}}\n")
    assert faults(text) == [
        'stage two: next.value.field: the schema has no field "kid"; the nearest known one is "kind"'
    ]


def test_a_stage_that_nothing_leads_to_is_a_fault():
    text = WHOLE.replace("First.}", "First.}\n    next: {success: end}")
    assert faults(text) == ['stage two: nothing leads to "two"; name it in a `next`, or remove it']


def test_a_circle_with_a_bound_on_each_stage_is_no_fault():
    visits = "    visits: 2\n"
    text = WHOLE.replace("First.}\n", f"First.}}\n{visits}") + f"{visits}    next: {{failure: one}}\n"
    assert parse_playbook("p.yaml", text).stages[1].most_visits == 2


@pytest.mark.parametrize("name", ["status", "stop", "at", "retry", "skip", "list"])
def test_a_word_of_play_is_no_name(name):
    assert "choose another name" in faults(WHOLE.replace("name: p", f"name: {name}"), f"{name}.yaml")[0]


def test_the_name_is_that_of_the_file():
    assert faults(WHOLE, "q.yaml") == ['name: must be the name of its file, "q"']


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "must be a mapping with name, description and stages"),
        ("- a\n", "must be a mapping with name, description and stages"),
        ("a: [\n", "is not valid YAML: expected the node content, but found '<stream end>', line 2"),
        ("a: &x [1]\nb: *x\n", "has a YAML alias (*name)"),
        ("[" * 60_000, "too deep in one another"),
        ("- " * 30_000, "too deep in one another"),
        ("? [1]\n: 2\n", "is not valid YAML"),
        ("1: 2\n", "must be a mapping with name, description and stages"),
        ("a: 2026-13-45\n", "is not valid YAML"),
        ("a: 1\nb: 2\na: 3\n", '"a" stands twice, in lines 1 and 3; keep one'),
        ("a:\n  - b: {c: 1}\n    b: 2\n", '"b" stands twice, in lines 2 and 3; keep one'),
    ],
)
def test_what_is_no_playbook_at_all_is_told_in_a_line(text, fault):
    [line] = faults(text)
    assert fault in line


def test_a_date_is_text():
    playbook = parse_playbook("p.yaml", WHOLE.replace("A playbook.", "2026-11-25"))
    assert playbook.description == "2026-11-25"


def test_half_a_character_is_replaced():
    assert parse_playbook("p.yaml", WHOLE.replace("A playbook.", r'"\uD800"')).description == "?"


def test_a_heading_without_a_stage_is_a_fault():
    text = f"---\n{WHOLE}---\n## three\nWhat?\n"
    assert faults(text, "p.md") == ['there is no stage without a prompt for the headings "three"']


@given(st.text(max_size=300))
def test_no_text_does_anything_but_be_valid_or_list_faults(text):
    for file_name in ("p.yaml", "p.md"):
        try:
            parse_playbook(file_name, text)
        except PlaybookInvalid as invalid:
            assert all(invalid.faults)


def test_the_digest_changes_with_the_playbook_and_not_with_its_spelling():
    playbook = parse_playbook("p.yaml", WHOLE)
    assert digest_of(playbook) == digest_of(parse_playbook("p.yaml", f"# a comment\n{WHOLE}"))
    assert digest_of(playbook) != digest_of(parse_playbook("p.yaml", WHOLE.replace("First", "Other")))


@pytest.mark.parametrize("file_name", examples())
def test_the_examples_are_valid_and_as_their_schema_says(file_name):
    playbook = parse_playbook(file_name, examples()[file_name])
    document = playbook.model_dump(mode="json", by_alias=True)
    Draft202012Validator(json_schema()).validate(document)
    assert Playbook.model_validate_json(json.dumps(document)) == playbook
