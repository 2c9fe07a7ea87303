"""Text as the edges need it: pure functions that no single platform owns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256

_CONTROLS = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0)])
_CONTROLS.pop(ord("\n"))
_CONTROLS.pop(ord("\t"))

_UNSEEN = re.compile("[\ud800-\udfff\u202a-\u202e\u2066-\u2069]")

PREFIX = r"(?:>[ \t]?+|(?:[-*+]|\d{1,9}[.)])[ \t]++|[ \t]++)*+"
"""The marks of quotes and list items, and the indentation, that a line may begin with."""

_OPENER = re.compile(rf"({PREFIX})(`{{3,}}+(?=[^`\n]*$)|~{{3,}}+)([^\n]*)")
_DELIMITER = re.compile(r"[ \t>]*+\|?[ \t]*+:?-++:?[ \t]*+(?:\|[ \t]*+:?-++:?[ \t]*+)*+\|?[ \t]*+(?=\n|\Z)")
_SENTENCE = re.compile(r"[.!?…][\"')\]*_]*+(?=\s)|[。！？]")  # noqa: RUF001 - they end sentences too
_BLANK_LINES = re.compile(r"(?:[ \t\r]*+\n)*+")
_SPACES = re.compile(r"[ \t]*+")
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_MOST_QUOTES = 32


def without_controls(text: str) -> str:
    """Drop every C0 and C1 control but newline and tab: what is left cannot steer a terminal."""
    return text.translate(_CONTROLS)


def clean(text: str) -> str:
    """Drop what no reader sees, and what turns the reading direction."""
    return _UNSEEN.sub("", without_controls(text.replace("\u2028", "\n").replace("\u2029", "\n")))


def trim_address(address: str) -> str:
    """Return *address* without the punctuation that belongs to the sentence around it."""
    while address:
        last = address[-1]
        if last not in ".,;:!?'*_~)" or (last == ")" and address.count("(") >= address.count(")")):
            break
        address = address[:-1]
    return address


def digest(*words: str) -> str:
    """Return a short name made of these words, the same each time."""
    return sha256("\0".join(words).encode("utf-8", "replace")).hexdigest()[:20]


@dataclass(frozen=True, slots=True)
class Fence:
    """An open block of code. ``prefix`` goes before its closing line, ``quotes`` is how deep in quotes it lies."""

    prefix: str
    mark: str
    info: str
    quotes: int

    @property
    def opening(self) -> str:
        return f"{self.prefix}{self.mark}{self.info}\n"

    @property
    def closing(self) -> str:
        return f"\n{self.prefix}{self.mark}"

    def reopened(self) -> Fence:
        """Return the same fence as it stands in a text of its own, where no list goes on."""
        return replace(self, prefix="> " * self.quotes)


def fence_after(line: str, fence: Fence | None) -> Fence | None:
    """Return the fence that is open after *line*, given the one open before it; a quote's end is its fence's."""
    if fence is not None:
        inside = _unquoted(line, fence.quotes)
        if inside is not None:
            closing = inside.strip(" \t\r")
            closes = len(closing) >= len(fence.mark) and closing.strip(fence.mark[0]) == ""
            return None if closes else fence
    found = _OPENER.fullmatch(line)
    if found is None or found[1].count(">") > _MOST_QUOTES:
        return None
    return Fence(continued(found[1]), found[2], found[3].rstrip(), found[1].count(">"))


def continued(prefix: str) -> str:
    """Return what the next lines begin with where a line began with *prefix*: a list's mark becomes spaces."""
    return re.sub(r"[^\s>]", " ", prefix)


def _unquoted(line: str, quotes: int) -> str | None:
    for _ in range(quotes):
        line = line.lstrip(" \t")
        if not line.startswith(">"):
            return None
        line = line[1:]
    return line


def is_delimiter(line: str) -> bool:
    """Tell whether *line* is what stands between a table's header and its rows."""
    return "|" in line and _DELIMITER.fullmatch(line) is not None


@dataclass(frozen=True, slots=True)
class _Border:
    """The border before the line ``at``, and what is open there: a fence, or a table that begins with ``header``.

    ``above`` is the line before, which may turn out to be a table's header. A ``paragraph`` ends at a blank line,
    and is the best border to cut at.
    """

    at: int
    fence: Fence | None = None
    header: str = ""
    above: str = ""
    paragraph: bool = False

    @property
    def opening(self) -> str:
        return self.fence.opening if self.fence else self.header

    @property
    def closing(self) -> str:
        return self.fence.closing if self.fence else ""


def split(text: str, limit: int, *, size: Callable[[str], int] = len) -> list[str]:
    """Split into parts of at most *limit*, as *size* counts; nothing is lost but white space at the borders.

    A cut is made after a paragraph, else a line, a sentence, a word, else between two characters. A fence is closed
    and opened again, and a table's header is repeated, unless that takes over a quarter of *limit*. *size* must add
    up over characters and count at least 1 for each; only a character of more than *limit* makes a larger part.
    """
    return list(_Splitter(text, limit, size).parts())


@dataclass(frozen=True, slots=True)
class _Splitter:
    text: str
    limit: int
    size: Callable[[str], int]

    def parts(self) -> Iterator[str]:
        begin = _Border(0)
        while begin.at < len(self.text):
            end = self._cut(begin)
            piece = self.text[begin.at : end.at]
            piece = piece.removesuffix("\n") if end.fence else piece.rstrip(" \t\r\n")
            if piece.strip():
                yield begin.opening + piece + end.closing
            begin = self._next(end)

    def _next(self, border: _Border) -> _Border:
        """Skip what a part need not begin with: blank lines, spaces amid a line, the end of a fence."""
        at = border.at
        if border.fence:
            fence = border.fence.reopened()
            end = self.text.find("\n", at, at + self.limit)
            line = self.text[at:end]
            ends = end >= 0 and fence_after(line, fence) is None and _OPENER.fullmatch(line.lstrip("> \t"))
            return _Border(end + 1) if ends else replace(border, fence=fence)
        at_line = self.text[at - 1] == "\n"
        start = at if at_line else _end(_SPACES, self.text, at)
        after = _end(_BLANK_LINES, self.text, start)
        ends_table = after > start + (not at_line)
        return _Border(after) if ends_table else replace(border, at=after)

    def _cut(self, begin: _Border) -> _Border:
        """Return the border where the part that starts at *begin* ends."""
        room = self.limit - self.size(begin.opening)
        stop = begin.at + self._fitting(begin.at, room)
        borders, here, used = self._lines(begin, stop, room)
        if borders and borders[-1].at == len(self.text):
            return borders[-1]
        least = begin.at + max(1, (stop - begin.at) // 3)
        if far := [border for border in borders if border.at >= least]:
            return max(far, key=lambda border: (border.paragraph, border.at))
        fit = min(stop, here.at + self._fitting(here.at, room - used - self.size(here.closing)))
        if (end := self._amid(max(here.at + 1, least), fit, words=here.fence is None)) is None and borders:
            return borders[-1]
        end = max(end or _cluster_border(self.text, here.at, fit), begin.at + 1)
        after = self._after(here, self.text[here.at : end], end)
        fits = used + self.size(self.text[here.at : end] + after.closing) <= room
        return after if fits else _Border(end)

    def _lines(self, begin: _Border, stop: int, room: int) -> tuple[list[_Border], _Border, int]:
        """Return the borders of whole lines in reach; then the border before the line beyond, and the room used."""
        borders: list[_Border] = []
        here, used = begin, 0
        while here.at < stop:
            if (newline := self.text.find("\n", here.at, stop)) < 0 and stop < len(self.text):
                break
            end = stop if newline < 0 else newline + 1
            line = self.text[here.at : end].removesuffix("\n")
            after = self._after(here, line, end)
            if used + self.size(line + after.closing) > room:
                break
            used += self.size(self.text[here.at : end])
            if end == len(self.text) or self._may_end(line, here, after):
                borders.append(after)
            here = after
        return borders, here, used

    def _may_end(self, line: str, here: _Border, after: _Border) -> bool:
        """Keep a fence's first line with its second, and a table's header with what makes it one."""
        if after.fence:
            return here.fence is not None
        is_header = "|" in line and _DELIMITER.match(self.text, after.at, after.at + self.limit)
        return after.header != "" or not is_header

    def _after(self, here: _Border, line: str, end: int) -> _Border:
        """Return the border after *line*, which begins at the border *here* and ends at *end*."""
        fence = fence_after(line, here.fence)
        if fence is not None and (fence is here.fence or self._affordable(fence.opening + fence.closing)):
            return _Border(end, fence)
        if here.fence is not None:
            return _Border(end, paragraph=not line.strip())
        if here.header and "|" in line:
            return replace(here, at=end)
        if "|" in here.above and is_delimiter(line) and self._affordable(f"{here.above}\n{line}\n"):
            return _Border(end, header=f"{here.above}\n{line}\n")
        return _Border(end, above=line, paragraph=not line.strip())

    def _affordable(self, repeated: str) -> bool:
        return self.size(repeated) <= self.limit // 4

    def _amid(self, least: int, most: int, *, words: bool) -> int | None:
        """Return the last border of a sentence, else of a word, in reach."""
        if words:
            sentences = [found.end() for found in _SENTENCE.finditer(self.text, least, most)]
            if sentences:
                return sentences[-1]
        space = self.text.rfind(" ", least, most)
        return space if space >= 0 else None

    def _fitting(self, at: int, room: int) -> int:
        """Return how many characters from *at* fit into *room*."""
        low, high = 0, max(0, min(room, len(self.text) - at))
        while low < high:
            middle = high if low == 0 and high == room else (low + high + 1) // 2
            if self.size(self.text[at : at + middle]) <= room:
                low = middle
            else:
                high = middle - 1
        return low


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


def _cluster_border(text: str, start: int, end: int) -> int:
    """Return the last border at or before *end* that cuts through nothing a person sees as one character."""
    from wcwidth import grapheme_boundary_before  # noqa: PLC0415 - 9 ms that a chat in the terminal does not need

    border = grapheme_boundary_before(text, end + 1) if end < len(text) else end
    if _PAIR.match(text, border - 1):
        border -= 1
    return border if border > start else end
