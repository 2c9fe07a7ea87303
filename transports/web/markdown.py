"""Markdown as a tree of plain values, so that no text of a model ever becomes HTML; pure.

A node is a text, or ``[tag, attributes, child, …]``. The page's script builds elements from it, of these tags alone.
HTML in the text stays text. An image is a link to it: nothing is fetched that nobody pressed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Final, TypeAlias

from markdown_it import MarkdownIt
from markdown_it.token import Token

from transports.base.model_forms import with_model_forms
from transports.base.tables import with_whole_rows
from transports.base.text import clean
from transports.web.formulas import formula, with_formulas

Node: TypeAlias = "str | list[str | dict[str, str] | Node]"

LONGEST = 200_000
"""Characters that are read as Markdown. A longer text stays as it is: it would keep the browser busy."""

_TAGS = "p h3 h4 h5 h6 ul ol li blockquote pre code em strong s a hr br table thead tbody tr th td"
TAGS: Final = frozenset(_TAGS.split())
SCHEMES: Final = ("https://", "http://", "mailto:")
MOST_FORMULAS = 5_000
"""Characters of formulas in one text that are laid out: a hostile one costs 30 microseconds each."""

_TASK = re.compile(r"\[([ xX])\] ")


@dataclass(slots=True)
class Reading:
    """What of a text reaches beyond a block.

    ``above`` are the ranks of the headings under which the next one stands, ``room`` what formulas may still take,
    and ``env`` what the parser keeps: the targets of links.
    """

    above: list[int] = field(default_factory=list)
    room: int = MOST_FORMULAS
    env: dict[str, object] = field(default_factory=lambda: {"references": {}})

    def copy(self) -> Reading:
        return Reading([*self.above], self.room, self.env)

    def level(self, rank: int) -> int:
        """Return the level of a heading on the page, where a thread's title has 2, and no level is left out."""
        while self.above and self.above[-1] >= rank:
            self.above.pop()
        self.above.append(rank)
        return min(6, 2 + len(self.above))


@cache
def _parser() -> MarkdownIt:
    options = {"html": False, "linkify": False, "maxNesting": 30}
    parser = MarkdownIt("commonmark", options).enable(["table", "strikethrough"])
    return with_formulas(with_model_forms(parser))


def tree(text: str) -> list[Node]:
    """Return the nodes of a text."""
    text = clean(text)
    return plain(text) if len(text) > LONGEST else [node for _, node in blocks(text, Reading())]


def plain(text: str) -> list[Node]:
    """Return the nodes of a text that is too long to be read as Markdown."""
    return [["pre", {}, text]]


def blocks(text: str, reading: Reading, *, live: bool = False) -> list[tuple[int, Node]]:
    """Return the blocks of a text, each with the number of its first line. *live*: more of it is on its way."""
    env = reading.env | ({"live": True} if live else {})
    tokens = iter(_parser().parse(with_whole_rows(text), env))
    found = list[tuple[int, Node]]()
    for token in tokens:
        first = token.map[0] if token.map else 0
        found += [(first, node) for node in _node(token, tokens, reading)]
    return found


def _nodes(tokens: Iterator[Token], closing: str, reading: Reading) -> list[Node]:
    """Return the nodes up to the token of the type *closing*."""
    nodes: list[Node] = []
    for token in tokens:
        if token.type == closing:
            break
        nodes += _node(token, tokens, reading)
    return nodes


def _node(token: Token, tokens: Iterator[Token], reading: Reading) -> list[Node]:
    if token.type == "inline":
        return _nodes(iter(token.children or ()), "", reading)
    if token.nesting == 1:
        children = _nodes(tokens, f"{token.type.removesuffix('_open')}_close", reading)
        return children if token.hidden else [_element(token, children, reading)]
    return [leaf] if (leaf := _leaf(token, reading)) else []


def _element(token: Token, children: list[Node], reading: Reading) -> Node:
    attributes: dict[str, str] = {}
    tag = token.tag if token.tag in TAGS else "span"
    match token.tag:
        case "a":
            if not (address := _safe(str(token.attrs.get("href", "")))):
                return ["span", {}, *children]
            attributes["href"] = address
        case "ol" if "start" in token.attrs:
            attributes["start"] = str(token.attrs["start"])
        case "h1" | "h2" | "h3" | "h4" | "h5" | "h6":
            tag, attributes["size"] = f"h{reading.level(int(token.tag[1]))}", token.tag[1]
        case "li":
            return _item(children)
        case _ if token.attrs.get("style") == "text-align:right":  # a column of numbers
            attributes["align"] = "right"
    return [tag, attributes, *children]


def _item(children: list[Node]) -> Node:
    """Return an item of a list, one of a list of tasks with its box."""
    match children:
        case [str(text), *more] if found := _TASK.match(text):
            return ["li", {"task": ""}, f"{_box(found)} {text[found.end() :]}", *more]
        case [["p", {}, str(text), *words], *more] if found := _TASK.match(text):
            return ["li", {"task": ""}, ["p", {}, f"{_box(found)} {text[found.end() :]}", *words], *more]
        case _:
            return ["li", {}, *children]


def _box(found: re.Match[str]) -> str:
    return "☐" if found[1] == " " else "☑"


def _leaf(token: Token, reading: Reading) -> Node:
    match token.type:
        case "fence" | "code_block":
            language = token.info.split(maxsplit=1)[0][:30] if token.info.strip() else ""
            return ["pre", {"lang": language} if language else {}, token.content]
        case "code_inline":
            return ["code", {}, token.content]
        case "formula":
            reading.room -= len(token.content)
            return formula(token.content, alone=token.block, laid_out=reading.room >= 0)
        case "hardbreak" | "hr":
            return [token.tag, {}]
        case "address" | "image":
            address = token.content if token.type == "address" else _safe(str(token.attrs.get("src", "")))
            return ["a", {"href": address}, token.content or "image"] if address else token.content or "image"
        case _:
            return "\n" if token.type == "softbreak" else token.content


def _safe(address: str) -> str:
    """Return the address of a link that may be followed, else a blank."""
    return address if address.lower().startswith(SCHEMES) else ""
