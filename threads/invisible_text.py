"""Invisible characters, from Unicode's data.

A character is invisible if its category says so (controls, formats, surrogates, line and paragraph separators), if it
has the property Default_Ignorable_Code_Point (fillers, variation selectors, tags and code points reserved for them),
or if its name says that it is a blank. The category comes from `unicodedata`, which has neither the property nor the
blanks: these are the two tables here. A test compares them with UTS #46, as the package `idna` has it, and with the
names. Unassigned characters are not invisible: they are drawn as a box, and newer emoji are among them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

DEFAULT_IGNORABLE = (
    "\u00ad\u034f\u061c\u115f-\u1160\u17b4-\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""From https://www.unicode.org/Public/UCD/latest/ucd/DerivedCoreProperties.txt, for a character class."""

BLANK = "\u2800\U00013441\U00013442\U00016fe4\U0001d159"
"""Characters named a blank, a filler or a null notehead, although their category is that of a visible one."""

_NOTHING = re.compile(f"[{DEFAULT_IGNORABLE}{BLANK}]")
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})

_SELECTORS = "\ufe0e\ufe0f"
_JOINERS = "\u200c\u200d"


def is_invisible(character: str) -> bool:
    """Return whether the character draws nothing, or only moves other characters."""
    return unicodedata.category(character) in _UNSEEN or _NOTHING.match(character) is not None


def rewritten(text: str, write: Callable[[str], str], kept: str = "") -> str:
    """Return *text* with every character that is not plainly visible replaced by what *write* returns for it.

    These are invisible characters, blanks other than a space, and private and unassigned characters. Those in *kept*
    stay.
    """
    if text.isprintable() and not _NOTHING.search(text):
        return text
    return "".join(c if c in kept or (c.isprintable() and not _NOTHING.match(c)) else write(c) for c in text)


def escaped(text: str, kept: str = "\n\t") -> str:
    r"""Return *text* with every character that is not plainly visible written as ``\u{200b}``.

    This includes the selectors and joiners of emoji: ``rm ❤`` with and without a selector are two commands.
    """
    return rewritten(text, lambda character: f"\\u{{{ord(character):x}}}", kept)


def prose(text: str, write: Callable[[str], str], kept: str = "\n\t") -> str:
    """Return chat text with invisible characters replaced by what *write* returns for them.

    One selector and one joiner after a visible character stay: emoji and some languages need them.
    """
    if text.isprintable() and not _NOTHING.search(text):
        return text
    result, before = list[str](), ""
    for character in text:
        joins = character in _SELECTORS and before == "visible"
        joins = joins or (character in _JOINERS and before in ("visible", "selected"))
        if joins:
            before = "selected" if character in _SELECTORS else "joined"
        elif character not in kept and is_invisible(character):
            character, before = write(character), ""  # noqa: PLW2901 - the replacement
        else:
            before = "" if character.isspace() else "visible"
        result.append(character)
    return "".join(result)
