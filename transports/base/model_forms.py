"""What models write beside Markdown: addresses, links in Slack's form, names of code; rules of markdown-it.

Many have learned ``<https://…|label>``, and many write its halves the other way round.
"""

from __future__ import annotations

import re

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from transports.base.text import trim_address

_SCHEME = re.compile(r"(?<![A-Za-z0-9])https?\Z", re.IGNORECASE)
_ADDRESS = re.compile(r"(?=\w)[^\s<>\[\]`|*\\\"\u3000-\u303f\uff00-\uff65]{1,2000}+")
_HALVES = re.compile(r"<([^<>|\n]{1,2000})\|([^<>|\n]{1,2000})>")
_TARGET = re.compile(r"(?:https?://\w|mailto:\w)\S*", re.IGNORECASE)


_NAME = re.compile(r"__([A-Za-z][A-Za-z0-9_]{0,60}?)__(?!\w)", re.ASCII)
_NUMBERED = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:_\w+|[0-9]\w*)", re.ASCII)
_KNOWN = re.compile(
    r"COUNTER|DATE|FILE|FUNCTION|LINE|TIME|abs|add|aenter|aexit|aiter|all|and|anext|"
    r"annotations|author|await|bases|bool|builtins|bytes|call|class|contains|del|delattr|"
    r"delitem|dict|dirname|doc|enter|eq|exit|file|filename|float|format|future|ge|get|"
    r"getattr|getattribute|getitem|gt|hash|import|index|init|int|iter|le|len|loader|lt|main|"
    r"matmul|missing|mod|module|mro|mul|name|ne|neg|new|next|or|package|path|pow|proto|"
    r"qualname|repr|set|setattr|setitem|slots|spec|str|sub|truediv|typename|version|wrapped|"
    r"xor"
)
"""Words between double underscores that are names in a programming language, not bold."""


def with_model_forms(parser: MarkdownIt) -> MarkdownIt:
    """Add the rules to *parser*. A bare address becomes a token of the type ``address``."""
    parser.inline.ruler.before("escape", "address", _address)
    parser.inline.ruler.before("autolink", "link with a label", _labelled)
    parser.inline.ruler.before("emphasis", "name", _name)
    return parser


def halves(first: str, second: str) -> tuple[str, str] | None:
    """Return the label and the target of ``<first|second>``, None if neither half is an address."""
    first, second = first.strip(), second.strip()
    if _TARGET.fullmatch(first):
        return second, first
    return (first, second) if _TARGET.fullmatch(second) else None


def _labelled(state: StateInline, silent: bool) -> bool:
    found = _HALVES.match(state.src, state.pos, state.posMax)
    parts = halves(found[1], found[2]) if found and not state.linkLevel else None
    if found is None or parts is None:
        return False
    if not silent:
        label, target = parts
        state.push("link_open", "a", 1).attrs = {"href": target}
        if label and "://" not in label:
            inside: list[Token] = []  # of its own: the parser goes through the whole list at its end
            state.md.inline.parse(label, state.md, state.env, inside)
            state.tokens += inside
        else:
            state.push("text", "", 0).content = label or target
        state.push("link_close", "a", -1)
    state.pos = found.end()
    return True


def _name(state: StateInline, silent: bool) -> bool:
    """Take ``__init__`` and its like as words, not as bold."""
    found = _NAME.match(state.src, state.pos, state.posMax)
    before = state.src[state.pos - 1 : state.pos]
    if found is None or before.isalnum():
        return False
    after = state.src[found.end() : found.end() + 1]
    joined = after and (before in (".", "/") or after in ("(", ".", "/"))
    if not (joined or _NUMBERED.fullmatch(found[1]) or _KNOWN.fullmatch(found[1])):
        return False
    if not silent:
        state.pending += found[0]
    state.pos = found.end()
    return True


def _address(state: StateInline, silent: bool) -> bool:
    """Take a bare address as one token, so that nothing in it is markup."""
    if state.linkLevel or not state.src.startswith("://", state.pos):
        return False
    scheme = _SCHEME.search(state.pending[-6:])
    found = _ADDRESS.match(state.src, state.pos + 3, state.posMax)
    rest = trim_address(found[0]) if found else ""
    if scheme is None or not rest:
        return False
    if not silent:
        state.pending = state.pending[: -len(scheme[0])]
        state.push("address", "", 0).content = f"{scheme[0]}://{rest}"
    state.pos += 3 + len(rest)
    return True
