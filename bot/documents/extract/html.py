"""Web pages as Markdown: what a reader of the page would see, with its links."""

from __future__ import annotations

import re
from dataclasses import replace

from bs4 import BeautifulSoup, Tag
from markdownify import MarkdownConverter

from .result import Extraction, Unreadable, text
from .text import clean, decoded

MAX_MARKUP = 4_000_000
"""Characters of markup that are read."""

_UNSEEN = [
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
"""Addresses that are kept: of the web, of people, and within the site."""

_BLANK_LINES = re.compile(r"[ \t]*\n(?:[ \t]*\n){2,}")
_ENOUGH = 200
"""Characters from which on a page's own main part stands for the page."""


def page(data: bytes, declared: str) -> Extraction:
    """Return a page; raises `Unreadable` when there is nothing to read in it."""
    found = decoded(data, declared, markup=True)
    if found is None:
        raise Unreadable("unknown")
    whole, markup = len(found[0]) <= MAX_MARKUP, found[0][:MAX_MARKUP]
    soup = BeautifulSoup(markup, "lxml")  # Python's own takes hours for some pages
    title = soup.title.get_text() if soup.title else ""
    _prune(soup)
    main = soup.find("main") or soup.find(role="main")
    seen = main if isinstance(main, Tag) and len(main.get_text(strip=True)) >= _ENOUGH else soup
    try:
        shown, problem = MarkdownConverter(heading_style="ATX", bullets="-").convert_soup(seen), ""
    except RecursionError:  # deeper than anything that people write
        shown, problem = seen.get_text("\n"), "partly"
    shown = _BLANK_LINES.sub("\n\n", clean(shown)).strip()
    if not whole:
        problem = "cut"
    said = text([shown], problem=problem)
    return replace(said, title=" ".join(clean(title).split()))


def _prune(soup: BeautifulSoup) -> None:
    """Leave out what no reader sees or came for, and put words in place of pictures."""
    for tag in soup.find_all(_UNSEEN) + soup.find_all(_hidden):
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
