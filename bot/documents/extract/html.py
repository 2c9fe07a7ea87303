"""Web pages as Markdown: what a person would see of the page, with its links."""

from __future__ import annotations

import re
from dataclasses import replace

from bs4 import BeautifulSoup, Tag
from markdownify import MarkdownConverter

from .encoding import decoded
from .result import Extraction, Unreadable, text
from .text import clean

MAX_MARKUP = 4_000_000
"""Characters of markup that are read."""

_REMOVED = [
    "script", "style", "template", "noscript", "nav", "aside", "footer", "form", "button", "select", "svg", "math",
    "title", "canvas", "iframe", "object", "embed", "audio", "video", "head", "dialog", "input", "textarea",
]  # fmt: skip
_ROLES = {"navigation", "banner", "contentinfo", "search", "dialog", "menu", "menubar", "tooltip"}
_HIDING = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse)|opacity\s*:\s*0*\.?0*\s*(?:;|!|$)"
    r"|font-size\s*:\s*0*\.?0*[a-z%]*\s*(?:;|!|$)",
    re.IGNORECASE,
)
_LINK = re.compile(r"(?:https?:|mailto:|(?![a-z][a-z0-9+.-]*:))", re.IGNORECASE)
"""Links that are kept: to the web, to mail addresses, and within the site."""

_BLANK_LINES = re.compile(r"[ \t]*\n(?:[ \t]*\n){2,}")
_ENOUGH = 200
"""Characters that a page's main part needs to stand for the page."""


def page(data: bytes, declared: str) -> Extraction:
    """Return a page; raises `Unreadable` if it has no text."""
    found = decoded(data, declared, markup=True)
    if found is None:
        raise Unreadable("unknown")
    whole, markup = len(found.text) <= MAX_MARKUP, found.text[:MAX_MARKUP]
    soup = BeautifulSoup(markup, "lxml")  # Python's own parser takes hours for some pages
    title = soup.title.get_text() if soup.title else ""
    _prune(soup)
    main = soup.find("main") or soup.find(role="main")
    visible = main if isinstance(main, Tag) and len(main.get_text(strip=True)) >= _ENOUGH else soup
    try:
        markdown = MarkdownConverter(heading_style="ATX", bullets="-").convert_soup(visible)
        problem = "partly" if found.partly else ""
    except RecursionError:  # deeper than any page that people write
        markdown, problem = visible.get_text("\n"), "partly"
    markdown = _BLANK_LINES.sub("\n\n", clean(markdown)).strip()
    if not whole:
        problem = "cut"
    return replace(text([markdown], problem=problem), title=" ".join(clean(title).split()))


def _prune(soup: BeautifulSoup) -> None:
    """Remove what no reader sees or wants, and replace pictures by their descriptions."""
    for tag in soup.find_all(_REMOVED) + soup.find_all(_hidden):
        if not tag.decomposed:
            tag.decompose()
    for picture in soup.find_all("img"):
        picture.replace_with(str(picture.get("alt") or ""))
    for link in soup.find_all("a", href=True):
        if not _LINK.match(str(link["href"]).strip()):
            del link["href"]


def _hidden(tag: Tag) -> bool:
    return (
        tag.has_attr("hidden")
        or tag.get("aria-hidden") == "true"
        or tag.get("role") in _ROLES
        or bool(_HIDING.search(str(tag.get("style", ""))))
    )
