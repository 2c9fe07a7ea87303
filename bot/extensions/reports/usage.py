"""Prints the spending report."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TextIO

from bot.budget.accounts import WHOSE
from bot.budget.money import dollars, micros, usd
from bot.extensions.reports.tables import WIDE, Column, print_table, width
from bot.ports.status import Spend
from bot.reports.safe_text import plain
from bot.reports.usage import Line, Report

BAR = 12
"""Columns of the longest bar."""


def as_json(result: Report) -> str:
    whole = {
        "by": result.by,
        "since": result.since,
        "until": result.until,
        "lines": [{result.by: line.name, **_numbers(line)} for line in result.lines],
        "total": _numbers(result.total),
        "damaged_lines": result.damaged,
        "limits": [asdict(one) for one in result.limits],
    }
    return json.dumps(whole, indent=2)


def _numbers(line: Line) -> dict[str, int | float]:
    return {
        "calls": line.calls,
        "prompt_tokens": line.prompt,
        "cached_tokens": line.cached,
        "cached_share": round(line.cached_share, 4),
        "output_tokens": line.output,
        "usd": dollars(line.micros),
        "calls_without_price": line.unpriced,
        "calls_not_ended": line.open,
    }


def show(result: Report, out: TextIO) -> None:
    """Print the report: with a bar chart and colours to a terminal, in plain columns to anything else."""
    if not result.lines:
        out.write(f"{_nothing(result)}\n")
    else:
        print_table(*_rows(result), out=out)
    out.writelines(f"{remark}\n" for remark in _remarks(result))
    if result.limits:
        out.write("\n")
        print_table(*_limits(result.limits), out=out)


def _nothing(result: Report) -> str:
    if not result.files:
        return "Nothing has been spent yet."
    return f"Nothing was spent from {result.since} to {result.until or 'now'}."


def _rows(result: Report) -> tuple[list[Column], list[list[str]]]:
    total = result.total
    first = Column(result.by.capitalize(), "whole", style="bold", foot="Total")
    counts = zip(("Calls", "Prompt", "Cached", "Output", "Cost"), _counts(total), strict=True)
    columns = [first, *(Column(title, "whole", right=True, foot=foot) for title, foot in counts)]
    bars = result.by != "thread" or width() >= WIDE  # the names leave no room for them
    columns.append(Column("", style="cyan", on_terminal=True))
    most = max(line.micros for line in result.lines) if bars else 0
    return columns, [
        [plain(line.name) or "-", *_counts(line), _bar(line.micros, most)] for line in result.lines
    ]


def _limits(used: Sequence[Spend]) -> tuple[list[Column], list[list[str]]]:
    columns = [
        Column("Now", "whole", style="bold"),
        *(Column(title, "whole", right=True) for title in ("Spent", "Set aside", "Limit", "")),
        Column("", style="cyan", on_terminal=True),
    ]
    rows = []
    for one in used:
        spent, limit = micros(one.spent + one.reserved), micros(one.limit or 0)
        whose = WHOSE.get(one.scope, f"{one.scope} today")
        row = [whose, usd(micros(one.spent)), usd(micros(one.reserved)) if one.reserved else "-"]
        row.append("none" if one.limit is None else usd(limit))
        rows.append([*row, f"{spent / limit:.0%}" if limit else "", _bar(min(spent, limit), limit)])
    return columns, rows


def _counts(line: Line) -> tuple[str, str, str, str, str]:
    cached = f"{line.cached_share:.0%}" if line.cached else "-"  # many models have no cache
    return f"{line.calls:,}", _short(line.prompt), cached, _short(line.output), usd(line.micros)


def _short(count: int) -> str:
    if count < 10_000:
        return f"{count:,}"
    return f"{count / 1000:,.0f}k" if count < 10_000_000 else f"{count / 1_000_000:,.1f}M"


def _bar(value: int, most: int) -> str:
    return "█" * max(round(BAR * value / most), 1) if value and most else ""


def _remarks(result: Report) -> Iterator[str]:
    total = result.total
    if total.open:
        yield f"{_count(total.open, 'call')} not ended: the most that can cost is counted."
    if total.unpriced:
        yield f"{_count(total.unpriced, 'call')} with no known price: not in the cost."
    if result.damaged:
        yield f"{_count(result.damaged, 'line')} of the ledger damaged: not counted."


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
