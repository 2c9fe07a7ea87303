"""Reading ahead in an unfinished text, within a fixed distance; pure.

A method raises `NeedMore` if its result depends on characters that have not come yet, unless the text is ``final``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from transports.slack.markdown.links import without_entities

LINK, LABEL, CODE, INFO, WORD, SHORT = 3_000, 500, 1_000, 200, 256, 48
_BRACKETS = re.compile(r"\[((?:[^\[\]\n]++|\[[^\[\]\n]*+\](?!\())*+)\]")
_TARGET = re.compile(
    r"\([ \t]*+(?:<([^<>\n]*+)>|([^\s()<>]*(?:\([^\s()]*\)[^\s()<>]*)*))"
    r"(?:[ \t]+(?:\"[^\"\n]*\"|'[^'\n]*'|\([^()\n]*\)))?[ \t]*\)"
)
_NO_TARGET = re.compile(r"\([^\"'()<\n]*+\)")
_TICKS = re.compile("`+")
_URL_LIKE = re.compile(r"[:/.#?]")


class NeedMore(Exception):
    """The held text is still ambiguous."""


@dataclass(frozen=True, slots=True)
class Lookahead:
    """The text that is held; positions count from its start."""

    text: str
    final: bool

    def need(self, at: int, reach: int) -> None:
        """Raise `NeedMore` unless *reach* characters from *at* are there."""
        if len(self.text) < at + reach and not self.final:
            raise NeedMore

    def run(self, at: int) -> int:
        """Return where the run of one character ends, or becomes too long for markup."""
        end = at + 1
        while end < len(self.text) and end < at + CODE and self.text[end] == self.text[at]:
            end += 1
        if end < at + CODE:
            self.need(end, 1)
        return end

    def over(self, at: int, chars: str, most: int) -> int:
        """Return where at most *most* characters of *chars* end; the next one is known then."""
        end = at
        while end < len(self.text) and end < at + most and self.text[end] in chars:
            end += 1
        self.need(end, 1)
        return end

    def closing_ticks(self, at: int, end: int) -> int | None:
        """Return where the run of ticks begins that closes the one from *at* to *end*, in the same line."""
        reach = end + CODE
        newline = self.text.find("\n", end, reach)
        stop = min(reach, len(self.text)) if newline < 0 else newline
        for found in _TICKS.finditer(self.text, end, stop):
            if found.end() == len(self.text) and found.end() < reach:
                self.need(found.end(), 1)
            if found.end() - found.start() == end - at and found.end() < reach:
                return found.start()
        if newline < 0:
            self.need(end, CODE)
        return None

    def unquoted(self, at: int, quotes: int) -> int | None:
        """Return where the line continues after *quotes* quote marks; None if it has fewer."""
        for _ in range(quotes):
            at = self.over(at, " \t", 8)
            if self.text[at : at + 1] != ">":
                return None
            at += 1
        return at

    def inline_link(self, at: int) -> tuple[int, str, str] | None:
        """Return the end of the link at *at*, its label and its target; None if it is not a link."""
        if (label := _BRACKETS.match(self.text, at, at + LABEL)) is None:
            if self.text.find("\n", at, at + LABEL) < 0:
                self.need(at, LABEL)
            return None
        self.need(label.end(), 1)
        if self.text[label.end() : label.end() + 1] != "(":
            return None
        if (target := _TARGET.match(self.text, label.end(), at + LINK)) is None:
            if self.text.find("\n", at, at + LINK) < 0 and not _NO_TARGET.match(
                self.text, label.end(), at + LINK
            ):
                self.need(at, LINK)
            return None
        url = without_entities(target[2] if target[1] is None else target[1])
        return (target.end(), label[1], url) if _URL_LIKE.search(url) else None
