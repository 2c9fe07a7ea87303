r"""Paragraphs from Markdown to Discord's own form; pure.

In Discord ``__x__`` is underlined, ``||x||`` is hidden, ``&lt;`` stays, ``2 ** 3 ** 4`` is bold in the middle. So
markdown-it reads a paragraph, and it is written in the forms that both share. Markup of Discord alone is escaped,
code stays, and every address stands in ``<>``, which ends it and hides its preview.

https://support.discord.com/hc/en-us/articles/210298617
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.token import Token

from transports.base.model_forms import with_model_forms
from transports.discord.markdown.links import address_in_brackets, link

ZERO_WIDTH = "\u200b"

MOST_AT_ONCE = 2_000
"""Characters of a piece; in a longer paragraph no markup spans two pieces."""

MOST_BRACKETS = 100
"""In one piece; with more, links are not read: each bracket is searched to the end."""

_WORDS = frozenset({"text", "text_special", "softbreak", "hardbreak"})
_LIVE = re.compile(
    r"(?P<at>\\?@)(?=(?:everyone|here)(?![A-Za-z0-9]))|\\.|_{2,}+|\|{2,}+|`++|\]\("
    r"|\*\*(?P<bold>(?=\S)[^*\n]++(?<=\S))\*\*(?!\*)|\*{2,}+",
    re.DOTALL,
)
_PUNCTUATION = re.compile(r"[!-/:-@\[-`{-~]")
_TICKS = re.compile("`+")
_INERT = re.compile(
    r"(?P<url>https?://[^\s<>]++)|<@!?\d{1,20}>|(?P<at>@)(?=(?:everyone|here)(?![A-Za-z0-9]))|[\\*_~|`\[\]<>]"
)


def prose(text: str, *, bold: bool = False) -> str:
    """Return a paragraph in Discord's form; all of it ``bold``, if it is not blank."""
    written = "".join(_Writer(bold=bold).write(tokens) for tokens in _read(text))
    return f"**{written}**" if bold and written.strip() else written


def words(text: str) -> str:
    """Return a paragraph without markup."""
    return "".join(_plain(tokens) for tokens in _read(text))


def escaped(text: str) -> str:
    """Return plain *text* in one line without markup; a mention of one person stays."""

    def escape(found: re.Match[str]) -> str:
        if found["url"] or len(found[0]) > 1:
            return f"<{found[0]}>" if found["url"] else found[0]
        return f"@{ZERO_WIDTH}" if found["at"] else f"\\{found[0]}"

    return _INERT.sub(escape, " ".join(text.split()))


def _read(text: str) -> Iterator[Sequence[Token]]:
    """Read a text in pieces of bounded length, so that the time stays linear."""
    at = 0
    while at < len(text):
        if (end := min(at + MOST_AT_ONCE, len(text))) < len(text):
            border = max(text.rfind("\n", at, end), text.rfind(" ", at, end))
            end = border + 1 if border > at else end
        piece = text[at:end]
        said = piece.rstrip()  # the reader may drop blanks at the end
        yield _parser(links=piece.count("[") <= MOST_BRACKETS).parseInline(said)[0].children or ()
        if blank := piece[len(said) :]:
            yield (Token("text", "", 0, content=blank),)
        at = end


@cache
def _parser(*, links: bool) -> MarkdownIt:
    parser = MarkdownIt("commonmark").enable("strikethrough").disable(["html_inline", "text_join"])
    with_model_forms(parser).inline.ruler.before("autolink", "address in brackets", address_in_brackets)
    return parser if links else parser.disable(["link", "image"])


class _Writer:
    """Writes the tokens of one piece; ``bold``: the piece stands in bold as a whole."""

    __slots__ = ("_bold", "_closers", "_label", "_out", "_raw")

    def __init__(self, *, bold: bool) -> None:
        self._bold = bold
        self._out: list[str] = []
        self._raw: list[str] = []
        self._closers: list[str] = []
        self._label: tuple[int, str] | None = None

    def write(self, tokens: Sequence[Token]) -> str:
        for at, token in enumerate(tokens):
            if token.type in _WORDS:
                self._raw.append(_raw(token, "\n" if self._label is None else " "))
            else:
                self._flush()
                self._markup(token, tokens, at)
        self._flush()
        return "".join(self._out)

    def _flush(self) -> None:
        if self._raw:
            self._out.append(_harmless("".join(self._raw)))
            self._raw.clear()

    def _markup(self, token: Token, tokens: Sequence[Token], at: int) -> None:
        match token.type:
            case "em_open" | "strong_open" | "s_open":
                mark = self._mark(token, tokens, at)
                self._closers.append(mark)
                self._out.append(mark)
            case "em_close" | "strong_close" | "s_close":
                self._out.append(self._closers.pop())
            case "code_inline":
                self._out.append(_code(token))
            case "address":
                self._out.append(f"<{token.content}>")
            case "image":
                alt = _Writer(bold=self._bold).write(token.children or ()).replace("\n", " ")
                self._out.append(
                    alt if self._label else link(alt or "image", str(token.attrGet("src") or ""))
                )
            case "link_open":
                self._label = len(self._out), str(token.attrGet("href") or "")
            case "link_close" if self._label:
                (begin, url), self._label = self._label, None
                label, beyond = "".join(self._out[begin:]), _after(tokens, at)
                self._out[begin:] = [label if token.info == "auto" else link(label, url, beyond)]
            case _:
                self._raw.append(token.content)

    def _mark(self, token: Token, tokens: Sequence[Token], at: int) -> str:
        """Return the mark of an emphasis: escaped in a product or a name, blank for bold in bold."""
        before, after = self._out[-1][-1:] if self._out else "", _after(tokens, at)[:1]
        if token.markup[0] == "*" and _operand(before) and (_operand(after) or after == "("):
            return r"\*" * len(token.markup)
        if token.type != "strong_open":
            # A second ``_`` beside it would underline.
            return "*" if token.type == "em_open" else token.markup
        return "" if self._bold else "**"


def _after(tokens: Sequence[Token], at: int) -> str:
    """Return the plain text that follows a token."""
    return tokens[at + 1].content if at + 1 < len(tokens) and tokens[at + 1].type == "text" else ""


def _operand(char: str) -> bool:
    return char.isascii() and (char.isalnum() or char in (")", "]"))


def _raw(token: Token, newline: str) -> str:
    """Return words with their escapes, and with characters in place of entities."""
    if token.type in ("softbreak", "hardbreak"):
        return newline
    if token.info != "entity":
        return token.markup or token.content
    if _PUNCTUATION.fullmatch(token.content):
        return f"\\{token.content}"
    return "".join(char for char in token.content if unicodedata.category(char) not in ("Cc", "Cf", "Cs"))


def _harmless(raw: str) -> str:
    """Escape what is markup to Discord alone, and break ``@everyone``."""

    def escape(found: re.Match[str]) -> str:
        if found["at"]:
            return f"@{ZERO_WIDTH}"
        if found["bold"]:  # unlike Markdown, Discord reads it next to a Chinese letter too
            return f"**{_harmless(found['bold'])}**"
        if found[0].startswith("\\"):
            return found[0]
        return r"]\(" if found[0] == "](" else "".join(f"\\{char}" for char in found[0])

    return _LIVE.sub(escape, raw)


def _code(token: Token) -> str:
    """Return code in one or two ticks: three begin a block, wherever they stand."""
    content, ticks = token.content, token.markup
    if len(ticks) > 2:
        longest = max(map(len, _TICKS.findall(content)), default=0)
        ticks = "``" if longest else "`"
        if longest > 1:
            content = _TICKS.sub(lambda found: ZERO_WIDTH.join(found[0]), content)
    pad = " " if content.startswith("`") or content.endswith("`") else ""
    return f"{ticks}{pad}{content}{pad}{ticks}"


def _plain(tokens: Sequence[Token]) -> str:
    out: list[str] = []
    url = ""
    for token in tokens:
        match token.type:
            case "softbreak" | "hardbreak":
                out.append(" ")
            case "link_open":
                url = str(token.attrGet("href") or "")
            case "link_close" if out[-1:] != [url]:
                out.append(f" ({url})")
            case "image":
                out.append(f"{token.content} ({token.attrGet('src')})")
            case _:
                out.append(token.content)
    return "".join(out)
