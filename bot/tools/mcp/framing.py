"""What comes out of a server's two streams: lines that hold a message, lines for people, both within bounds."""

from __future__ import annotations

from collections.abc import Callable

from bot.guards.redaction import safe_prefix
from bot.tools.mcp.tool_list import clean, truncate

MAX_MESSAGE = 20_000_000
"""Bytes of one message; many servers say a result twice in it, as text and as data."""
MAX_STRANGE = 1000
"""Lines that look like a message and are none, until a server is given up."""
MAX_REMARK = 500
"""Characters of a line of a server's standard error that are logged."""
MAX_REMARKS = 50
"""Lines of a connection's standard error that are logged."""
MAX_LAST = 2000
"""Bytes of a server's last words that are kept."""


class ConnectionLost(Exception):
    """A server does not speak to us any more; ``str(error)`` says why, in words of ours."""


class LineSplitter:
    """Splits standard output into lines that may be messages; a debug print among them is passed over."""

    def __init__(self, limit: int = MAX_MESSAGE) -> None:
        self._limit = limit
        self._begun: list[bytes] = []
        self._size = self._invalid = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that *data* ends. Raises `ConnectionLost` for a message over the limit."""
        *ended, begun = data.split(b"\n")
        if ended:
            ended[0] = b"".join([*self._begun, ended[0]])
            self._begun, self._size = [], 0
        self._begun.append(begun)
        self._size += len(begun)
        if max(self._size, *map(len, ended[:1]), 0) > self._limit:
            raise ConnectionLost(f"it sent a message of more than {self._limit:,} bytes")
        return [line for line in ended if line.startswith(b"{")]

    def count_invalid(self) -> None:
        """Count a line that looked like a message and is none. Raises `ConnectionLost` when there were too many."""
        self._invalid += 1
        if self._invalid > MAX_STRANGE:
            raise ConnectionLost("what it writes on its standard output is not MCP")


class StderrLog:
    """Hears standard error: *say* gets its first lines, masked; its last words are kept."""

    def __init__(self, say: Callable[[str], None], mask: Callable[[str], str]) -> None:
        self._say, self.mask = say, mask
        self._left = MAX_REMARKS
        self._begun = b""
        self._last = b""

    def feed(self, data: bytes) -> bool:
        """Take what was written; returns whether more of it will be said."""
        self._last = (self._last + data[-MAX_LAST:])[-MAX_LAST:]
        if self._left <= 0:
            return False
        *ended, begun = (self._begun + data).split(b"\n", self._left)
        self._begun = begun[: 4 * MAX_REMARK]
        for line in ended:
            self._left -= 1
            if said := self._plain(line):
                self._say(said)
        if self._left <= 0:
            self._say("(it says more than is logged)")
        return True

    @property
    def last(self) -> str:
        """Return the last line, for people; nothing if there was none, or if its beginning was not kept."""
        # The first of what was kept may begin inside a secret.
        whole = self._last if len(self._last) < MAX_LAST else self._last.partition(b"\n")[2]
        lines = [line for line in whole.split(b"\n") if line.strip()]
        return self._plain(lines[-1]) if lines else ""

    def _plain(self, line: bytes) -> str:
        text = clean(line[: 4 * MAX_REMARK].decode("utf-8", "replace"))
        return truncate(self.mask(safe_prefix(text, 2 * MAX_REMARK, self.mask)), MAX_REMARK, self.mask)
