"""What is true of every conversation on every wire, whatever people and models wrote."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.extensions.anthropic import messages as anthropic
from bot.extensions.openai import chat as openai_chat
from bot.extensions.openai import responses as openai_responses
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


def on_anthropic_s_wire(messages):
    blocks = [block for entry in anthropic.to_wire(messages, ME) for block in entry["content"]]
    calls = [(block["id"], block["name"]) for block in blocks if block["type"] == "tool_use"]
    return calls, [(b["tool_use_id"], b["content"]) for b in blocks if b["type"] == "tool_result"]


def on_the_chat_wire(messages):
    wire = openai_chat.to_wire("", messages, ME)
    calls = [(call["id"], call["function"]["name"]) for entry in wire for call in entry.get("tool_calls", [])]
    return calls, [(entry["tool_call_id"], entry["content"]) for entry in wire if entry["role"] == "tool"]


def on_the_responses_wire(messages):
    items = [item for item in openai_responses.to_wire(messages, ME) if "call_id" in item]
    calls = [(item["call_id"], item["name"]) for item in items if item["type"] == "function_call"]
    return calls, [(item["call_id"], item["output"]) for item in items if "output" in item]


@pytest.mark.parametrize("wire", [on_anthropic_s_wire, on_the_chat_wire, on_the_responses_wire])
@given(messages=conversations())
def test_each_result_answers_its_own_call(wire, messages):
    """`test_handoff.py` holds the same wires to all other rules."""
    calls, results = wire(messages)
    assert len(results) == len(calls) == sum(len(message.calls) for message in messages)
    assert dict(results) == {call_id: f"result of {name}" for call_id, name in calls}


@given(st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.text()))
def test_arguments_are_an_object_or_marked(value):
    call = tool_call("c", "t", json.dumps(value))
    assert call.arguments == {}
    assert call.malformed == scrub(json.dumps(value))


@given(st.dictionaries(st.text(), st.integers() | st.text()))
def test_arguments_survive_the_wire(arguments):
    assert tool_call("c", "t", json.dumps(arguments)) == ToolCall("c", "t", arguments)


NO_COUNTS = (None, True, -1, -0.5, 1.5, 10**9 + 1, 10**40, 1e40, math.nan, math.inf, -math.inf, "7", [7], {})


@pytest.mark.parametrize("value", NO_COUNTS, ids=str)
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
