"""Markdown as a tree of plain values, so that no text of a model ever becomes HTML; pure.

A node is a text, or ``[tag, attributes, child, …]``. The page's script builds elements from it, of these tags alone.
HTML in the text stays text. An image is a link to it: nothing is fetched that nobody pressed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final, TypeAlias

from markdown_it import MarkdownIt
from markdown_it.token import Token

from transports.base.model_forms import with_model_forms
from transports.base.tables import with_whole_rows
from transports.base.text import clean

Node: TypeAlias = "str | list[str | dict[str, str] | Node]"

LONGEST = 200_000
"""Characters that are read as Markdown. A longer text stays as it is: it would keep the browser busy."""

TAGS: Final = frozenset(
    [
        "p",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "ul",
        "ol",
        "li",
        "blockquote",
        "pre",
        "code",
        "em",
        "strong",
        "s",
        "a",
        "hr",
        "br",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
    ]
)
SCHEMES: Final = ("https://", "http://", "mailto:")


@cache
def _parser() -> MarkdownIt:
    options = {"html": False, "linkify": False, "maxNesting": 30}
    return with_model_forms(MarkdownIt("commonmark", options).enable(["table", "strikethrough"]))


def tree(text: str) -> list[Node]:
    """Return the nodes of a text."""
    text = clean(text)
    if len(text) > LONGEST:
        return [["pre", {}, text]]
    return _nodes(iter(_parser().parse(with_whole_rows(text))), "")


def _nodes(tokens: Iterator[Token], closing: str) -> list[Node]:
    """Return the nodes up to the token of the type *closing*."""
    nodes: list[Node] = []
    for token in tokens:
        if token.type == closing:
            break
        if token.type == "inline":
            nodes += _nodes(iter(token.children or ()), "")
        elif token.nesting == 1:
            children = _nodes(tokens, f"{token.type.removesuffix('_open')}_close")
            nodes += children if token.hidden else [_element(token, children)]
        elif leaf := _leaf(token):
            nodes.append(leaf)
    return nodes


def _element(token: Token, children: Sequence[Node]) -> Node:
    attributes: dict[str, str] = {}
    if token.tag == "a":
        if not (address := _safe(str(token.attrs.get("href", "")))):
            return ["span", {}, *children]
        attributes["href"] = address
    elif token.tag == "ol" and "start" in token.attrs:
        attributes["start"] = str(token.attrs["start"])
    elif token.attrs.get("style") == "text-align:right":  # a column of numbers
        attributes["align"] = "right"
    return [token.tag if token.tag in TAGS else "span", attributes, *children]


def _leaf(token: Token) -> Node:
    match token.type:
        case "fence" | "code_block":
            language = token.info.split(maxsplit=1)[0][:30] if token.info.strip() else ""
            return ["pre", {"lang": language} if language else {}, token.content]
        case "code_inline":
            return ["code", {}, token.content]
        case "hardbreak" | "hr":
            return [token.tag, {}]
        case "address":
            return ["a", {"href": token.content}, token.content]
        case "image" if address := _safe(str(token.attrs.get("src", ""))):
            return ["a", {"href": address}, token.content or "image"]
        case _:
            return "\n" if token.type == "softbreak" else token.content or "image" * (token.type == "image")


def _safe(address: str) -> str:
    """Return the address of a link that may be followed, else a blank."""
    return address if address.lower().startswith(SCHEMES) else ""
