"""Finds secrets in text and puts a mark in their place; used only where text leaves, never on data that is kept.

`mask` knows the shapes of common tokens, `Masker` also the very secrets this process was given. Both take any
text in linear time. Masking twice changes nothing: a shape ends with the word it is in, so none begins at a mark.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

MARK = "[masked]"
MIN_LITERAL = 8
"""Characters. A shorter literal would hide ordinary words."""

# In JSON text a token may follow an escaped line break ("\nsk-…"), whose letter is no part of the word.
_START = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"
_VALUE = r"[^\s\"'`&#<>,;()\\{}]"
_NAME = r"(?:token|secret|password|passwd|api[_-]?key|access[_-]?key|ticket|signature)"

SHAPES: tuple[str, ...] = (
    r"()-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----|\Z)",
    rf"(?i)(\bauthorization[\"']?\s{{0,8}}[:=]\s{{0,8}}[\"']?(?:bearer|basic|bot|token)\s{{1,8}}){_VALUE}+",
    rf"(?i)(\b(?:authorization|x-api-key)[\"']?\s{{0,8}}[:=]\s{{0,8}}[\"']?){_VALUE}{{8,}}",
    r"(?i)(\bbearer\s{1,8})[A-Za-z0-9._~+/=-]{16,}",
    rf"(?i)([?&][\w.-]{{0,40}}(?:{_NAME}|key|sig|code)=){_VALUE}+",
    rf"(?i)({_NAME}[\"']?\s{{0,8}}[:=]\s{{0,8}}[\"']?)(?=[\w.+/=-]{{0,80}}\d)[A-Za-z0-9_.+/=-]{{20,}}",
    r"(://[^\s/:@]*:)[^\s/@]+(?=@)",
    rf"(hooks\.slack\.com/[a-z]{{1,20}}/){_VALUE}+",
    r"(/api/webhooks/\d{1,25}/)[\w-]+",
    _START + r"()xox[a-z](?:\.xox[a-z])?-[A-Za-z0-9-]{3,}",
    _START + r"()xapp-[A-Za-z0-9-]{3,}",
    _START + r"()sk-(?=[\w-]{0,80}\d)[\w-]{8,}",
    _START + r"()gh[a-z]_[A-Za-z0-9]{20,}",
    _START + r"()github_pat_\w{20,}",
    _START + r"()A(?:KIA|SIA)[A-Z0-9]{16}[A-Za-z0-9]*",
    _START + r"()AIza[\w-]{35,}",
    _START + r"()eyJ[\w-]{10,300}\.[\w-]{10,}\.[\w-]{5,}",
    _START + r"()[MNO][\w-]{22,30}\.[\w-]{6}\.[\w-]{27,}",
)
"""Regular expressions; what group 1 holds is kept. In order: PEM keys, headers, URL parameters, named values, URL
passwords, webhooks, then the tokens of Slack, the model providers, GitHub, AWS, Google, JWT and Discord."""


def mask(text: str) -> str:
    """Return *text* with everything that looks like a secret replaced by `MARK`."""
    for shape in SHAPES:
        text = re.sub(shape, rf"\g<1>{MARK}", text)
    return text


class Masker:
    """Masks these *literals* wherever they stand, and then everything that looks like a secret."""

    def __init__(self, literals: Iterable[str] = ()) -> None:
        known = {literal for literal in literals if len(literal) >= MIN_LITERAL}
        # The longest first: a secret that begins with another one must not leave its end behind.
        found = "|".join(re.escape(literal) for literal in sorted(known, key=len, reverse=True))
        self._literals = re.compile(found) if found else None

    def __call__(self, text: str) -> str:
        return mask(self._literals.sub(MARK, text) if self._literals else text)
