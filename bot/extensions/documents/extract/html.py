"""Web pages as Markdown: what a person would see of the page, with its links."""

from __future__ import annotations

import re
from functools import partial

from bs4 import BeautifulSoup, Tag
from markdownify import MarkdownConverter

from bot.extensions.documents.problems import LeftOut

from .encoding import decoded
from .result import Extraction, Unreadable, text
from .text import clean

MAX_MARKUP = 4_000_000
"""Characters of markup that are read."""

_UNSEEN = [
    "script", "style", "template", "noscript", "title", "canvas", "iframe", "object", "embed", "audio", "video",
    "head", "datalist",
]  # fmt: skip
_AROUND = ["nav", "aside", "footer", "form", "button", "select", "svg", "math", "dialog", "input", "textarea"]
"""What stands around the words of a page of the web. In a file that somebody sends it is what they mean."""
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


def page(data: bytes, declared: str, *, site: bool = False) -> Extraction:
    """Return a page; raises `Unreadable` if it has no text. Of a *site*'s page only the main part is read."""
    if (found := decoded(data, declared, markup=True)) is None:
        raise Unreadable("unknown")
    left_out: set[LeftOut] = {"rest"} if len(found.text) > MAX_MARKUP else set()
    if found.partly:
        left_out.add("characters")
    soup = BeautifulSoup(found.text[:MAX_MARKUP], "lxml")  # Python's own parser takes hours for some pages
    title = soup.title.get_text() if soup.title else ""
    _prune(soup, site=site)
    main = (soup.find("main") or soup.find(role="main")) if site else None
    visible = main if isinstance(main, Tag) and len(main.get_text(strip=True)) >= _ENOUGH else soup
    try:
        markdown = MarkdownConverter(heading_style="ATX", bullets="-").convert_soup(visible)
    except RecursionError:  # deeper than any page that people write
        markdown = visible.get_text("\n")
    markdown = _BLANK_LINES.sub("\n\n", clean(markdown)).strip()
    return text([markdown], title=" ".join(clean(title).split()), left_out=left_out)


def _prune(soup: BeautifulSoup, *, site: bool) -> None:
    """Remove what no reader sees or wants, and replace pictures and fields by their words."""
    removed = soup.find_all([*_UNSEEN, *_AROUND] if site else _UNSEEN)
    for tag in removed + soup.find_all(partial(_hidden, site=site)):
        if not tag.decomposed:
            tag.decompose()
    for field in soup.find_all(["input", "select"]):
        field.replace_with(_value(field))
    for picture in soup.find_all("img"):
        picture.replace_with(str(picture.get("alt") or ""))
    for link in soup.find_all("a", href=True):
        if not _LINK.match(str(link["href"]).strip()):
            del link["href"]


def _value(field: Tag) -> str:
    """Return what a field of a form shows."""
    if field.name == "select":
        chosen = field.find_all("option", selected=True) or field.find_all("option", limit=1)
        return f" {', '.join(option.get_text(strip=True) for option in chosen)} "
    match str(field.get("type") or "text").lower():
        case "hidden" | "password" | "file" | "image":
            return ""
        case "checkbox" | "radio":
            return " ☑ " if field.has_attr("checked") else " ☐ "
        case _:
            return f" {field.get('value') or field.get('placeholder') or ''} "


def _hidden(tag: Tag, *, site: bool) -> bool:
    return (
        tag.has_attr("hidden")
        or (tag.name == "dialog" and not tag.has_attr("open"))
        or bool(_HIDING.search(str(tag.get("style", ""))))
        or (site and (tag.get("aria-hidden") == "true" or tag.get("role") in _ROLES))
    )
