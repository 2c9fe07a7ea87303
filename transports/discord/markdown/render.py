"""A model's Markdown as Discord's, in parts of a message's length; pure.

Discord reads Markdown line by line, with rules of its own: three levels of headings, no tables, no rules, fences of
ticks alone, a quote's ``>`` only before a space, ``>>>`` as a quote that never ends, ``-#`` as small print. When the
text grows by a block, every part but the last stays the same.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from transports.base.text import PREFIX, Fence, continued, fence_after, is_delimiter, split
from transports.base.text import clean as without_unseen
from transports.discord.markdown import tables
from transports.discord.markdown.inline import ZERO_WIDTH, escaped, prose

MAX_CONTENT = 2_000
"""UTF-16 units of a message's content, without white space at its ends."""

NOTHING = "…"
RULE = "─" * 12
TABLE_FOLLOWS = "*(a table, shown when it is complete)*"
MAX_NOTE = 300
"""UTF-16 units of a note, its mark included."""

_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_PREFIX = re.compile(PREFIX)
_QUOTE = re.compile(r">[ \t]?")
_MARK = re.compile(r"(?:[-*+]|\d{1,9}[.)])[ \t]++\Z")
_RULE = re.compile(r"(?:-[ \t]*+){3,}+|(?:\*[ \t]*+){3,}+|(?:_[ \t]*+){3,}+")
_QUOTES = re.compile(r"(?:[ \t]*+>)*+[ \t]*+")
_HEADING = re.compile(r"(#{1,6})(?=[ \t]|\Z)")
_BOX = re.compile(r"\[([ xX])\](?=[ \t])")
_LANGUAGE = re.compile(r"[\w+#.-]{1,40}", re.ASCII)
_UNDECIDED = re.compile(r"[ \t>]*+(?:[-+*_=#]++[ \t]*+|\d{1,3}[.)]|(?:`++|~++)[^`~\s]*+)\Z")
_VISIBLE = re.compile("[^\\s\u00ad\u200b-\u200f\u2060\ufeff]")


def utf16_size(text: str) -> int:
    """Return how many UTF-16 units *text* has, as Discord counts; a lone surrogate is one."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def clean(text: str) -> str:
    """Join surrogate pairs; drop what no reader sees, and what turns the reading direction."""
    text = _PAIR.sub(lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), text)
    return without_unseen(text)


def rendered(text: str) -> str:
    """Return a model's Markdown in Discord's form, made harmless."""
    return "\n".join(_Blocks(clean(text), growing=False).lines())


def parts(text: str, limit: int = MAX_CONTENT) -> list[str]:
    """Return *text*, rendered, in messages: at least one, each of at most *limit* units, with its fences closed."""
    return _in_parts(rendered(text), limit)


def live_parts(text: str, limit: int = MAX_CONTENT) -> list[str]:
    """Return the parts of an unfinished text, without a growing table and an undecided last line."""
    return _in_parts("\n".join(_Blocks(clean(text), growing=True).lines()), limit)


def inert(text: str) -> str:
    """Return plain words in one line, in which only addresses and mentions of a person are live."""
    return escaped(clean(text))


def note(words: str) -> str:
    """Return a line of small print."""
    line = inert(words)
    if utf16_size(line) > MAX_NOTE - 4:
        line = split(line, MAX_NOTE - 4, size=utf16_size)[0].rstrip("\\") + "…"
    return f"-# {line or NOTHING}"


def _in_parts(text: str, limit: int) -> list[str]:
    stripped = (part.strip() for part in split(text, limit, size=utf16_size))
    return [part for part in stripped if _VISIBLE.search(part)] or [NOTHING]


class _Blocks:
    """Renders a text block by block."""

    def __init__(self, text: str, *, growing: bool) -> None:
        lines = text.rstrip("\n").split("\n")
        if growing and _UNDECIDED.match(lines[-1]):
            lines.pop()
        self._lines = list(_unglued(lines))
        self._growing = growing
        self._at = 0

    def lines(self) -> Iterator[str]:
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if (fence := fence_after(line, None)) is not None:
                yield from self._fence(fence)
            elif self._table_at(self._at):
                yield from self._table()
            elif (rule := _rule(line)) is not None:
                self._at += 1
                yield rule
            else:
                yield from self._paragraph()

    def _fence(self, fence: Fence) -> Iterator[str]:
        opener = self._lines[self._at]
        margin = _margin(fence.prefix)
        language = (fence.info.split() or [""])[0]
        yield f"{_margin(opener[: len(fence.prefix)])}```{language if _LANGUAGE.fullmatch(language) else ''}"
        self._at += 1
        empty = True
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if fence_after(line, fence) is not fence:
                closes = line.strip("> \t").startswith(fence.mark) and line.count(">") >= fence.quotes
                self._at += closes
                break
            empty = False
            yield _code_line(line, fence.quotes)
            self._at += 1
        if empty:
            yield f"{margin} "  # Discord shows the ticks of a block without a character
        yield f"{margin}```"

    def _table_at(self, at: int) -> bool:
        if "|" not in self._lines[at]:
            return False
        prefix, header = _parted(self._lines[at])
        if at + 1 == len(self._lines):
            return self._growing and header.startswith("|")
        quotes, following = _unquoted(self._lines[at + 1])
        if quotes != prefix.count(">"):
            return False
        undecided = self._growing and at + 2 == len(self._lines) and header.startswith("|")
        return tables.begins(header, following) or (undecided and following.strip(":- \t")[:1] == "|")

    def _table(self) -> Iterator[str]:
        prefix, header = _parted(self._lines[self._at])
        rows = [header]
        for line in itertools.islice(self._lines, self._at + 1, None):
            quotes, row = _unquoted(line)
            if "|" not in row or quotes != prefix.count(">") or fence_after(line, None):
                break
            rows.append(row)
        self._at += len(rows)
        growing = self._growing and self._at == len(self._lines)
        margin = _margin(prefix)
        for line in [TABLE_FOLLOWS] if growing else tables.render_table(rows):
            yield margin + line
            margin = _margin(continued(prefix))

    def _paragraph(self) -> Iterator[str]:
        """Take lines up to the next block; an item or a heading begins a new paragraph."""
        prefix, content = _parted(self._lines[self._at])
        self._at += 1
        if heading := _HEADING.match(content):
            content = _heading(len(heading[1]), content[heading.end() :])
        if not content:
            prefix = prefix.rstrip(" \t")
        if heading or not content:
            yield _margin(prefix) + content
            return
        box = _BOX.match(content) if _MARK.search(prefix) else None
        if box:
            content = ("☐" if box[1] == " " else "☑") + content[box.end() :]
        margins, contents = [_margin(prefix)], [content]
        while self._at < len(self._lines) and self._goes_on(prefix.count(">")):
            prefix, content = _parted(self._lines[self._at])
            margins.append(_margin(prefix))
            contents.append(content)
            self._at += 1
        for number, line in enumerate(prose("\n".join(contents)).split("\n")):
            margin = margins[min(number, len(margins) - 1)]
            # Small print; or what the splitter, which counts no cells, would take for a table.
            live = line.startswith("-#") or is_delimiter(margin + line)
            yield f"{margin}\\{line}" if live else margin + line

    def _goes_on(self, quotes: int) -> bool:
        line = self._lines[self._at]
        prefix, content = _parted(line)
        if not content or prefix.count(">") != quotes or prefix.strip(" \t>") or _HEADING.match(content):
            return False
        return not (_rule(line) or fence_after(line, None) or self._table_at(self._at))


def _unglued(lines: list[str]) -> Iterator[str]:
    """Give a fence that opens at the end of a line (``so: ```py``) its own line, if it is closed later."""
    closer = max((at for at, line in enumerate(lines) if line.strip("> \t") == "```"), default=0)
    fence: Fence | None = None
    for at, line in enumerate(lines):
        before, mark, info = line.rpartition("```") if fence is None and at < closer else ("", "", "")
        fence = fence_after(line, fence)
        glued = mark and fence is None and not before.endswith("`") and before.count("```") % 2 == 0
        if glued and _parted(before)[1] and (not info or _LANGUAGE.fullmatch(info)):
            yield before.rstrip(" \t")
            line = f"{continued(_parted(before)[0])}```{info}"  # noqa: PLW2901 - the rest of it
            fence = fence_after(line, None)
        yield line


def _parted(line: str) -> tuple[str, str]:
    """Return a line's marks and indentation, and its words."""
    found = _PREFIX.match(line)
    prefix = found[0] if found else ""
    return prefix, line[len(prefix) :].rstrip(" \t")


def _margin(prefix: str) -> str:
    """Return a line's beginning in Discord's form: a space after each ``>``, and no ``+`` for a list."""
    return _QUOTE.sub("> ", prefix).replace("+", "-")


def _unquoted(line: str) -> tuple[int, str]:
    """Return the depth of a line's quotes, and the line without their marks and the indentation."""
    found = _QUOTES.match(line)
    return (found[0].count(">"), line[found.end() :]) if found else (0, line)


def _rule(line: str) -> str | None:
    found = _QUOTES.match(line)
    at = found.end() if found else 0
    return _QUOTE.sub("> ", line[:at]) + RULE if _RULE.fullmatch(line, at) else None


def _heading(level: int, content: str) -> str:
    words = content.strip(" \t")
    unmarked = words.rstrip("#")
    if unmarked[-1:] in ("", " ", "\t"):  # what closes a heading stands apart from its words
        words = unmarked.rstrip(" \t")
    return prose(words, bold=True) if level > 3 or not words else f"{'#' * level} {prose(words)}"


def _code_line(line: str, quotes: int) -> str:
    for _ in range(quotes):
        line = line.lstrip(" \t").removeprefix(">")
    line = line.removeprefix(" ") if quotes else line
    return "> " * quotes + re.sub("`{3,}", lambda ticks: ZERO_WIDTH.join(ticks[0]), line)
