"""Fences and tables in unfinished safe text; pure.

A streamed table shows as raw pipes and cannot be taken back. So `TableHold` replaces a table by a note, and the final
text has the table.

| mode      | the next piece                          | output                         | next mode |
|-----------|-----------------------------------------|--------------------------------|-----------|
| text      | has a pipe, outside a fence             | what is before the pipe        | header    |
| header    | ends the line                           | nothing                        | delimiter |
| delimiter | a whole line such as ``|---|:-:|``      | the note that a table follows  | table     |
| delimiter | anything else                           | what was held                  | text      |
| table     | a blank line or the start of a block    | that line                      | text      |
| table     | another line                            | nothing                        | table     |
"""

from __future__ import annotations

import re
from typing import Literal

from transports.base.text import Fence, fence_after, is_delimiter

TABLE_FOLLOWS = "_(a table, shown when the answer is complete)_\n"

LONGEST_LINE = 2_000
"""Characters of a line that are held."""

_PIECES = re.compile(r"[^\n]*\n|[^\n]+")
_MAYBE_DELIMITER = re.compile(r"[ \t>|:\-]*")
_BLOCK = re.compile(r"\s*\Z|\s*(?:```|~~~|#{1,6} |[-*+] |\d+[.)] )")


class Fences:
    """Follows a growing text; ``open`` is the code block at its end."""

    __slots__ = ("_line", "open")

    def __init__(self) -> None:
        self.open: Fence | None = None
        self._line = ""

    @property
    def seam(self) -> tuple[str, str]:
        """Return the end of a message that ends here, and the beginning of the next one."""
        if self.open is None:
            return "", ""
        closing = self.open.closing
        return (closing if self._line else closing[1:]), self.open.reopened().opening

    def feed(self, text: str) -> None:
        for piece in _PIECES.findall(text):
            self._line = (self._line + piece)[:LONGEST_LINE]
            if piece.endswith("\n"):
                self.open = fence_after(self._line.rstrip("\n"), self.open)
                self._line = ""


class TableHold:
    """Passes text on, except tables."""

    __slots__ = ("_fences", "_held", "_line", "_mode")

    def __init__(self) -> None:
        self._fences = Fences()
        self._mode: Literal["text", "header", "delimiter", "table"] = "text"
        self._held = ""
        self._line = ""

    def feed(self, delta: str) -> str:
        return "".join(self._take(piece) for piece in _PIECES.findall(delta))

    def end(self) -> str:
        """Return the held rest, unless it is a table."""
        return "" if self._mode == "table" else self._release() + self._line

    def _take(self, piece: str) -> str:
        match self._mode:
            case "text":
                return self._text(piece)
            case "header":
                return self._header(piece)
            case "delimiter":
                return self._delimiter(piece)
            case _:
                return self._row(piece)

    def _text(self, piece: str) -> str:
        at = -1 if self._fences.open else piece.find("|")
        if at < 0:
            self._fences.feed(piece)
            return piece
        self._mode, self._held = "header", ""
        self._fences.feed(f"{piece[:at]}\n")  # a line with a pipe opens no code
        return piece[:at] + self._header(piece[at:])

    def _header(self, piece: str) -> str:
        self._held += piece
        if len(self._held) > LONGEST_LINE:
            return self._release()
        if piece.endswith("\n"):
            self._mode, self._line = "delimiter", ""
        return ""

    def _delimiter(self, piece: str) -> str:
        self._line += piece
        if (
            not piece.endswith("\n")
            and len(self._line) < LONGEST_LINE
            and _MAYBE_DELIMITER.fullmatch(self._line)
        ):
            return ""
        line, self._line = self._line, ""
        if is_delimiter(line.rstrip("\n")):
            self._mode, self._held = "table", ""
            return TABLE_FOLLOWS
        return self._release() + self._text(line)

    def _row(self, piece: str) -> str:
        self._line = (self._line + piece)[:LONGEST_LINE]
        if not piece.endswith("\n"):
            return ""
        line, self._line = self._line, ""
        if not _BLOCK.match(line):
            return ""
        self._mode = "text"
        return self._text(line)

    def _release(self) -> str:
        held, self._mode, self._held = self._held, "text", ""
        return held
