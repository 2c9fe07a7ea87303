"""What people and models wrote, made harmless for a terminal."""

from __future__ import annotations

import re
import unicodedata

from threads.invisible_text import prose

SHOWN = 300
"""Characters of a text in a story."""

_BLANK = re.compile(r"[^\S\n\t]")


def plain(text: str, limit: int | None = None) -> str:
    """Return *text* for a terminal: no control characters but newlines, and at most *limit* characters.

    What cannot be seen, moves the cursor, changes colours or turns the reading direction around becomes a replacement
    character.
    """
    cut = text if limit is None else text[:limit]
    safe = _BLANK.sub(" ", prose(cut, _harmless))
    return safe if limit is None or len(text) <= limit else f"{safe}… ({len(text)} characters)"


def flat(text: str) -> str:
    """Return *text* for a terminal as one line, however long."""
    return " ".join(plain(text).split())


def line(text: str, limit: int = 80) -> str:
    """Return the beginning of *text* as one line. Mask secrets first: half of one would not be known any more."""
    words = flat(text[: 4 * limit])
    return words if len(words) <= limit and len(text) <= 4 * limit else f"{words[:limit].rstrip()}…"


def _harmless(character: str) -> str:
    return "\n" if unicodedata.category(character) in ("Zl", "Zp") else "�"
