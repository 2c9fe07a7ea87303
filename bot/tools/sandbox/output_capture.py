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


class OutputCapture:
    """The first and the last *size* bytes of a stream; ``total`` counts all bytes."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._head, self._tail = bytearray(), bytearray()
        self.total = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = self._size - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * self._size:
            del self._tail[: -self._size]

    @property
    def left_out(self) -> int:
        """Return the number of bytes between head and tail."""
        return max(0, self.total - 2 * self._size)

    def text(self) -> str:
        """Return head and tail as text that is safe to show."""
        if not self.left_out:
            return plain(bytes(self._head + self._tail))
        head, tail = bytes(self._head), bytes(self._tail[-self._size :])
        return f"{plain(head)}\n[... {self.left_out} bytes left out ...]\n{plain(tail)}"


def plain(data: bytes) -> str:
    """Return *data* as text without terminal sequences; invisible and reordering characters become visible."""
    text = _ESCAPE_SEQUENCE.sub("", data.decode("utf-8", "replace")).replace("\r\n", "\n").replace("\r", "\n")
    return prose(text, _visible)


def _visible(character: str) -> str:
    code = ord(character)
    return chr(_CONTROL_PICTURES + code) if code < 32 else f"<U+{code:04X}>"
