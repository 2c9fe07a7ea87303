"""A thread, or a part of a report, as one file that needs nothing else: no script, no request."""

from __future__ import annotations

from collections.abc import Callable
from typing import TextIO

from markupsafe import Markup

from bot.page.templating import HERE, templates
from bot.reports.transcript import BOT, Transcript, pieces


def write_thread(out: TextIO, transcript: Transcript, form: str = "html") -> None:
    """Write a thread as "html" or "md", with its messages, tools, outcomes and the names of its files."""
    shown = {"pieces": pieces(transcript), "files": transcript.files}
    page = "export.html" if form == "html" else "thread.md"
    write_page(out, transcript.mask, page, transcript.thread, part="_transcript.html", **shown)


def write_page(out: TextIO, mask: Callable[[str], str], page: str, title: str, **values: object) -> None:
    """Write one of the templates with its styles."""
    names = "tokens.css", "export.css", "report.css"
    sheets = ((HERE / "static" / name).read_text("utf-8") for name in names)
    style = Markup("".join(sheets))  # noqa: S704 - our own files
    out.writelines(templates(BOT, mask).get_template(page).generate(title=title, style=style, **values))
