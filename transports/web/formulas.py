r"""Mathematics in Markdown: how it is found, and how it becomes MathML; pure.

| written            | shown            |
|--------------------|------------------|
| `$x$`, `\(x\)`      | in the line      |
| `$$x$$`, `\[x\]`    | on a line alone  |

A sum of money is no formula: a dollar sign that a digit, a letter or a space says otherwise of stays what it is.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Final

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from transports.web.markdown import Node

LONGEST = 1_000
"""Characters of a formula. A longer one is shown as it was written."""

LINES = 40
"""Lines of a formula that stands alone."""

_TAGS = (
    "math menclose mfrac mi mn mo mover mpadded mphantom mroot mrow mspace msqrt mstyle msub msubsup msup mtable mtd "
    "mtext mtr munder munderover"
)
_ATTRIBUTES = (
    "accent columnalign columnspacing depth display displaystyle fence form height linethickness lspace maxsize "
    "minsize notation rowlines rowspacing scriptlevel stretchy voffset width"
)
MOST_MISSES = 200
"""Signs in one text that begin no formula, after which no more are looked at: each may cost the longest formula."""

TAGS: Final = frozenset(_TAGS.split())
ATTRIBUTES: Final = frozenset(_ATTRIBUTES.split())

_ENDS: Final = {"$$": "$$", "\\[": "\\]", "\\(": "\\)", "$": "$"}
_INLINE = re.compile(
    rf"\$\$(?P<d>[^$]{{1,{LONGEST}}}+)\$\$"
    rf"|\\\[(?P<b>(?:[^\\]|\\[^\]]){{1,{LONGEST}}}+)\\\]"
    rf"|\\\((?P<p>(?:[^\\]|\\[^)]){{1,{LONGEST}}}+)\\\)"
    rf"|\$(?P<s>(?=[^\s$])(?:[^$\\]|\\.){{1,{LONGEST}}}+(?<!\s))\$(?![A-Za-z0-9])"
)
_SIGNS = re.compile(r"[\\^_={}+<>|/]|\A[A-Za-z]\Z|\A[A-Za-z0-9]*\Z")
_NAMES: Final = {"{aligned}": "{align*}", "{gathered}": "{gather}"}
"""Environments that the library knows by another name."""


def with_formulas(parser: MarkdownIt) -> MarkdownIt:
    """Add the rules to *parser*: a formula becomes a token of the type ``formula``, alone if its ``block`` is set."""
    parser.block.ruler.before("fence", "formula", _block, {"alt": ["paragraph"]})
    parser.inline.ruler.before("escape", "formula", _inline)
    return parser


def _block(state: StateBlock, first: int, end: int, silent: bool) -> bool:
    r"""Take lines from ``$$`` or ``\[`` to the end of a line that closes it, with no blank one between.

    While a text is still written (``live`` in the parser's environment), its end may be on the way.
    """
    if state.is_code_block(first):
        return False
    begin = state.bMarks[first] + state.tShift[first]
    opening = state.src[begin : begin + 2]
    if opening not in ("$$", "\\[") or _gave_up(state):
        return False
    last = min(end, first + LINES) - 1
    for number in range(first, last + 1):
        text = _line(state, number)[2 if number == first else 0 :].rstrip()
        if not text and number > first:
            return _missed(state)
        if text.endswith(_ENDS[opening]):
            return silent or _push(state, opening, first, number)
    if last == state.lineMax - 1 and "live" in state.env:
        return silent or _push(state, "", first, last)
    return _missed(state)


def _gave_up(state: StateBlock | StateInline) -> bool:
    return bool(state.env.get("misses", 0) >= MOST_MISSES)


def _missed(state: StateBlock | StateInline) -> bool:
    state.env["misses"] = state.env.get("misses", 0) + 1
    return False


def _push(state: StateBlock, opening: str, first: int, last: int) -> bool:
    lines = state.getLines(first, last + 1, state.blkIndent, False).strip()
    token = state.push("formula" if opening else "code_inline", "math", 0)
    token.content = lines[len(opening) :].removesuffix(_ENDS.get(opening, "")).strip()
    token.block, token.map = True, [first, last + 1]
    state.line = last + 1
    return True


def _line(state: StateBlock, number: int) -> str:
    return state.src[state.bMarks[number] + state.tShift[number] : state.eMarks[number]]


def _inline(state: StateInline, silent: bool) -> bool:
    opens = state.src[state.pos] == "$" or state.src.startswith(("\\[", "\\("), state.pos)
    if not opens or _gave_up(state):
        return False
    found = _INLINE.match(state.src, state.pos, min(state.posMax, state.pos + LONGEST + 4))
    if found is None:
        return _missed(state)
    content = str(found[found.lastgroup or 0])
    if found.lastgroup == "s" and not _SIGNS.search(content):
        return False
    if not silent:
        token = state.push("formula", "math", 0)
        token.content, token.block = content.strip(), found.lastgroup in ("d", "b")
    state.pos = found.end()
    return True


@lru_cache(maxsize=500)
def formula(written: str, *, alone: bool, laid_out: bool = True) -> Node:
    """Return a formula in MathML, or as it was written if it is too long or no formula."""
    from latex2mathml.converter import convert_to_element  # noqa: PLC0415 - 0.2 s, for those who write formulas

    if laid_out and len(written) <= LONGEST:
        known = reduce(lambda text, pair: text.replace(*pair), _NAMES.items(), written)
        with suppress(Exception):  # whatever a stranger's formula does to the library, it is shown
            return _node(convert_to_element(known, display="block" if alone else "inline"))
    return ["code", {}, written]


def _node(element: Element) -> Node:
    shown = {name: value for name, value in element.attrib.items() if name in ATTRIBUTES}
    return [element.tag if element.tag in TAGS else "mrow", shown, *_children(element)]


def _children(element: Element) -> Iterator[Node]:
    if element.text:
        yield html.unescape(element.text)
    for child in element:
        yield _node(child)
