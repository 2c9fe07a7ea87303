"""Tables in the form of Slack's markdown block; pure. The text is `safe` already: inline code has one backtick.

Slack refuses a message with an empty cell, more than 100 rows or 20 columns, and Markdown drops cells beyond the
header's. So every row gets as many filled cells as the header, and a table that is too large becomes code.
"""

from __future__ import annotations

from transports.base import tables as base

MAX_ROWS, MAX_COLUMNS = 100, 20
EMPTY = "\u00a0"


def tables_in(text: str) -> bool:
    """Return whether *text* has a table."""
    return any(True for _ in base.tables_in(text.split("\n")))


def filled(text: str) -> str:
    """Return *text* with every table in Slack's form."""
    lines = text.split("\n")
    done: list[str] = []
    at = 0
    for start, end in base.tables_in(lines):
        done += lines[at:start]
        done += _table(lines[start:end])
        at = end
    return "\n".join(done + lines[at:])


def _table(lines: list[str]) -> list[str]:
    start = base.margin(lines[0])
    if (columns := len(base.cells(lines[0]))) > MAX_COLUMNS or len(lines) - 1 > MAX_ROWS:
        return ["```", *(line.replace("```", "``\u200b`") for line in lines), "```"]
    header, delimiter, *rows = (base.fitted(base.cells(line), columns, empty=EMPTY) for line in lines)
    marks = [cell if cell != EMPTY else "---" for cell in delimiter]
    return [f"{start}| {' | '.join(row)} |" for row in (header, marks, *rows)]
