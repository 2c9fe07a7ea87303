"""Tables in the form of Slack's markdown block; pure. The text is `safe` already: inline code has one backtick.

Slack refuses a message with an empty cell, more than 100 rows or 20 columns, and Markdown drops cells beyond the
header's. So every row gets as many filled cells as the header, and a table that is too large becomes code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from transports.base.text import Fence, fence_after, is_delimiter

MAX_ROWS, MAX_COLUMNS = 100, 20
EMPTY = "\u00a0"

_MARGIN = re.compile(r"[ \t>]*")
_PIECES = re.compile(r"\\.|`[^`]*`|\||[^\\`|]+|.")
_BARE_PIPE = re.compile(r"(?<!\\)\|")


def tables_in(text: str) -> bool:
    """Return whether *text* has a table."""
    return any(True for _ in _tables(text.split("\n")))


def filled(text: str) -> str:
    """Return *text* with every table in Slack's form."""
    lines = text.split("\n")
    done: list[str] = []
    at = 0
    for start, end in _tables(lines):
        done += lines[at:start]
        done += _table(lines[start:end])
        at = end
    return "\n".join(done + lines[at:])


def _tables(lines: list[str]) -> Iterator[tuple[int, int]]:
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


def _table(lines: list[str]) -> list[str]:
    margin = _MARGIN.match(lines[0])
    start = margin[0] if margin else ""
    columns = len(cells(lines[0]))
    if columns > MAX_COLUMNS or len(lines) - 1 > MAX_ROWS:
        return ["```", *(line.replace("```", "``\u200b`") for line in lines), "```"]
    header, delimiter, *rows = (_fitted(cells(line), columns) for line in lines)
    marks = [cell if cell != EMPTY else "---" for cell in delimiter]
    return [f"{start}| {' | '.join(row)} |" for row in (header, marks, *rows)]


def _fitted(row: list[str], columns: int) -> list[str]:
    kept = [*row[: columns - 1], r" \| ".join(row[columns - 1 :])]
    return [cell or EMPTY for cell in kept] + [EMPTY] * (columns - len(kept))


def cells(line: str) -> list[str]:
    """Return the cells of a row. A pipe in code does not separate cells, and is escaped."""
    found = [""]
    for piece in _PIECES.findall(_MARGIN.sub("", line, count=1).rstrip()):
        if piece == "|":
            found.append("")
        else:
            found[-1] += _BARE_PIPE.sub(r"\\|", piece) if piece.startswith("`") else piece
    stripped = [cell.strip() for cell in found]
    if len(stripped) > 1 and not stripped[0]:
        del stripped[0]
    if len(stripped) > 1 and not stripped[-1]:
        del stripped[-1]
    return stripped
