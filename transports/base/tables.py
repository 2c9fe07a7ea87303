"""Tables in Markdown, as models write them; pure. A pipe in code or in a link does not separate cells."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from transports.base.text import Fence, fence_after, is_delimiter

_MARGIN = re.compile(r"[ \t>]*")
_PIECES = re.compile(r"\\.|`[^`]*`|<[^<>|\n]+\|[^<>|\n]+>|\||[^\\`|<]+|.")
_BREAK = re.compile(r"(?:<|&lt;)br[ \t]*/?>", re.IGNORECASE)
"""A line end in a cell, which no other form of a table has."""
_BARE_PIPE = re.compile(r"(?<!\\)\|")


def tables_in(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the first line of every table and the line after its last."""
    fence: Fence | None = None
    at = 0
    while at < len(lines):
        fence = fence_after(lines[at], fence)
        if fence is None and "|" in lines[at] and at + 1 < len(lines) and is_delimiter(lines[at + 1]):
            end = at + 2
            while end < len(lines) and "|" in lines[end] and fence_after(lines[end], None) is None:
                end += 1
            yield at, end
            at = end
        else:
            at += 1


def margin(line: str) -> str:
    """Return the marks of quotes and the indentation that a row begins with."""
    found = _MARGIN.match(line)
    return found[0] if found else ""


def cells(line: str) -> list[str]:
    """Return the cells of a row, with the pipes in them escaped."""
    found = [""]
    for piece in _PIECES.findall(_MARGIN.sub("", line, count=1).rstrip()):
        if piece == "|":
            found.append("")
        else:
            found[-1] += _BARE_PIPE.sub(r"\\|", piece) if piece[0] in "`<" else piece
    stripped = [_BREAK.sub(" ", cell).strip() for cell in found]
    if len(stripped) > 1 and not stripped[0]:
        del stripped[0]
    if len(stripped) > 1 and not stripped[-1]:
        del stripped[-1]
    return stripped


def fitted(row: list[str], columns: int, *, empty: str = "") -> list[str]:
    """Return a row with so many cells; the last one holds the excess, which Markdown drops."""
    kept = [*row[: columns - 1], r" \| ".join(row[columns - 1 :])]
    return [cell or empty for cell in kept] + [empty] * (columns - len(kept))


def with_whole_rows(text: str) -> str:
    """Return *text* with every row of a table as wide as its header, so that Markdown drops nothing of it."""
    lines = text.split("\n")
    for start, end in tables_in(lines):
        columns = len(cells(lines[start]))
        for at in (start, *range(start + 2, end)):
            lines[at] = f"{margin(lines[at])}| {' | '.join(fitted(cells(lines[at]), columns))} |"
    return "\n".join(lines)
