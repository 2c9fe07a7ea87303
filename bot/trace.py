"""What people and models wrote, made harmless for a terminal."""

from __future__ import annotations

import unicodedata

SHOWN = 300
"""Characters of a text in a story."""

_KEPT = frozenset("\n\t\u200c\u200d")
"""Line breaks, and what joins letters and the parts of an emoji: not printable by itself, but harmless."""


def plain(text: str, limit: int | None = None) -> str:
    """Return *text* for a terminal: no control characters but newlines, and at most *limit* characters.

    What would move the cursor, change colours or turn the reading direction around becomes a replacement character.
    """
    cut = text if limit is None else text[:limit]
    safe = cut if cut.isprintable() else "".join(map(_harmless, cut))
    return safe if limit is None or len(text) <= limit else f"{safe}… ({len(text)} characters)"


def flat(text: str) -> str:
    """Return *text* for a terminal as one line, however long."""
    return " ".join(plain(text).split())


def line(text: str, limit: int = 80) -> str:
    """Return the beginning of *text* as one line. Mask secrets first: half of one would not be known any more."""
    words = flat(text[: 4 * limit])
    return words if len(words) <= limit and len(text) <= 4 * limit else f"{words[:limit].rstrip()}…"


def _harmless(c: str) -> str:
    if c.isprintable() or c in _KEPT:
        return c
    match unicodedata.category(c):
        case "Zs":
            return " "
        case "Zl" | "Zp":
            return "\n"
        case _:
            return "�"
