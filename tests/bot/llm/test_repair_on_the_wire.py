"""A repaired history on each provider's wire, held to all the rules that a provider answers 400 for."""

from __future__ import annotations

import json
import re

from hypothesis import given

from bot.agent.prompt.repair import repair
from bot.llm.adapters import anthropic, openai_chat, openai_responses
from tests.bot.agent.test_repair import MODEL, damaged
from threads.model import Message, Text

ON = Message("user", (Text("go on"),), source="m2")


def request(history: list[Message]) -> list[Message]:
    """Do as the agent does after a crash: repair, and never ask with nothing new behind an answer."""
    repaired = repair(history)
    return repaired if repaired and repaired[-1].role == "user" else repair([*repaired, ON])


@given(damaged())
def test_anthropic_accepts_it(history):
    wire = anthropic.to_wire(request(history), MODEL)
    json.dumps(wire, ensure_ascii=False).encode()
    roles = [entry["role"] for entry in wire]
    assert roles == [("user", "assistant")[place % 2] for place in range(len(wire))]
    assert roles[-1] == "user"
    seen: set[str] = set()
    asked: list[str] = []
    for entry in wire:
        kinds = [block["type"] for block in entry["content"]]
        assert kinds
        assert all(block["text"].strip() for block in entry["content"] if block["type"] == "text")
        assert [b["tool_use_id"] for b in entry["content"] if b["type"] == "tool_result"] == asked
        assert kinds[: len(asked)] == ["tool_result"] * len(asked)
        assert all(b["content"] for b in entry["content"] if b["type"] == "tool_result")
        assert entry["role"] == "assistant" or not {"tool_use", "thinking"} & set(kinds)
        assert kinds[-1] != "thinking"
        asked = [block["id"] for block in entry["content"] if block["type"] == "tool_use"]
        assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", call_id) for call_id in asked)
        assert len(asked) == len(set(asked))
        assert not seen & set(asked)
        seen |= set(asked)
    assert not asked


@given(damaged())
def test_openai_s_responses_accept_it(history):
    wire = openai_responses.to_wire(request(history), "p/other")
    json.dumps(wire, ensure_ascii=False).encode()
    assert wire[0].get("role") == "user"
    assert wire[-1].get("role") == "user" or wire[-1]["type"] == "function_call_output"
    open_calls: list[str] = []
    seen: set[str] = set()
    for item, after in zip(wire, [*wire[1:], None], strict=True):
        match item.get("type", "message"):
            case "function_call":
                assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", item["call_id"])
                assert isinstance(json.loads(item["arguments"]), dict)
                assert item["call_id"] not in seen
                seen.add(item["call_id"])
                open_calls.append(item["call_id"])
            case "function_call_output":
                open_calls.remove(item["call_id"])
            case "message":
                assert item["role"] == "assistant" or not open_calls
                assert item["content"]
                assert not isinstance(item["content"], str) or item["content"].strip()
            case _:
                assert after is not None
                assert after.get("role", "assistant") == "assistant"
                assert after.get("type") != "function_call_output"
    assert not open_calls


@given(damaged())
def test_chat_completions_accept_it(history):
    wire = openai_chat.to_wire("Be kind.", request(history), MODEL)
    json.dumps(wire, ensure_ascii=False).encode()
    assert [entry["role"] for entry in wire[:2]] == ["system", "user"]
    assert wire[-1]["role"] in ("user", "tool")
    open_calls: list[str] = []
    seen: set[str] = set()
    for entry in wire:
        if entry["role"] == "tool":
            assert entry["tool_call_id"] == open_calls.pop(0)
            assert entry["content"]
            continue
        assert not open_calls
        assert entry.get("content") or entry.get("tool_calls")
        open_calls = [call["id"] for call in entry.get("tool_calls", ())]
        assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", call_id) for call_id in open_calls)
        assert not seen & set(open_calls)
        assert len(open_calls) == len(set(open_calls))
        seen |= set(open_calls)
    assert not open_calls


@given(damaged())
def test_what_follows_does_not_change_what_was_sent(history):
    sent = request(history)
    longer = repair([*sent, Message("assistant", (Text("done"),), model=MODEL), ON])
    for to_wire in (anthropic.to_wire, openai_responses.to_wire, lambda m, n: openai_chat.to_wire("", m, n)):
        before = to_wire(sent, MODEL)
        assert to_wire(longer, MODEL)[: len(before)] == before
