"""The chart of a spending report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from bot.budget.money import dollars
from bot.page import charts
from bot.reports.safe_text import plain
from bot.reports.usage import Report


def usage_chart(
    report: Report,
    mask: Callable[[str], str],
    *,
    narrow: bool = False,
    names: Mapping[str, str] = MappingProxyType({}),
) -> bytes:
    """Return the SVG: bars over time for days, else one bar for each name, as *names* has it."""
    values = [(mask(plain(names.get(one.name, one.name))), dollars(one.micros)) for one in report.lines]
    if report.by == "day":
        return charts.bars(
            [day for day, _ in values], {"USD": [usd for _, usd in values]}, unit="$", narrow=narrow
        )
    return charts.shares(values, unit="$", narrow=narrow)
