"""Replaces secrets in text by a mark, where text comes from a model or a tool, and where it leaves.

`mask` knows the shapes of common tokens, `Masker` also the secrets of this process. Both take linear time. Masking
twice changes nothing: a shape ends with its word, so none begins at a mark.
"""

from __future__ import annotations

import glob
import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from os.path import commonprefix
from urllib.parse import quote

MARK = "[masked]"
MIN_LITERAL = 8
"""Characters. A shorter literal would hide ordinary words."""

LOOKAHEAD = 10_000
"""Characters after a cut that may belong to a secret in it: more than a secret, or a line of one, has."""

MIN_LINE = 16
"""Characters of a line of a longer secret (such as a key file) that is a secret by itself."""

NAME = 64
"""Characters of a short text, such as an id or the name of a field: the same ones are masked again and again."""

MAX_LEARNED = 400
"""Secrets that are learned while the process runs, such as tokens of people; each costs time in every text."""

# In JSON a token may follow an escaped line break ("\nsk-…"), whose letter is not part of the word.
_START = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"
_VALUE = r"[^\s\"'`&#<>,;()\\{}]"
_NAME = r"(?:token|secret|password|passwd|api[_-]?key|access[_-]?key|ticket|signature)"

SHAPES: tuple[tuple[str, ...], ...] = (
    (
        r"()-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----|\Z)",
        "-----BEGIN ",
    ),
    (
        rf"(?i)(\bauthorization[\"']?\s{{0,8}}[:=]\s{{0,8}}[\"']?(?:bearer|basic|bot|token)\s{{1,8}}){_VALUE}+",
        "authorization",
    ),
    (
        rf"(?i)(\b(?:authorization|x-api-key)[\"']?\s{{0,8}}[:=]\s{{0,8}}[\"']?){_VALUE}{{8,}}",
        "authorization",
        "x-api-key",
    ),
    (r"(?i)(\bbearer\s{1,8})[A-Za-z0-9._~+/=-]{16,}", "bearer"),
    (rf"(?i)([?&][\w.-]{{0,40}}(?:{_NAME}|key|sig|code)=){_VALUE}+", "?", "&"),
    (
        rf"(?i)({_NAME}[\"']?\s{{0,8}}[:=]\s{{0,8}}[\"']?)(?=[\w.+/=-]{{0,80}}\d)[A-Za-z0-9_.+/=-]{{20,}}",
        *("token", "secret", "passw", "api", "access", "ticket", "signature"),
    ),
    (r"(://[^\s/:@]*:)[^\s/@]+(?=@)", "://"),
    (rf"(hooks\.slack\.com/[a-z]{{1,20}}/){_VALUE}+", "hooks.slack.com/"),
    (r"(/api/webhooks/\d{1,25}/)[\w-]+", "/api/webhooks/"),
    (_START + r"()xox[a-z](?:\.xox[a-z])?-[A-Za-z0-9-]{3,}", "xox"),
    (_START + r"()xapp-[A-Za-z0-9-]{3,}", "xapp-"),
    (_START + r"()sk-(?=[\w-]{0,80}\d)[\w-]{8,}", "sk-"),
    (_START + r"()gh[a-z]_[A-Za-z0-9]{20,}", "gh"),
    (_START + r"()github_pat_\w{20,}", "github_pat_"),
    (_START + r"()A(?:KIA|SIA)[A-Z0-9]{16}[A-Za-z0-9]*", "AKIA", "ASIA"),
    (_START + r"()AIza[\w-]{35,}", "AIza"),
    (_START + r"()eyJ[\w-]{10,300}\.[\w-]{10,}\.[\w-]{5,}", "eyJ"),
    (_START + r"()[MNO][\w-]{22,30}\.[\w-]{6}\.[\w-]{27,}", "M", "N", "O"),
)
"""Regular expressions, each with every text that a match can begin with (lower case: in any case). Group 1 stays. In
order: PEM keys, headers, URL parameters, named values, URL passwords, webhooks, then the tokens of Slack, the model
providers, GitHub, AWS, Google, JWT and Discord."""


ANNOUNCES = re.compile(
    rf"(?i)(?:authorization|x-api-key|bearer|{_NAME})[\"']?\s{{0,8}}"
    r"(?:[:=]\s{0,8}[\"']?(?:(?:bearer|basic|bot|token)\s{1,8})?)?\Z"
)
"""Words that announce a secret as the next word."""


def mask(text: str) -> str:
    """Return *text* with everything that looks like a secret replaced by `MARK`."""
    return _masked_name(text) if len(text) <= NAME else _mask(text)


_BEGINNINGS = {each for _, *beginnings in SHAPES for each in beginnings}
_AS_THEY_ARE, _IN_ANY_CASE = (
    [each for each in _BEGINNINGS if each.islower() is lower] for lower in (False, True)
)


def _mask(text: str) -> str:
    lower = _lower(text)
    if not any(map(text.__contains__, _AS_THEY_ARE)) and not any(map(lower.__contains__, _IN_ANY_CASE)):
        return text  # most texts are short, and have none
    for shape, *beginnings in SHAPES:
        found = [(each, said) for each in beginnings if each in (said := lower if each.islower() else text)]
        if found:
            places = [at for each, said in found for at in _places(said, each)]
            if (masked := _masked(text, re.compile(shape), sorted(places))) != text:
                text, lower = masked, _lower(masked)
    return text


_masked_name = lru_cache(maxsize=1_000)(_mask)


def _places(text: str, start: str) -> Iterator[int]:
    """Yield the places of *start*: a search for plain text is far quicker than one for a pattern."""
    at = text.find(start)
    while at >= 0:
        yield at
        at = text.find(start, at + 1)


def _masked(text: str, shape: re.Pattern[str], places: Iterable[int]) -> str:
    parts, end = [], 0
    for at in places:
        if at >= end and (found := shape.match(text, at)):
            parts += [text[end:at], found[1], MARK]
            end = found.end()
    return "".join([*parts, text[end:]])


def _lower(text: str) -> str:
    """Return *text* in lower case, with its length: only one letter would become two."""
    return text.lower() if text.isascii() else text.replace("\u0130", "i").lower()


def secret_forms(literals: Iterable[str]) -> set[str]:
    """Return the forms that these secrets may have in a text, if they are long enough.

    They are whole, single lines, and without a scheme (``Bearer …``); as they are, in JSON, in Python's notation (in
    tracebacks), in an address, in the pattern of a standing permission.
    """
    return {form for literal in literals for form in _forms(literal) if len(form) >= MIN_LITERAL}


def _forms(literal: str) -> Iterator[str]:
    scheme, _, rest = literal.strip().partition(" ")
    lines = [line.strip() for line in literal.splitlines()] if "\n" in literal else []
    bare = [rest.strip()] if scheme.lower() in {"basic", "bearer", "bot", "token"} else []
    for part in (literal, *bare, *(line for line in lines if len(line) >= MIN_LINE)):
        written = {part}
        for _ in range(2):  # a tool that returns JSON makes JSON in JSON
            written |= {form for text in written for form in _written(text)}
        for text in written:
            yield text
            yield glob.escape(text)
        yield quote(part, safe="", errors="replace")


def _written(text: str) -> tuple[str, ...]:
    return json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], repr(text)[1:-1]


def safe_prefix(text: str, most: int, mask: Callable[[str], str]) -> str:
    """Return the first *most* characters of *text*, or fewer: the result never ends inside a secret.

    Cut a text with this before masking, because `mask` does not know half a secret. A text that is cut is masked too;
    a shorter one comes back as it is.
    """
    if len(text) <= most:
        return text
    return commonprefix([mask(text[:most]), mask(text[: most + LOOKAHEAD])])[:most]  # noqa: RUF071 - of texts


class Masker:
    """Masks these *literals*, and then everything that looks like a secret."""

    def __init__(self, literals: Iterable[str] = ()) -> None:
        self._given, self._learned = list(literals), deque[str](maxlen=MAX_LEARNED)
        self.generation = 0
        """Grows whenever something is learned: a text that was masked before may have to be masked again."""
        self._update()

    def learn(self, literals: Iterable[str]) -> None:
        """Mask these from now on too; only the last `MAX_LEARNED` of all that were learned count."""
        if new := [literal for literal in literals if literal not in self._learned]:
            self._learned.extend(new)
            self.generation += 1
            self._update()

    def _update(self) -> None:
        # The longest first: of a secret that begins with another one, the end must not stay.
        self._literals = known = sorted(secret_forms([*self._given, *self._learned]), key=len, reverse=True)
        encoded = [re.escape(form.encode("utf-8", "replace")) for form in known]
        self._in_bytes = re.compile(b"|".join(encoded)) if known else None
        self.longest = max((len(form.encode("utf-8", "replace")) for form in known), default=0)
        """Bytes of the longest form of a literal."""

    def __call__(self, text: str) -> str:
        return mask(self.own(text))

    def own(self, text: str) -> str:
        """Return *text* with the literals masked; what only looks like a secret stays."""
        for literal in self._literals:
            text = text.replace(literal, MARK)
        return text

    def contains_secret(self, data: bytes) -> bool:
        """Return whether *data* contains a literal; what only looks like a secret does not count."""
        return bool(self._in_bytes and self._in_bytes.search(data))
