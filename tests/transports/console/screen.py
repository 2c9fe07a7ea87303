"""A terminal small enough to trust: what a person would see, from what a program wrote.

It knows the sequences that prompt_toolkit and rich use, and fails on any other.
"""

import codecs
import os
import re
from collections.abc import Callable

import anyio

SEQUENCE = re.compile(
    r"\x1b\[(?P<private>\?)?(?P<number>\d*)(?:;[\d;]*)?(?P<final>[A-Za-z])|(?P<char>.)", re.DOTALL
)


class Screen:
    """``text`` is everything from the first line on, scrolled away or not, without trailing blanks."""

    encoding = "utf-8"

    def __init__(self, rows: int, columns: int, answer: Callable[[str], None]) -> None:
        self.rows, self.columns, self.answer = rows, columns, answer
        self.lines = [""]
        self.x = self.y = 0
        self.wraps = True
        self.raw = ""
        self.changed = anyio.Event()

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.lines).rstrip()

    async def shows(self, *expected: str) -> None:
        await self.until(lambda: all(text in self.text for text in expected), expected)

    async def ends_with(self, expected: str) -> None:
        await self.until(lambda: self.text.endswith(expected), f"{expected} at the end")

    async def lacks(self, unwanted: str) -> None:
        await self.until(lambda: unwanted not in self.text, f"no {unwanted}")

    async def until(self, satisfied: Callable[[], bool], what: object) -> None:
        with anyio.move_on_after(20):
            while not satisfied():
                await self.changed.wait()
        assert satisfied(), f"wanted {what!r}, got\n{self.text}"

    def isatty(self) -> bool:
        return True

    def flush(self) -> None:
        """Count a drawing as done: what is between two flushes is never seen."""
        self.changed.set()
        self.changed = anyio.Event()

    def write(self, text: str) -> None:
        self.raw += text
        for found in SEQUENCE.finditer(text):
            if found["char"]:
                self._put(found["char"])
            elif not found["private"]:
                self._obey(found["final"], int(found["number"] or 0))
            elif found["number"] == "7":
                self.wraps = found["final"] == "h"

    def _put(self, char: str) -> None:
        match char:
            case "\r":
                self.x = 0
            case "\n":
                self.x, self.y = 0, self.y + 1
            case "\b":
                self.x = max(0, self.x - 1)
            case _:
                assert char.isprintable(), f"{char!r} reached the terminal"
                if self.x == self.columns and self.wraps:
                    self.x, self.y = 0, self.y + 1
                self.x = min(self.x, self.columns - 1)
                self._set(self.x, char)
                self.x += 1
        self._set(self.x, "")

    def _obey(self, final: str, number: int) -> None:
        top = max(0, len(self.lines) - self.rows)
        match final:
            case "A":
                self.y = max(top, self.y - (number or 1))
            case "B":
                self.y += number or 1
            case "C":
                self.x = min(self.columns - 1, self.x + (number or 1))
            case "D":
                self.x = max(0, self.x - (number or 1))
            case "J":
                del self.lines[self.y + 1 :]
                self.lines[self.y] = self.lines[self.y][: self.x]
            case "K":
                self.lines[self.y] = self.lines[self.y][: self.x]
            case "n":
                self.answer(f"\x1b[{self.y - top + 1};{self.x + 1}R")
            case "m":
                pass
            case _:
                raise AssertionError(f"unknown sequence {number}{final}")
        self._set(self.x, "")

    def _set(self, x: int, char: str) -> None:
        while self.y >= len(self.lines):
            self.lines.append("")
        line = self.lines[self.y].ljust(x)
        self.lines[self.y] = line[:x] + char + line[x + len(char) :]


async def show(terminal: int, screen: Screen) -> None:
    """Write to *screen* what comes out of a pseudo-terminal until its last program has left."""
    decode = codecs.getincrementaldecoder("utf-8")().decode
    while True:
        await anyio.wait_readable(terminal)
        try:
            data = os.read(terminal, 65_536)
        except OSError:  # the last program has left
            return
        screen.write(decode(data))
        screen.flush()
