"""A model's text as parts of a markdown block's length; pure.

Each part is made safe (`escape`), with tables in Slack's form (`tables`), and has a plain version for notifications,
for search, and for a Slack that refuses the block.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache

from transports.base.tables import cells
from transports.base.text import clean, is_delimiter, split
from transports.slack.markdown.escape import safe
from transports.slack.markdown.links import Links, break_live, fit
from transports.slack.markdown.tables import filled

MAX_PART = 11_000
"""Characters of Markdown in a part; a payload may have 12,000."""

MAX_PLAIN = 3_500
"""Characters of plain text in a part; ``chat.update`` takes 4,000."""

_FENCE = re.compile(r"[ \t>]*```[\w+#.-]*")
_LEADING = re.compile(r"^([ \t>]*)(?:#{1,6}[ \t]+|[-*+][ \t]+(?=\S))")
_LINK = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])*+)\]\(([^()\s]*)\)")
_MARKS = re.compile(
    r"(\*{2,3}|__|~~)(?=\S)(.{1,300}?)(?<=\S)\1|(?<![\w*])([*_])(?=\S)([^*_]{1,300}?)(?<=\S)\3(?![\w*])"
)
_CODE = re.compile(r"`([^`]*)`")
_ADDRESS = re.compile(r"https?://[^\s\0]+", re.IGNORECASE)
_HELD = re.compile("\0([0-9]+)\0")
_BACKSLASH = re.compile(r"\\([!-/:-@\[-`{-~])")


def split_markdown(text: str, links: Links) -> tuple[str, ...]:
    """Return *text* as safe Markdown in parts that each fit one markdown block; none for a blank text."""
    text = clean(text)
    growth = len(_safe(text, links)) / max(1, len(text))
    room = MAX_PART if growth <= 1 else int(0.95 * MAX_PART / growth)
    return tuple(_fitting(text, links, room))


def _fitting(text: str, links: Links, room: int) -> Iterator[str]:
    """Cut before making safe, so that a construct that a cut breaks is safe too."""
    for piece in split(text, room):
        markdown = _safe(piece, links)
        if len(markdown) <= MAX_PART:
            yield markdown
        else:
            yield from _fitting(piece, links, room // 2)


@lru_cache(maxsize=1)
def _safe(text: str, links: Links) -> str:
    """Make a text safe. That of one part, which most are, is asked for twice."""
    return filled(safe(text, links))


def plain(markdown: str, own: frozenset[str] = frozenset()) -> str:
    """Return the `words` of safe Markdown in at most 3,500 characters."""
    text = words(markdown, own)
    if len(text) <= MAX_PLAIN:
        return text
    return re.sub(r"&[a-z]{0,3}$", "", split(text, MAX_PLAIN - 2)[0]) + " …"


def words(markdown: str, own: frozenset[str] = frozenset()) -> str:
    """Return safe Markdown as words without marks and without links but *own* ones."""
    code = False
    lines: list[str] = []
    for line in markdown.split("\n"):
        if _FENCE.fullmatch(line):
            code = not code
        elif code:
            lines.append(line)
        elif not is_delimiter(line):
            lines.append(_words(line))
    return _escaped("\n".join(lines).strip(), own | frozenset(map(fit, own))) or "…"


def _words(line: str) -> str:
    if line.lstrip(" \t>").startswith("|"):
        line = " | ".join(cells(line))
    line = _LEADING.sub(lambda found: found[1] + ("" if "#" in found[0] else "• "), line)
    held: list[str] = []

    def hold(text: str) -> str:
        """Keep code and addresses as they are, whatever marks are in them."""
        held.append(text)
        return f"\0{len(held) - 1}\0"

    line = _LINK.sub(lambda link: _named(link, hold), _CODE.sub(lambda code: hold(code[1]), line))
    line = _ADDRESS.sub(lambda address: hold(address[0]), line)
    words = _BACKSLASH.sub(r"\1", _MARKS.sub(lambda found: found[2] or found[4], line))
    return _HELD.sub(lambda found: held[int(found[1])], words).replace(r"\|", "|")


def _named(link: re.Match[str], hold: Callable[[str], str]) -> str:
    label, url = link[1], link[2]
    return hold(url) if label == url.partition("//")[2] else f"{label} ({hold(url)})"


def _escaped(text: str, own: frozenset[str]) -> str:
    """Escape for mrkdwn, and break the addresses and mentions that Slack would make live."""
    for entity, char in (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")):
        text = text.replace(entity, char)
    return break_live(text, own).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
