"""What a connection to a server needs on both wires: its settings with their secrets, and the log of its stderr."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Mapping

from bot.config.load import resolve_secret
from bot.config.settings import REFERENCE, McpServer
from bot.guards.redaction import safe_prefix
from bot.tools.mcp.tool_list import clean, truncate

MAX_MESSAGE = 20_000_000
"""Bytes of one message; many servers send a result twice in it, as text and as data."""
MAX_LINE = 500
"""Characters of one line of standard error that are logged."""
MAX_LINES = 50
"""Lines of a connection's standard error that are logged."""
MAX_LAST = 2000
"""Bytes of the end of standard error that are kept."""
INHERITED = ("PATH", "HOME", "LANG")
"""The variables of our environment that a server gets."""
RULES = 1
"""Counts up when the rules of `bot.tools.mcp.tool_list` change: stored lists are then replaced."""


class ConnectionLost(Exception):
    """The connection to a server is over; ``str(error)`` says why, in our own words."""


def resolve_values(settings: McpServer, environ: Mapping[str, str]) -> tuple[dict[str, str], Collection[str]]:
    """Return the server's headers or its whole environment, and the secrets in them.

    Blocking. Raises `ConfigInvalid`.
    """
    values = dict(settings.headers if settings.url else settings.env)
    secrets = {name: resolve_secret(v, environ) for name, v in values.items() if REFERENCE.fullmatch(v)}
    inherited = {name: environ[name] for name in INHERITED if name in environ}
    base = {} if settings.url else {"PATH": os.defpath, **inherited}
    return base | values | secrets, secrets.values()


def settings_digest(settings: McpServer) -> str:
    """Return a digest of these settings; it covers secrets by reference only."""
    return hashlib.sha256(f"{RULES}{settings.model_dump_json()}".encode()).hexdigest()[:16]


class StderrLog:
    """Reads standard error: passes its first lines, masked, to *log_line*, and keeps its end."""

    def __init__(self, log_line: Callable[[str], None], mask: Callable[[str], str]) -> None:
        self._log_line, self.mask = log_line, mask
        self._lines_left = MAX_LINES
        self._partial = self._last = b""

    def feed(self, data: bytes) -> bool:
        """Take what was written; returns whether more of it will be logged."""
        self._last = (self._last + data[-MAX_LAST:])[-MAX_LAST:]
        if self._lines_left <= 0:
            return False
        *complete, partial = (self._partial + data).split(b"\n", self._lines_left)
        self._partial = partial[: 4 * MAX_LINE]
        for line in complete:
            self._lines_left -= 1
            if text := self._plain(line):
                self._log_line(text)
        if self._lines_left <= 0:
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
