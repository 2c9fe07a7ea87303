"""Characters that are drawn as nothing, from Unicode's data: one place that knows them, for whoever shows a text.

A character is invisible if its category says so (controls, formats, surrogates, separators of lines and paragraphs),
if it has the property Default_Ignorable_Code_Point (fillers, variation selectors, tags, what is reserved for more of
them), or if it is named a blank. The category comes from `unicodedata`, which knows neither the property nor which
letters are blank: those are the two tables here. A test holds them against UTS #46, as the package `idna` carries it,
and against the names. What is not assigned yet is not invisible: newer emoji are among it, and it is drawn as a box.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

DEFAULT_IGNORABLE = (
    "\u00ad\u034f\u061c\u115f-\u1160\u17b4-\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""https://www.unicode.org/Public/UCD/latest/ucd/DerivedCoreProperties.txt, as the inside of a character class."""

BLANK = "\u2800\U00013441\U00013442\U00016fe4\U0001d159"
"""What is named a blank, a filler or a null notehead, has a category of something that is drawn, and is not."""

_NOTHING = re.compile(f"[{DEFAULT_IGNORABLE}{BLANK}]")
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})

_SELECTORS = "\ufe0e\ufe0f"
_JOINERS = "\u200c\u200d"


def is_invisible(character: str) -> bool:
    """Return whether nothing is drawn for it, or only something else is moved."""
    return unicodedata.category(character) in _UNSEEN or _NOTHING.match(character) is not None


def rewritten(text: str, write: Callable[[str], str], kept: str = "") -> str:
    """Return *text* with whatever is not plainly seen put through *write*, but for what is *kept*.

    That is what is invisible, blanks other than a space, what is private, and what is not assigned.
    """
    if text.isprintable() and not _NOTHING.search(text):
        return text
    return "".join(c if c in kept or (c.isprintable() and not _NOTHING.match(c)) else write(c) for c in text)


def escaped(text: str, kept: str = "\n\t") -> str:
    r"""Return *text* with whatever is not plainly seen written as ``\u{200b}``: what is shown is all there is.

    The selectors and joiners of emoji are no exception, as ``rm ❤`` and the same with a selector are two commands.
    """
    return rewritten(text, lambda character: f"\\u{{{ord(character):x}}}", kept)


def prose(text: str, write: Callable[[str], str], kept: str = "\n\t") -> str:
    """Return *text* with what is invisible put through *write*, as text is shown that people chat in.

    One selector and one joiner after something visible stay: emoji and the words of some languages need them.
    """
    if text.isprintable() and not _NOTHING.search(text):
        return text
    shown, before = list[str](), ""
    for character in text:
        joins = character in _SELECTORS and before == "visible"
        joins = joins or (character in _JOINERS and before in ("visible", "selected"))
        if joins:
            before = "selected" if character in _SELECTORS else "joined"
        elif character not in kept and is_invisible(character):
            character, before = write(character), ""  # noqa: PLW2901 - what is shown instead of it
        else:
            before = "" if character.isspace() else "visible"
        shown.append(character)
    return "".join(shown)
