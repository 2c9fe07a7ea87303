"""The templates of the pages, and what they do with a text before it is seen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import jinja2

from bot.budget.money import dollars
from bot.reports.safe_text import line, plain

HERE = Path(__file__).parent


def templates(name: str, mask: Callable[[str], str]) -> jinja2.Environment:
    """Return the templates; those of HTML escape everything. *name* is the bot's; *mask* hides secrets."""
    loader = jinja2.FileSystemLoader(HERE / "templates")
    made = jinja2.Environment(
        loader=loader, autoescape=jinja2.select_autoescape(), undefined=jinja2.StrictUndefined
    )
    made.filters["mask"] = lambda text: mask(plain(str(text)))
    made.filters["bare"] = lambda text: line(text, 300).replace("`", "'")
    made.filters["instant"] = lambda at: at[:19].replace("T", " ")
    made.filters["dollars"] = dollars
    made.globals["bot"] = name
    return made
