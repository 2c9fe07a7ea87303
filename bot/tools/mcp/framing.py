"""The two output streams of a server: lines that hold a message, and lines for people, both bounded."""

from __future__ import annotations

from collections.abc import Callable

from bot.guards.redaction import safe_prefix
from bot.tools.mcp.tool_list import clean, truncate

MAX_MESSAGE = 20_000_000
"""Bytes of one message; many servers send a result twice in it, as text and as data."""
MAX_INVALID = 1000
"""Lines that look like a message but are not, before a server is given up."""
MAX_LINE = 500
"""Characters of one line of standard error that are logged."""
MAX_LINES = 50
"""Lines of a connection's standard error that are logged."""
MAX_LAST = 2000
"""Bytes of the end of standard error that are kept."""


class ConnectionLost(Exception):
    """The connection to a server is over; ``str(error)`` says why, in our own words."""


class LineSplitter:
    """Splits standard output into lines that may be messages, and skips debug prints among them."""

    def __init__(self, limit: int = MAX_MESSAGE) -> None:
        self._limit = limit
        self._partial: list[bytes] = []
        self._size = self._invalid = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that *data* ends. Raises `ConnectionLost` for a message over the limit."""
        *ended, partial = data.split(b"\n")
        if ended:
            ended[0] = b"".join([*self._partial, ended[0]])
            self._partial, self._size = [], 0
        self._partial.append(partial)
        self._size += len(partial)
        if max(self._size, *map(len, ended[:1]), 0) > self._limit:
            raise ConnectionLost(f"it sent a message of more than {self._limit:,} bytes")
        return [line for line in ended if line.startswith(b"{")]

    def count_invalid(self) -> None:
        """Count a line that is not a message after all. Raises `ConnectionLost` for too many."""
        self._invalid += 1
        if self._invalid > MAX_INVALID:
            raise ConnectionLost("what it writes on its standard output is not MCP")


class StderrLog:
    """Reads standard error: passes its first lines, masked, to *log_line*, and keeps its end."""

    def __init__(self, log_line: Callable[[str], None], mask: Callable[[str], str]) -> None:
        self._log_line, self.mask = log_line, mask
        self._left = MAX_LINES
        self._partial = b""
        self._last = b""

    def feed(self, data: bytes) -> bool:
        """Take what was written; returns whether more of it will be logged."""
        self._last = (self._last + data[-MAX_LAST:])[-MAX_LAST:]
        if self._left <= 0:
            return False
        *ended, partial = (self._partial + data).split(b"\n", self._left)
        self._partial = partial[: 4 * MAX_LINE]
        for line in ended:
            self._left -= 1
            if text := self._plain(line):
                self._log_line(text)
        if self._left <= 0:
            self._log_line("(it says more than is logged)")
        return True

    @property
    def last(self) -> str:
        """Return the last line, for people; "" if there is none, or if its beginning is lost."""
        # The first line of the rest may begin inside a secret.
        whole = self._last if len(self._last) < MAX_LAST else self._last.partition(b"\n")[2]
        lines = [line for line in whole.split(b"\n") if line.strip()]
        return self._plain(lines[-1]) if lines else ""

    def _plain(self, line: bytes) -> str:
        text = clean(line[: 4 * MAX_LINE].decode("utf-8", "replace"))
        return truncate(self.mask(safe_prefix(text, 2 * MAX_LINE, self.mask)), MAX_LINE, self.mask)
