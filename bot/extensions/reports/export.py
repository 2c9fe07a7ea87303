"""A thread, or what was spent, as one file of HTML that needs nothing else: no script, no request."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import TextIO

from markupsafe import Markup

from bot.page.templating import HERE, templates
from bot.page.usage_charts import usage_chart
from bot.ports.status import Spend
from bot.reports.transcript import Transcript, pieces
from bot.reports.usage import Report

NAME = "Threadfast"
ROWS = 1_000


def write_thread(out: TextIO, transcript: Transcript) -> None:
    """Write a thread with its messages, tools, outcomes and the names of its files."""
    shown = {"pieces": pieces(transcript), "files": transcript.files, "linked": False}
    _write(out, transcript.mask, "_transcript.html", transcript.thread, **shown)


def write_usage(
    out: TextIO, reports: Sequence[Report], limits: Sequence[Spend], mask: Callable[[str], str]
) -> None:
    """Write what was spent, each grouping as a chart and a table."""

    def drawn(report: Report) -> str:
        svg = base64.b64encode(usage_chart(report, mask)).decode()
        return f"data:image/svg+xml;base64,{svg}"

    title = f"Spent from {reports[0].since} to {reports[0].until or 'now'}"
    _write(out, mask, "_usage.html", title, reports=reports, limits=limits, drawn=drawn, rows=ROWS)


def _write(out: TextIO, mask: Callable[[str], str], part: str, title: str, **values: object) -> None:
    template = templates(NAME, mask).get_template("export.html")
    sheets = (
        (HERE / "static" / name).read_text("utf-8") for name in ("tokens.css", "export.css", "report.css")
    )
    style = Markup("".join(sheets))  # noqa: S704 - our own files
    out.writelines(template.generate(part=part, title=title, style=style, **values))
