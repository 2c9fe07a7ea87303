"""Captures the head and the tail of a stream, however long it is, as text that is safe to show."""

from __future__ import annotations

import re

from threads.invisible_text import prose

_ESCAPE_SEQUENCE = re.compile(
    r"\x1b\[[0-?]{0,64}[ -/]{0,8}[@-~]"  # colours, cursor
    r"|\x1b[\]P_^X][^\x07\x1b\n]{0,4096}(?:\x07|\x1b\\)"  # titles, links, and other strings to the terminal
    r"|\x1b[ -/]{0,8}[0-Z\\^-~]"
)
_CONTROL_PICTURES = 0x2400
"""Unicode's symbols for the control characters 0 to 31."""


_MOVE = re.compile(rb"\n|\r|\x1b\[(\d{0,3})([ABEFGK])")
"""What moves a terminal's cursor to another row or back to the beginning of one, or erases a row."""

_MOVE_BEGUN = re.compile(rb"\x1b(?:\[\d{0,3})?\Z")

ROWS = 60
"""Rows that a command can still write over."""


class Screen:
    """The rows that a terminal would show: of a row that is written over, as a progress bar is, the last state.

    ``rewritten`` counts the states that are gone.
    """

    def __init__(self) -> None:
        self._rows, self._row, self._fresh = [b""], 0, False
        self._held = b""
        self.rewritten = 0

    def write(self, data: bytes, longest: int) -> bytes:
        """Take what a command writes, and return the rows that are done: above the last `ROWS`, or too long."""
        data = self._held + data
        begun = _MOVE_BEGUN.search(data)
        self._held = data[begun.start() :] if begun else b""
        at, end = 0, len(data) - len(self._held)
        for move in _MOVE.finditer(data, 0, end):
            self._put(data[at : move.start()])
            self._move(move[2] or move[0], int(move[1] or 1))
            at = move.end()
        self._put(data[at:end])
        if sum(map(len, self._rows)) > longest:
            return self.rest()
        done, self._rows = self._rows[:-ROWS], self._rows[-ROWS:]
        self._row = max(0, self._row - len(done))
        return b"".join(row + b"\n" for row in done)

    def rest(self) -> bytes:
        """Return the rows that are left, and begin anew."""
        rest = b"\n".join(self._rows)
        self._rows, self._row = [b""], 0
        return rest

    def _put(self, words: bytes) -> None:
        if words:
            if self._fresh:
                self._erase()
            self._rows[self._row] += words
            self._fresh = False

    def _move(self, how: bytes, number: int) -> None:
        match how:
            case b"K":
                if number == 2:
                    self._erase()
                return
            case b"\n" | b"B" | b"E":
                self._row += number
            case b"A" | b"F":
                self._row = max(0, self._row - number)
        self._rows += [b""] * (self._row + 1 - len(self._rows))
        self._fresh = True

    def _erase(self) -> None:
        self.rewritten += self._rows[self._row].strip() != b""
        self._rows[self._row] = b""


class OutputCapture:
    """The first and the last *size* bytes of what a stream shows in the end; ``total`` counts all of its bytes."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._screen = Screen()
        self._head, self._tail = bytearray(), bytearray()
        self._shown = self.total = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        self._keep(self._screen.write(data, self._size))

    def _keep(self, data: bytes) -> None:
        self._shown += len(data)
        room = self._size - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * self._size:
            del self._tail[: -self._size]

    @property
    def left_out(self) -> int:
        """Return the number of bytes between head and tail."""
        self._keep(self._screen.rest())
        return max(0, self._shown - 2 * self._size)

    def text(self) -> str:
        """Return head and tail as text that is safe to show."""
        left_out = self.left_out
        over = self._screen.rewritten
        states = f"\n[{over} earlier states of lines that were written over are left out]" if over else ""
        if not left_out:
            return plain(bytes(self._head + self._tail)) + states
        head, tail = bytes(self._head), bytes(self._tail[-self._size :])
        return f"{plain(head)}\n[... {left_out} bytes left out ...]\n{plain(tail)}{states}"


def plain(data: bytes) -> str:
    """Return *data* as text without terminal sequences; invisible and reordering characters become visible."""
    text = _ESCAPE_SEQUENCE.sub("", data.decode("utf-8", "replace")).replace("\r\n", "\n").replace("\r", "\n")
    return prose(text, _visible)


def _visible(character: str) -> str:
    code = ord(character)
    return chr(_CONTROL_PICTURES + code) if code < 32 else f"<U+{code:04X}>"
