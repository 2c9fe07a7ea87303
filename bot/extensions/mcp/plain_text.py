"""Texts of a server that stand in a prompt: without invisible characters, and without tags that play a role."""

from __future__ import annotations

import re
from collections.abc import Callable

from bot.guards.redaction import safe_prefix
from threads.invisible_text import prose
from threads.store.checksummed_lines import scrub

_ROLE = re.compile(
    r"<\s*/?\s*(?:outside|system|assistant|user|human|developer|important|instructions?|secret|antml:\w+|"
    r"tool_?\w*|function_?\w*|invoke)\b[^<>]{0,200}>?",
    re.IGNORECASE,
)


def clean(text: str) -> str:
    """Return *text* on one line, without invisible characters and without tags that would play a role."""
    visible = _visible(scrub(text))
    while (without := _ROLE.sub("", visible)) != visible:  # what is left may have become a tag
        visible = without
    return " ".join(visible.split())


def is_plain(text: str) -> bool:
    """Return whether a text that must stay to the letter can stand in a prompt."""
    return not _ROLE.search(text) and _visible(scrub(text)) == text


def _visible(text: str) -> str:
    return prose(text, lambda _: "", kept="\n\r\t")


def truncate(text: str, limit: int, mask: Callable[[str], str]) -> str:
    """Shorten *text* to *limit* characters, but not inside a secret that *mask* knows."""
    return text if len(text) <= limit else f"{safe_prefix(text, limit - 1, mask)}…"
