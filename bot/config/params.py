"""The request parameters that `params` in settings.json may hold, by kind of provider; pure.

A name that is not listed is a fault. For OpenAI-compatible servers, which differ, `extra_body` takes any others
unchecked. Parameters that the bot sets itself are refused everywhere, with the setting to use.

| a parameter                               | is                                                             |
|-------------------------------------------|----------------------------------------------------------------|
| listed, with a value in its range         | sent with each request                                         |
| listed, and the value makes calls dearer  | accepted only for a model whose own price is in `prices`       |
| set by the bot                            | a fault that names the setting                                 |
| any other                                 | a fault that names the nearest one; or in `extra_body`, sent   |

Sources: the request types of the SDKs (anthropic 2.12, openai 3.54) and the servers' own pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from bot.config.json_text import near

EXTRA_BODY = "extra_body"


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter: ``fits`` decides on a value, ``words`` say what it must be. ``dearer`` values raise prices."""

    words: str
    fits: Callable[[JsonValue], bool]
    dearer: frozenset[str] = frozenset()


def _one_of(*values: str, dearer: str = "") -> Param:
    known = (*values, *dearer.split())
    return Param(f"one of {', '.join(known)}", known.__contains__, frozenset(dearer.split()))


def _number(least: float, most: float) -> Param:
    def fits(value: JsonValue) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most

    return Param(f"a number from {least:g} to {most:g}", fits)


def _whole(least: int, most: int) -> Param:
    def fits(value: JsonValue) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most

    return Param(f"a whole number from {least} to {most}", fits)


def _text(value: JsonValue) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 512


def _texts(most: int) -> Param:
    def fits(value: JsonValue) -> bool:
        return isinstance(value, list) and 0 < len(value) <= most and all(map(_text, value))

    return Param(f"a list of 1 to {most} texts", fits)


def _table(words: str, **fields: Param) -> Param:
    """Return a parameter that is an object with some of these fields; without any, each field is a text."""

    def fits(value: JsonValue) -> bool:
        if not isinstance(value, dict) or not value:
            return False
        if not fields:
            return len(value) <= 16 and all(map(_text, value.values()))
        return all(name in fields and fields[name].fits(inner) for name, inner in value.items())

    return Param(words, fits)


BOOLEAN = Param("true or false", lambda value: isinstance(value, bool))
TEXT = Param("a text of up to 512 characters", _text)
OBJECT = Param("an object", lambda value: isinstance(value, dict))
VERBOSITY = _one_of("low", "medium", "high")
METADATA = _table("an object of up to 16 texts")

OPENAI: Mapping[str, Param] = {
    "metadata": METADATA,
    "parallel_tool_calls": BOOLEAN,
    "prompt_cache_retention": _one_of("in_memory", "24h"),
    "safety_identifier": TEXT,
    "service_tier": _one_of("auto", "default", "flex", dearer="scale priority fast"),
    "top_p": _number(0, 1),
}

KNOWN: Mapping[str, Mapping[str, Param]] = {
    "anthropic": {
        "inference_geo": Param("a text, such as us or global", _text, frozenset({"us"})),
        "metadata": _table('an object {"user_id": text}', user_id=TEXT),
        "service_tier": _one_of("auto", "standard_only"),
        "speed": _one_of("standard", dearer="fast"),
        "stop_sequences": _texts(16),
    },
    "openai": {
        **OPENAI,
        "reasoning": _table(
            'an object {"summary": auto, concise or detailed}', summary=_one_of("auto", "concise", "detailed")
        ),
        "text": _table('an object {"verbosity": low, medium or high}', verbosity=VERBOSITY),
    },
    "openai-compatible": {
        **OPENAI,
        "chat_template_kwargs": OBJECT,
        "frequency_penalty": _number(-2, 2),
        "min_p": _number(0, 1),
        "presence_penalty": _number(-2, 2),
        "repetition_penalty": _number(0, 10),
        "seed": _whole(-(2**63), 2**63 - 1),
        "stop": _texts(4),
        "top_k": _whole(-1, 1_000_000),
        "verbosity": VERBOSITY,
        EXTRA_BODY: OBJECT,
    },
}
"""By kind of provider, then by name."""

ONE_ANSWER = "the bot takes one answer"
CONVERSATION = "the bot sends the conversation itself and stores nothing at the provider"
OWN: Mapping[str, str] = {
    "model": "use `model`",
    "messages": CONVERSATION,
    "input": CONVERSATION,
    "instructions": CONVERSATION,
    "system": CONVERSATION,
    "prompt": CONVERSATION,
    "conversation": CONVERSATION,
    "previous_response_id": CONVERSATION,
    "store": CONVERSATION,
    "background": CONVERSATION,
    "truncation": "use `compaction`",
    "context_management": "use `compaction`",
    "tools": "use `tools` and `mcp_servers`",
    "functions": "use `tools` and `mcp_servers`",
    "mcp_servers": "use `mcp_servers` at the top",
    "tool_choice": "the bot chooses it for each call",
    "stream": "the bot always streams",
    "stream_options": "the bot always streams",
    "max_tokens": "use `max_tokens` at the top",
    "max_output_tokens": "use `max_tokens` at the top",
    "max_completion_tokens": "use `max_tokens` at the top",
    "temperature": "use `temperature` at the top",
    "thinking": "use `reasoning` beside `params`",
    "output_config": "use `reasoning` beside `params`",
    "reasoning_effort": "use `reasoning` beside `params`",
    "response_format": "the bot sets it for answers with a schema",
    "include": "the bot sets it",
    "cache_control": "the bot sets it",
    "prompt_cache_key": "the bot sets it for each thread",
    "prompt_cache_options": "the bot sets it",
    "n": ONE_ANSWER,
    "best_of": ONE_ANSWER,
}
"""Parameters of ours, and what to use for them."""

REFUSED: Mapping[str, str] = {
    "top_p": "Anthropic refuses it since version 2026-10-21 of its API",
    "top_k": "Anthropic refuses it since version 2026-10-21 of its API",
}


FORMS: Mapping[str, Sequence[str]] = {
    "max_tokens": ("max_tokens", "max_completion_tokens"),
    "system": ("system", "developer", "user"),
}
"""The forms of parts of a request; any other part is ``sent`` or left out, ``none``."""

ALWAYS = frozenset({"model", "messages", "input", "max_output_tokens", "max_completion_tokens"})
"""What no request can do without: a limit of the answer bounds what it can cost."""


def form_fault(forms: Mapping[str, str]) -> str:
    """Return why a request cannot have these forms, or a blank."""
    for part, form in forms.items():
        takes = FORMS.get(part, ("sent", "none"))
        if part in ALWAYS or form not in takes:
            return f"{part} is always sent" if part in ALWAYS else f"{part} must be one of {', '.join(takes)}"
    return ""


def param_faults(path: str, kind: str, params: Mapping[str, JsonValue], *, priced: bool) -> Iterator[str]:
    """Yield a fault for each parameter that cannot be sent to a provider of this *kind*.

    *path* is the place in the settings, and *priced* tells whether the model's own price is known there.
    """
    known = KNOWN[kind]
    for name, value in params.items():
        place = f"{path}.{ascii(name[:60])[1:-1]}"
        if fault := _own_fault(name, known):
            yield f"{place}: {fault}"
        elif name not in known:
            yield f"{place}: {_unknown(name, kind)}"
        elif not known[name].fits(value):
            yield f"{place}: must be {known[name].words}"
        elif isinstance(value, str) and value in known[name].dearer and not priced:
            yield (
                f"{place}: {value} costs more than the price list says; set it in models.NAME.params of one model, "
                "and give the price of that model in prices"
            )
        elif name == EXTRA_BODY and isinstance(value, dict):
            for inner in value:
                fault = "is known; put it into params itself" if inner in known else _own_fault(inner, {})
                if fault:
                    yield f"{place}.{ascii(inner[:60])[1:-1]}: {fault}"


def merge(*tables: Mapping[str, object]) -> dict[str, object]:
    """Return the parameters of all *tables* as they are sent; later ones win, and objects are merged."""
    merged: dict[str, object] = {}
    for table in tables:
        flat = {name: value for name, value in table.items() if name != EXTRA_BODY}
        extra = table.get(EXTRA_BODY)
        for name, value in {**flat, **(extra if isinstance(extra, dict) else {})}.items():
            old = merged.get(name)
            merged[name] = {**old, **value} if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def _own_fault(name: str, known: Mapping[str, Param]) -> str:
    return "" if name in known or name not in OWN else f"is not a parameter to set here: {OWN[name]}"


def _unknown(name: str, kind: str) -> str:
    if kind == "anthropic" and name in REFUSED:
        return REFUSED[name]
    hint = near(name, [*KNOWN[kind]])
    other = f"; {EXTRA_BODY} takes what only this server knows" if EXTRA_BODY in KNOWN[kind] else ""
    return f"unknown parameter{hint and f'; {hint}'}{other}"
