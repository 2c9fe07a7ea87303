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


def utf8_size(text: str) -> int:
    """Return how many bytes *text* has in UTF-8; a lone surrogate counts as three."""
    return len(text.encode("utf-8", "surrogatepass"))


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
class _Place:
    """What is open at the border of a line: a fence, or a table of which ``header`` is the first two lines.

    ``above`` is the line before, which may turn out to be a table's header.
    """

    fence: Fence | None = None
    header: str = ""
    above: str = ""

    @property
    def opening(self) -> str:
        return self.fence.opening if self.fence else self.header

    @property
    def closing(self) -> str:
        return self.fence.closing if self.fence else ""

    def reopened(self) -> _Place:
        return replace(self, fence=self.fence and self.fence.reopened())


@dataclass(frozen=True, slots=True)
class _Border:
    """A place to cut: the part ends before ``at``. A ``paragraph`` is better than any other line."""

    at: int
    place: _Place
    paragraph: bool = False


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
        at, place = 0, _Place()
        while at < len(self.text):
            border = self._cut(at, place)
            piece = self.text[at : border.at]
            piece = piece.removesuffix("\n") if border.place.fence else piece.rstrip(" \t\r\n")
            if piece.strip():
                yield place.opening + piece + border.place.closing
            at, place = self._next(border)

    def _next(self, border: _Border) -> tuple[int, _Place]:
        """Skip what need not be said at the start of a part: blank lines, spaces amid a line, a fence's end."""
        at, place = border.at, border.place.reopened()
        if place.fence:
            end = self.text.find("\n", at, at + self.limit)
            line = self.text[at:end]
            ends = end >= 0 and fence_after(line, place.fence) is None
            return (end + 1, _Place()) if ends and _OPENER.fullmatch(line.lstrip("> \t")) else (at, place)
        start = at
        if self.text[at - 1] != "\n":
            start = _end(_SPACES, self.text, at)
        after = _end(_BLANK_LINES, self.text, start)
        ends_table = after > start + 1 or (after > start and self.text[at - 1] == "\n")
        return after, (_Place() if ends_table else place)

    def _cut(self, at: int, place: _Place) -> _Border:
        room = self.limit - self.size(place.opening)
        stop = at + self._fitting(at, room)
        borders, start, here, used = self._lines(at, stop, place, room)
        if borders and borders[-1].at == len(self.text):
            return borders[-1]
        least = at + max(1, (stop - at) // 3)
        far = [border for border in borders if border.at >= least]
        for border in [*(border for border in reversed(far) if border.paragraph), *reversed(far)]:
            return border
        fit = min(stop, start + self._fitting(start, room - used - self.size(here.closing)))
        end = self._amid(max(start + 1, least), fit, words=here.fence is None)
        if end is None and borders:
            return borders[-1]
        end = max(end or _cluster_border(self.text, start, fit), at + 1)
        after = self._after(here, self.text[start:end])
        fits = used + self.size(self.text[start:end] + after.closing) <= room
        return _Border(end, after if fits else _Place())

    def _lines(self, at: int, stop: int, place: _Place, room: int) -> tuple[list[_Border], int, _Place, int]:
        """Return the borders of whole lines in reach; then where the line beyond begins, its place, the room used."""
        borders: list[_Border] = []
        start, here, used = at, place, 0
        while start < stop:
            newline = self.text.find("\n", start, stop)
            if newline < 0 and stop < len(self.text):
                break
            end = stop if newline < 0 else newline + 1
            line = self.text[start:end].removesuffix("\n")
            after = self._after(here, line)
            if used + self.size(self.text[start:end].rstrip("\n") + after.closing) > room:
                break
            used += self.size(self.text[start:end])
            if end == len(self.text) or self._may_end(line, here, after, end):
                borders.append(_Border(end, after, paragraph=not after.fence and not line.strip()))
            start, here = end, after
        return borders, start, here, used

    def _may_end(self, line: str, here: _Place, after: _Place, end: int) -> bool:
        """Keep a fence's first line with its second, and a table's header with what makes it one."""
        if after.fence:
            return here.fence is not None
        return after.header != "" or "|" not in line or not _DELIMITER.match(self.text, end, end + self.limit)

    def _after(self, here: _Place, line: str) -> _Place:
        fence = fence_after(line, here.fence)
        if fence is not None and (fence is here.fence or self._affordable(fence.opening + fence.closing)):
            return _Place(fence)
        if here.fence is not None:
            return _Place()
        if here.header and "|" in line:
            return here
        if "|" in here.above and is_delimiter(line) and self._affordable(f"{here.above}\n{line}\n"):
            return _Place(header=f"{here.above}\n{line}\n")
        return _Place(above=line)

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
