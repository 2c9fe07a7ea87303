"""What a server's refusal means: too long, or a part of the request that it does not take; pure.

Servers say the same in many words, so a refusal is recognised by what it means. docs/servers.md has what each of them
says, with its source; the tests try all of that here and over the wire.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from bot.config.params import KNOWN
from bot.ports.errors import Refusal

LEAST_WINDOW, MOST_WINDOW = 256, 100_000_000
"""Tokens: a number outside is not the size of a window."""


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.IGNORECASE | re.DOTALL)


_OVER = r"(?:too (?:long|large|many|big)|exceed\w*|longer than|overflow\w*|surpass\w*|(?:n'?t|not) fit)"
_MORE = (
    rf"(?:{_OVER}|(?:greater|larger|more|higher) than|above|over|out of range|must (?:be|have) (?:<|less))"
)
_SIZE = (
    r"(?:tokens?|context|window|max_model_len|session_len|(?:prompt|input|message|sequence) (?:length|size))"
)

_SURE = _any(
    r"maximum (?:context|prompt|model) length",
    r"exceed context limit",
    r"exceeds? the context window",
    r"context.?window.?exceeded",
    r"reduce the (?:length|size) of (?:the |your )?(?:messages|prompt|input|conversation)",
    r"(?:greater|longer) than the context length",
    r"exceed max message tokens",
    r"input token count is \d+ but",
    r"range of input length should be",
    r"keep the first \d+ tokens when context",
    r"reached context length of",
    r"but the configured context size is|context length is only",
    r"requested \d+ tokens, max",
    r"inputs?`? tokens \+ `?max_new_tokens`? must be",
    r"less than \d+ tokens\. given",
    r"(?:输入|上下文|提示|内容|消息|对话|tokens?).{0,20}(?:超(?:过|出|长)|过长|太长)",
    r"^error code: 400$",  # Cerebras: no body at all
)
"""Words that mean too long, whatever else is said."""

_LENGTH = _any(
    rf"\b(?:context|prompts?|inputs?(?! should)|messages?|conversation|history|sequences?)\b.{{0,60}}?\b{_OVER}",
    rf"\b{_SIZE}\b.{{0,80}}?\b{_MORE}",
    rf"\b{_OVER}.{{0,60}}?\b{_SIZE}\b",
)
"""Words that mean too long where they are about the conversation."""

_OTHER_LENGTH = _any(
    r"per (?:second|min|minute|hour|day|week|month)\b|\b[tr]p[mdh]\b|rate.?limit|quota|throttl|please wait",
    r"maximum tokens you requested|too many requests|concurren|credit|budget|balance|time.?out|timed out",
    r"(?:image|picture|photo|file|audio|video|pdf|attachment)s?\b.{0,40}?\b(?:too|exceed\w*|larger|over|limit)",
    r"too many (?:image|file|tool)|\b(?:mb|megabytes|pixels?|dimensions?)\b",
    r"call_?id|\bnames?\b|\.(?:id|url)\b|stop.?sequence|metadata|schema|propert(?:y|ies)|nest(?:ed|ing)|logprobs",
    r"max_(?:new_|completion_|output_)?tokens\b.{0,40}?\b(?:too|exceed\w*|greater|larger|must|should|at most|above)",
)
"""What else can be too much: the rate, the money, a picture, a name, the room for the answer."""


def is_too_long(text: str, codes: frozenset[str] = frozenset()) -> bool:
    """Return whether an error's *text* or machine-readable *codes* say that the conversation is too long."""
    said = " ".join([text, *(code.replace("_", " ") for code in codes)])
    return bool(_SURE.search(text) or (_LENGTH.search(said) and not _OTHER_LENGTH.search(said)))


_NUMBER = r"(?<![\w-])(\d[\d,_]*\d)(?:[ -]?(k)\b)?"
_BEFORE = r"(?:\b(?:context|window|limit|max\w*(?! output)|up to|only|exceed\w*)\b|最大)"
_WINDOWS = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"(?:[<>]=? |less than |range [^\[]{{0,40}}\[\d+, ?){_NUMBER}",
        rf"{_BEFORE}(?:(?! by |\(2013\))[^\d\n]){{0,40}}?{_NUMBER}",
        rf"{_NUMBER} (?:tokens? )?(?:max\w*|limit|context)",
    )
]
"""Where an error names the size of a window, the surest first. 2013 is the number of the error at MiniMax."""

_TOKENS = re.compile(r"\d tokens", re.IGNORECASE)
_NO_TOKENS = re.compile(r"\b(?:characters?|bytes?|strings?|arrays?|message size)\b", re.IGNORECASE)
"""Sizes in another unit: Moonshot's limit of the "message size" is in bytes. vLLM says both."""


def window_of(text: str, body: object) -> int | None:
    """Return the window in tokens that an error about the length names, in its fields or its *text*, or None."""
    counts = [value for name, value in _fields(body) if name == "n_ctx" and isinstance(value, int)]
    if not counts and (_TOKENS.search(text) or not _NO_TOKENS.search(text)):
        found = next((match for pattern in _WINDOWS if (match := pattern.search(text))), None)
        if found:
            counts = [int(re.sub(r"\D", "", found[1])) * (1000 if found[2] else 1)]
    return next((count for count in counts if LEAST_WINDOW <= count <= MOST_WINDOW), None)


_VERBS = r"(?:support|accept|allow|take|recogni[sz]e|permit|enable|implement|be (?:used|set|specified))"
_REFUSED = (
    r"(?:unsupported|no endpoints found that support"
    r"|not (?:\w+ )?(?:supported|permitted|allowed|accepted|recogni[sz]ed|available|enabled)"
    rf"|(?:does|do|is|are|can|could)(?:n'?t| ?not) (?:\w+ )?{_VERBS}\w*"
    r"|unrecogni[sz]ed|unknown|unexpected|deprecated|disallowed"
    r"|extra[_ ](?:forbidden|inputs?|fields?|param\w*|propert\w*)"
    r"|invalid (?:param\w*|argument|field|propert\w*|temperature)"
    r"|only [^.]{0,40}(?:allowed|supported|accepted))"
)
_PLAIN = (
    *("max_tokens", "max_completion_tokens", "max_output_tokens", "temperature", "stream_options"),
    *("parallel_tool_calls", "tool_choice", "response_format", "cache_control", "prompt_cache_key"),
    *("output_config", "include_obfuscation", "strict"),
)
"""Names that mean a parameter wherever they stand."""

_WORDS = ("store", "include", "text", "stream", "stop", "metadata", "seed")
"""Names that are common words too, so they count only where they are quoted or named as a parameter."""

_NAMES = sorted({*_PLAIN, *KNOWN["openai-compatible"], *KNOWN["anthropic"]} - {*_WORDS})
_NAME = rf"\b(?:{'|'.join(_NAMES)})\b"
_QUOTED = (
    r"(?:['\"`/\[]|supplied: |(?:parameter|argument|field|property)(?:\(s\)|s)?:? )"
    rf"(?:{'|'.join(_WORDS)})(?![\w.\[])"
)
_NAMED = re.compile(
    rf"{_REFUSED}.{{0,60}}?(?P<after>{_NAME}|{_QUOTED})"
    rf"|(?P<before>{_NAME}|{_QUOTED})[^.\n]{{0,80}}?{_REFUSED}"
    r"|(?:argument supplied: |keyword argument ['\"]|unknown field \W|loc\W{2,4}body\W{2,5})"
    r"(?P<any>[a-z_]+)(?![\w.\[])"
    r"|(?P<range>\b(?:temperature|top_p)\b).{0,40}?\b(?:must|should) be",
    re.IGNORECASE | re.DOTALL,
)
_ASKS_FOR = re.compile(rf"(?:use|set|specify)\b[^.]{{0,40}}max_completion_tokens|{_REFUSED}", re.IGNORECASE)
_ROLE = r"\W{0,3}(?:system|developer)\W{0,3}"
_SYSTEM = _any(
    rf"role\b.{{0,30}}?{_REFUSED}{_ROLE}",
    rf"{_ROLE}\s*(?:roles?|messages?|prompts?|instructions?)\W{{0,3}}\s*(?:is |are )?{_REFUSED}",
    rf"roles?:? {_ROLE}\s*(?:is |are )?{_REFUSED}",
    rf"{_REFUSED} (?:the |a )?{_ROLE}\s*(?:roles?|messages?|prompts?|instructions?)",
    rf"(?:unexpected|unknown|invalid|unsupported)[\w .]{{0,40}}(?:role|variant):?{_ROLE}",
    r"(?:system|developer)['\"]? is not one of|invalid value: '(?:system|developer)'",
    r"only user\b.{0,40}\broles? are supported",
    r"conversation roles must alternate",
)
"""Refusals of the role that carries the instructions; the last two are those of chat templates."""

_DEVELOPER = re.compile(r"(?:use|instead|try)\b[^.]{0,60}developer|developer\W{0,3}\s*instead", re.IGNORECASE)
_NO_STREAM = _any(rf"\bstreaming\b.{{0,20}}?{_REFUSED}", rf"{_REFUSED} (?:\w+ )?streaming\b")
_OTHERS = {
    "max_tokens": Refusal("max_tokens", "max_completion_tokens"),
    "max_completion_tokens": Refusal("max_tokens", "max_tokens"),
    "max_output_tokens": None,  # Without it, no limit would bound what an answer costs.
    "include_obfuscation": Refusal("stream_options"),
}
"""What to send in place of a part that is not just left out."""


def refusal_of(text: str, body: object = None) -> Refusal | None:
    """Return the part of the request that an error refuses, by its *text* and the fields of its *body*, or None."""
    if _SYSTEM.search(text):
        return Refusal("system", "developer" if _DEVELOPER.search(text) else "user")
    if _NO_STREAM.search(text):
        return Refusal("stream")
    part = _named(text) or _param(text, body)
    if part in ("model", "messages", "input", "tools"):
        return None
    if part != "max_completion_tokens" and {"max_tokens", "max_completion_tokens"} <= {
        *re.findall(r"\w+", text)
    }:
        return _OTHERS["max_tokens"] if _ASKS_FOR.search(text) else None
    return _OTHERS.get(part, Refusal(part)) if part else None


def _named(text: str) -> str:
    """Return the parameter that a text says is refused, or a blank."""
    text = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", text)  # xAI says "presencePenalty"
    found = _NAMED.search(text.replace("cache control", "cache_control"))  # OpenRouter
    return re.split(r"\W", next(filter(None, found.groups())).lower())[-1] if found else ""


_CODES = frozenset({"unsupported_parameter", "unsupported_value", "unknown_parameter"})


def _param(text: str, body: object) -> str:
    """Return the parameter that the fields of an error refuse, or a blank."""
    fields = dict(_fields(body))
    refused = str(fields.get("code")) in _CODES or re.search(_REFUSED, text, re.IGNORECASE)
    param = fields.get("param")
    return param if refused and isinstance(param, str) and re.fullmatch("[a-z_]+", param) else ""


def _fields(body: object) -> Iterator[tuple[str, object]]:
    """Yield the fields of an error's body, those of the error inside last."""
    match body:
        case [first, *_]:
            yield from _fields(first)
        case Mapping():
            yield from ((str(name), value) for name, value in body.items())
            yield from _fields(body.get("error"))
