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

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from bot.config.json_text import near

EXTRA_BODY = "extra_body"

Text = Annotated[str, Field(min_length=1, max_length=512)]
Texts = Annotated[dict[str, Text], Field(min_length=1, max_length=16)]
Share = Annotated[float, Field(ge=0, le=1)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Verbosity = Literal["low", "medium", "high"]
Detail = Literal["auto", "concise", "detailed"]


class _Params(BaseModel):
    """Parameters that may be sent; only those that are written are."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, defer_build=True)


class _Person(_Params):
    user_id: Text


class _Anthropic(_Params):
    inference_geo: Text = ""
    metadata: _Person = Field(default_factory=_Person.model_construct)
    service_tier: Literal["auto", "standard_only"] = "auto"
    speed: Literal["standard", "fast"] = "standard"
    stop_sequences: Annotated[list[Text], Field(min_length=1, max_length=16)] = []


class _Both(_Params):
    metadata: Texts = {}
    parallel_tool_calls: bool = True
    prompt_cache_retention: Literal["in_memory", "24h"] = "24h"
    safety_identifier: Text = ""
    service_tier: Literal["auto", "default", "flex", "scale", "priority", "fast"] = "auto"
    top_p: Share = 1


class _Reasoning(_Params):
    summary: Detail


class _Wording(_Params):
    verbosity: Verbosity


class _OpenAI(_Both):
    reasoning: _Reasoning = Field(default_factory=_Reasoning.model_construct)
    text: _Wording = Field(default_factory=_Wording.model_construct)


class _Compatible(_Both):
    chat_template_kwargs: dict[str, JsonValue] = {}
    frequency_penalty: Penalty = 0
    min_p: Share = 0
    presence_penalty: Penalty = 0
    repetition_penalty: Annotated[float, Field(ge=0, le=10)] = 1
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] = 0
    stop: Annotated[list[Text], Field(min_length=1, max_length=4)] = []
    top_k: Annotated[int, Field(ge=-1, le=1_000_000)] = -1
    verbosity: Verbosity = "medium"
    extra_body: dict[str, JsonValue] = {}


KINDS: Mapping[str, type[_Params]] = {
    "anthropic": _Anthropic,
    "openai": _OpenAI,
    "openai-compatible": _Compatible,
}
KNOWN: Mapping[str, frozenset[str]] = {kind: frozenset(model.model_fields) for kind, model in KINDS.items()}
"""The names that each kind of provider knows."""

DEARER: Mapping[str, frozenset[str]] = {
    "inference_geo": frozenset({"us"}),
    "service_tier": frozenset({"scale", "priority", "fast"}),
    "speed": frozenset({"fast"}),
}
"""Values that raise prices."""

CONVERSATION = "the bot sends the conversation itself and stores nothing at the provider"
OWN: Mapping[str, str] = {
    "model": "use `model`",
    **dict.fromkeys(("messages", "input", "instructions", "system", "prompt", "conversation"), CONVERSATION),
    **dict.fromkeys(("previous_response_id", "store", "background"), CONVERSATION),
    **dict.fromkeys(("truncation", "context_management"), "use `compaction`"),
    **dict.fromkeys(("tools", "functions"), "use `tools` and `mcp_servers`"),
    "mcp_servers": "use `mcp_servers` at the top",
    "tool_choice": "the bot chooses it for each call",
    **dict.fromkeys(("stream", "stream_options"), "the bot always streams"),
    **dict.fromkeys(
        ("max_tokens", "max_output_tokens", "max_completion_tokens"), "use `max_tokens` at the top"
    ),
    "temperature": "use `temperature` at the top",
    **dict.fromkeys(("thinking", "output_config", "reasoning_effort"), "use `reasoning` beside `params`"),
    "response_format": "the bot sets it for answers with a schema",
    **dict.fromkeys(("include", "cache_control", "prompt_cache_options"), "the bot sets it"),
    "prompt_cache_key": "the bot sets it for each thread",
    **dict.fromkeys(("n", "best_of"), "the bot takes one answer"),
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
    yield from _form_faults(path, kind, params)
    for name, value in params.items():
        place = f"{path}.{_plain(name)}"
        if isinstance(value, str) and value in DEARER.get(name, ()) and not priced:
            yield (
                f"{place}: {value} costs more than the price list says; set it in models.NAME.params of one model, "
                "and give the price of that model in prices"
            )
        elif name == EXTRA_BODY and name in known and isinstance(value, dict):
            for inner in value:
                fault = "is known; put it into params itself" if inner in known else _own_fault(inner)
                if fault:
                    yield f"{place}.{_plain(inner)}: {fault}"


def _form_faults(path: str, kind: str, params: Mapping[str, JsonValue]) -> Iterator[str]:
    """Yield a fault for each parameter that is not known, or whose value has another form."""
    try:
        KINDS[kind].model_validate(params)
    except ValidationError as error:
        for detail in error.errors(include_url=False, include_input=False, include_context=False):
            first, *rest = (str(step) for step in detail["loc"])
            words = re.sub(r"^\w+ should ", "must ", detail["msg"])
            if detail["type"] == "extra_forbidden":
                words = "is not known here" if rest else _own_fault(first) or _unknown(first, kind)
            yield f"{'.'.join([path, *map(_plain, (first, *rest))])}: {words}"


def _plain(name: str) -> str:
    return ascii(name[:60])[1:-1]


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


def _own_fault(name: str) -> str:
    return f"is not a parameter to set here: {OWN[name]}" if name in OWN else ""


def _unknown(name: str, kind: str) -> str:
    if kind == "anthropic" and name in REFUSED:
        return REFUSED[name]
    hint = near(name, sorted(KNOWN[kind]))
    other = f"; {EXTRA_BODY} takes what only this server knows" if EXTRA_BODY in KNOWN[kind] else ""
    return f"unknown parameter{hint and f'; {hint}'}{other}"
