"""What was spent, as one file of HTML that needs nothing else: no script, no request."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import TextIO

from bot.page.export import write_page
from bot.page.usage_charts import usage_chart
from bot.ports.status import Spend
from bot.reports.usage import Report

ROWS = 1_000


def write_usage(
    out: TextIO, reports: Sequence[Report], limits: Sequence[Spend], mask: Callable[[str], str]
) -> None:
    """Write what was spent, each grouping as a chart and a table."""

    def drawn(report: Report) -> str:
        return f"data:image/svg+xml;base64,{base64.b64encode(usage_chart(report, mask)).decode()}"

    title = f"Spent from {reports[0].since} to {reports[0].until or 'now'}"
    shown = {"part": "_usage.html", "reports": reports, "limits": limits, "drawn": drawn, "rows": ROWS}
    write_page(out, mask, "export.html", title, **shown)
