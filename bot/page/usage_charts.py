"""The chart of a spending report."""

from __future__ import annotations

from collections.abc import Callable

from bot.budget.money import dollars
from bot.page import charts
from bot.reports.safe_text import plain
from bot.reports.usage import Report


def usage_chart(report: Report, mask: Callable[[str], str], *, narrow: bool = False) -> bytes:
    """Return the SVG: bars over time for days, else one bar for each name."""
    values = [(mask(plain(line.name)), dollars(line.micros)) for line in report.lines]
    if report.by == "day":
        days, spent = zip(*values, strict=True) if values else ((), ())
        return charts.over_time(days, {"USD": spent}, unit="$", narrow=narrow)
    return charts.shares(values, unit="$", narrow=narrow)
