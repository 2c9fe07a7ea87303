"""`params`: what may be sent to each kind of provider, and what a wrong one is told."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.config.load import load_bytes
from bot.config.params import KNOWN, OWN, merge, param_faults
from bot.ports.config_error import ConfigInvalid

GOOD = {
    "anthropic": {
        "inference_geo": "global",
        "metadata": {"user_id": "bot"},
        "service_tier": "standard_only",
        "speed": "standard",
        "stop_sequences": ["END"],
    },
    "openai": {
        "metadata": {"team": "a"},
        "parallel_tool_calls": False,
        "prompt_cache_retention": "24h",
        "safety_identifier": "x",
        "service_tier": "flex",
        "top_p": 0.5,
        "reasoning": {"summary": "auto"},
        "text": {"verbosity": "low"},
    },
    "openai-compatible": {
        "metadata": {"team": "a"},
        "parallel_tool_calls": True,
        "prompt_cache_retention": "in_memory",
        "safety_identifier": "x",
        "service_tier": "auto",
        "top_p": 1,
        "chat_template_kwargs": {"enable_thinking": False},
        "frequency_penalty": -2,
        "min_p": 0.05,
        "presence_penalty": 0.5,
        "repetition_penalty": 1.1,
        "seed": 7,
        "stop": ["END"],
        "top_k": -1,
        "verbosity": "high",
        "extra_body": {"mirostat": 2},
    },
}
BAD = [
    ("anthropic", "speed", "slow", "must be 'standard' or 'fast'"),
    ("anthropic", "metadata", {"user_id": "y", "user": "x"}, "is not known here"),
    ("anthropic", "stop_sequences", [], "must have at least 1 item"),
    ("anthropic", "top_p", 0.5, "Anthropic refuses it since version 2026-10-21 of its API"),
    ("anthropic", "sped", "fast", 'unknown parameter; the nearest known one is "speed"'),
    ("anthropic", "thinking", {"type": "adaptive"}, "use `reasoning` beside `params`"),
    ("anthropic", "max_tokens", 5, "use `max_tokens` at the top"),
    ("anthropic", "speed", "fast", "costs more than the price list says"),
    ("openai", "top_p", "0.5", "must be a valid number"),
    ("openai", "top_p", True, "must be a valid number"),
    ("openai", "top_p", 1.5, "must be less than or equal to 1"),
    ("openai", "parallel_tool_calls", 1, "must be a valid boolean"),
    ("openai", "text", {"verbosity": "long"}, "must be 'low', 'medium' or 'high'"),
    ("openai", "reasoning", {"summary": "auto", "effort": "high"}, "is not known here"),
    ("openai", "service_tier", "priority", "costs more than the price list says"),
    ("openai", "previous_response_id", "r", "the bot sends the conversation itself"),
    (
        "openai-compatible",
        "top_kk",
        5,
        'nearest known one is "top_k"; extra_body takes what only this server knows',
    ),
    ("openai-compatible", "top_k", 5.5, "must be a valid integer"),
    ("openai-compatible", "n", 2, "the bot takes one answer"),
    ("openai-compatible", "extra_body", {"messages": []}, "the bot sends the conversation itself"),
    ("openai-compatible", "extra_body", {"seed": 1}, "is known; put it into params itself"),
]


def faults_of(document: dict) -> list[str]:
    try:
        load_bytes(json.dumps(document).encode(), Path("settings.json"), environ={})
    except ConfigInvalid as error:
        return str(error).splitlines()[:-1]
    return []


@pytest.mark.parametrize("kind", GOOD)
def test_each_known_parameter_has_a_value_that_is_accepted(kind):
    assert GOOD[kind].keys() == KNOWN[kind]
    assert list(param_faults("params", kind, GOOD[kind], priced=False)) == []


@pytest.mark.parametrize(("kind", "name", "value", "words"), BAD)
def test_a_wrong_one_is_a_fault_with_its_path_and_what_to_do(kind, name, value, words):
    [fault] = param_faults("providers.x.params", kind, {name: value}, priced=False)
    assert fault.startswith(f"providers.x.params.{name}")
    assert words in fault


@pytest.mark.parametrize("kind", KNOWN)
def test_what_the_bot_sends_itself_is_refused_for_every_kind(kind):
    for name in OWN.keys() - KNOWN[kind]:
        assert len(list(param_faults("p", kind, {name: "x"}, priced=True))) == 1


@pytest.mark.needs("openai")
def test_a_dearer_value_needs_the_price_of_its_model():
    model = {"models": {"openai/gpt-x": {"params": {"service_tier": "priority"}}}}
    assert "give the price of that model in prices" in faults_of(model)[0]
    assert faults_of({**model, "prices": {"openai/gpt-x": {"input": 4, "output": 20}}}) == []
    elsewhere = {"providers": {"openai": {"params": {"service_tier": "priority"}}}}
    assert faults_of(elsewhere)[0].startswith("providers.openai.params.service_tier: priority costs more")


@pytest.mark.needs("openai")
def test_the_name_of_a_provider_decides_what_it_knows():
    params = {"top_k": 5}
    [fault] = faults_of({"models": {"anthropic/claude-x": {"params": params}}})
    assert fault.startswith("models.anthropic/claude-x.params.top_k: Anthropic refuses it")
    assert (
        faults_of({"providers": {"ollama": {"params": params}}, "models": {"ollama/x": {"params": params}}})
        == []
    )


def test_later_tables_win_objects_are_merged_and_the_extra_body_is_sent_as_it_is():
    provider = {"text": {"verbosity": "low"}, "top_p": 0.1, "extra_body": {"mirostat": 2, "think": {"a": 1}}}
    model = {"top_p": 0.2, "extra_body": {"think": {"b": 2}}}
    body = {"model": "m", "text": {"format": {}}, "max_tokens": 5}
    assert merge(merge(provider, model), body) == {
        "model": "m",
        "text": {"verbosity": "low", "format": {}},
        "max_tokens": 5,
        "top_p": 0.2,
        "mirostat": 2,
        "think": {"a": 1, "b": 2},
    }


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.sampled_from([*KNOWN]),
    st.dictionaries(st.sampled_from([*OWN, *KNOWN["openai-compatible"]]) | st.text(), JSON),
)
def test_whatever_is_written_there_is_sent_or_is_a_fault_of_one_line(kind, params):
    faults = list(param_faults("p", kind, params, priced=False))
    assert all(fault.startswith("p.") and len(fault.splitlines()) == 1 for fault in faults)
    sent = merge(params) if not faults else {}
    assert not sent.keys() & (OWN.keys() - KNOWN[kind])
