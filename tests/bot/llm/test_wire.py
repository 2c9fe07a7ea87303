"""What is true of every conversation on every wire, whatever people and models wrote."""

import json
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.llm.adapters import anthropic, openai_chat, openai_responses
from bot.llm.adapters.wire_form import EMPTY, fit, scrub, tokens, tool_call
from threads.model import Message, Text, Thinking, ToolCall, ToolResult

ME = "p/me"
IDS = st.one_of(
    st.sampled_from(["tu_1", "call_1", "call_2", "", "fc|item", "x" * 65, "a b"]),
    st.text("abc|é-_", max_size=70),
)
RAW = {"type": "thinking", "thinking": "mine", "signature": "s"}
text = st.builds(Text, st.text(st.characters(), max_size=8) | st.sampled_from(["", " \n", "a\ud83d"]))
thinking = st.builds(lambda model: Thinking("hm", model, dict(RAW)), st.sampled_from([ME, "p/other"]))


@st.composite
def conversations(draw) -> list[Message]:
    """A conversation as ``repair`` leaves it: each call has one result, later in the user entries that follow."""
    messages, number = [], 0
    for _ in range(draw(st.integers(1, 5))):
        messages.append(Message("user", tuple(draw(st.lists(text, max_size=2)))))
        for _ in range(draw(st.integers(0, 2))):
            calls = []
            for call_id in draw(st.lists(IDS, max_size=3, unique=True)):
                number += 1
                calls.append(ToolCall(call_id, f"tool_{number}", {"n": number}))
            said = draw(st.lists(st.one_of(text, thinking), max_size=3))
            messages.append(Message("assistant", tuple(draw(st.permutations([*said, *calls])))))
            results = [ToolResult(call.id, f"result of {call.name}") for call in draw(st.permutations(calls))]
            entries = [Message("user", (result,)) for result in results]
            note = [Message("user", tuple(draw(st.lists(text, max_size=1))))] if calls else []
            messages += draw(st.permutations([*entries, *note])) if draw(st.booleans()) else [*entries, *note]
    return [*messages, Message("user", (Text("go on"),))]


@given(conversations())
def test_on_anthropic_s_wire_calls_and_results_pair_up(messages):
    wire = anthropic.to_wire(messages, ME)
    json.dumps(wire, ensure_ascii=False).encode()
    assert [entry["role"] for entry in wire[::2]] == ["user"] * len(wire[::2])
    assert [entry["role"] for entry in wire[1::2]] == ["assistant"] * len(wire[1::2])
    seen: set[str] = set()
    for entry, after in zip(wire, [*wire[1:], None], strict=True):
        assert entry["content"]
        for block in entry["content"]:
            assert block["type"] != "text" or block["text"].strip()
            assert block["type"] != "thinking" or block == RAW
        calls = {block["id"]: block["name"] for block in entry["content"] if block["type"] == "tool_use"}
        assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", call_id) for call_id in calls)
        assert not seen & set(calls)
        seen |= set(calls)
        answers = after["content"][: len(calls)] if after else []
        assert {block["tool_use_id"]: block["content"] for block in answers} == {
            call_id: f"result of {name}" for call_id, name in calls.items()
        }
    results = [block for entry in wire for block in entry["content"] if block["type"] == "tool_result"]
    assert len(results) == len(seen)


@given(conversations())
def test_on_the_chat_wire_each_call_is_answered_before_anything_else_is_said(messages):
    wire = openai_chat.to_wire("", messages, ME)
    json.dumps(wire, ensure_ascii=False).encode()
    waiting: dict[str, str] = {}
    for entry in wire:
        if entry["role"] == "tool":
            assert entry["content"] == f"result of {waiting.pop(entry['tool_call_id'])}"
            continue
        assert not waiting
        assert entry.get("content", "x").strip()
        assert set(entry) > {"role"}
        waiting = {call["id"]: call["function"]["name"] for call in entry.get("tool_calls", [])}
        assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", call_id) for call_id in waiting)
    assert not waiting
    for entry, after in pairwise(wire):
        assert entry["role"] != after["role"] or entry["role"] == "tool"


@given(conversations())
def test_on_the_responses_wire_each_call_is_answered_once_and_after_it(messages):
    wire = openai_responses.to_wire(messages, ME)
    json.dumps(wire, ensure_ascii=False).encode()
    waiting: dict[str, str] = {}
    for item in wire:
        match item:
            case {"type": "function_call", "call_id": call_id, "name": name}:
                assert call_id not in waiting
                assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", call_id)
                waiting[call_id] = name
            case {"type": "function_call_output", "call_id": call_id, "output": output}:
                assert output == f"result of {waiting.pop(call_id)}"
            case {"role": role, "content": content}:
                assert content.strip()
                assert role == "assistant" or not waiting
            case _:
                assert item == RAW
    assert not waiting


@given(st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.text()))
def test_arguments_are_an_object_or_marked(value):
    call = tool_call("c", "t", json.dumps(value))
    assert call.arguments == {}
    assert call.malformed == scrub(json.dumps(value))


@given(st.dictionaries(st.text(), st.integers() | st.text()))
def test_arguments_survive_the_wire(arguments):
    assert tool_call("c", "t", json.dumps(arguments)) == ToolCall("c", "t", arguments)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -1,
        -0.5,
        1.5,
        10**9 + 1,
        10**40,
        1e40,
        float("nan"),
        float("inf"),
        float("-inf"),
        "7",
        [7],
        {},
    ],
    ids=str,
)
def test_what_is_no_whole_number_within_reason_is_no_count(value):
    assert tokens(value) is None


@pytest.mark.parametrize(("value", "count"), [(0, 0), (7, 7), (10.0, 10), (10**9, 10**9)])
def test_a_whole_number_is_a_count(value, count):
    assert tokens(value) == count
    assert type(tokens(value)) is int


def test_a_turn_without_words_still_has_its_place():
    assert fit([Message("user", (Text(" "),))], ME, anthropic.IDS) == [Message("user", (Text(EMPTY),))]


def test_calls_that_share_an_id_get_their_own_and_are_answered_in_order():
    calls = Message("assistant", (ToolCall("x", "a", {}), ToolCall("x", "b", {})))
    results = Message("user", (ToolResult("x", "of a"), ToolResult("x", "of b")))
    asked, answered = fit([calls, results], ME, anthropic.IDS)
    assert [(call.id, call.name) for call in asked.calls] == [("x", "a"), ("call_1", "b")]
    assert [(result.call_id, result.content) for result in answered.results] == [
        ("x", "of a"),
        ("call_1", "of b"),
    ]


def test_a_result_without_its_call_is_not_sent():
    stray = [Message("user", (ToolResult("gone", "x"), Text("hi")))]
    assert fit(stray, ME, anthropic.IDS) == [Message("user", (Text("hi"),))]


def test_a_blank_turn_keeps_its_place_when_more_is_said():
    entries = [Message("user", (Text(""),)), Message("user", (Text("hi"),))]
    assert fit(entries, ME, anthropic.IDS) == [Message("user", (Text(EMPTY), Text("hi")))]


@pytest.mark.parametrize(
    ("given_text", "clean"),
    [("plain", "plain"), ("\ud83d\ude00", "\U0001f600"), ("a\ud83d", "a\ufffd"), ("\ude00b", "\ufffdb")],
)
def test_scrubbing_joins_pairs_and_replaces_halves(given_text, clean):
    assert scrub(given_text) == clean
