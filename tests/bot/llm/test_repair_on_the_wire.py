"""A repaired history on each provider's wire, held to all the rules that a provider answers 400 for."""

from __future__ import annotations

import json

from hypothesis import given

from bot.agent.prompt.repair import repair
from bot.llm.adapters import anthropic, openai_chat, openai_responses
from tests.bot.agent.test_repair import MODEL, damaged
from tests.bot.llm.test_handoff import check_anthropic, check_chat, check_responses
from threads.model import Message, Text

ON = Message("user", (Text("go on"),), source="m2")


def request(history: list[Message]) -> list[Message]:
    """Do as the agent does after a crash: repair, and never ask with nothing new behind an answer."""
    repaired = repair(history)
    return repaired if repaired and repaired[-1].role == "user" else repair([*repaired, ON])


@given(damaged())
def test_every_provider_accepts_it(history):
    sent = request(history)
    claude = anthropic.to_wire(sent, MODEL)
    responses, chat = (
        openai_responses.to_wire(sent, "p/third"),
        openai_chat.to_wire("Be brief.", sent, "p/third"),
    )
    json.dumps([claude, responses, chat], ensure_ascii=False).encode()
    check_anthropic(claude, [{"type": "thinking", "thinking": "hm", "signature": "s"}])
    check_responses(responses)
    check_chat(chat)


@given(damaged())
def test_what_follows_does_not_change_what_was_sent(history):
    sent = request(history)
    longer = repair([*sent, Message("assistant", (Text("done"),), model=MODEL), ON])
    for to_wire in (anthropic.to_wire, openai_responses.to_wire, lambda m, n: openai_chat.to_wire("", m, n)):
        before = to_wire(sent, MODEL)
        assert to_wire(longer, MODEL)[: len(before)] == before
