"""What a connection to a server needs on both wires: its settings with their secrets, and the log of its stderr."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Mapping

from bot.config.load import resolve_secret
from bot.config.settings import REFERENCE
from bot.extensions.mcp.plain_text import clean, truncate
from bot.extensions.mcp.settings import McpServer
from bot.guards.redaction import safe_prefix

MAX_MESSAGE = 20_000_000
"""Bytes of one message; many servers send a result twice in it, as text and as data."""
MAX_LINE = 500
"""Characters of one line of standard error that are logged."""
MAX_LINES = 50
"""Lines of a connection's standard error that are logged."""
MAX_READ = 4 * MAX_LINE
"""Bytes of one line of standard error that are read."""
INHERITED = ("PATH", "HOME", "LANG")
"""The variables of our environment that a server gets."""
RULES = 2
"""Counts up when the rules of `bot.extensions.mcp.tool_list` change: stored lists are then replaced."""


class ConnectionLost(Exception):
    """The connection to a server is over; ``str(error)`` says why, in our own words."""


class NotRun(ConnectionLost):
    """The connection is over, and the request that found out cannot have run, so it can be made again."""


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
    text = settings.model_dump_json(exclude=None if settings.oauth else {"oauth"})
    return hashlib.sha256(f"{RULES}{text}".encode()).hexdigest()[:16]


class StderrLog:
    """Reads standard error: passes its first lines, masked, to *log_line*, and keeps the last one."""

    def __init__(self, log_line: Callable[[str], None], mask: Callable[[str], str]) -> None:
        self._log_line, self.mask = log_line, mask
        self._lines_left = MAX_LINES
        self._partial = self._last = b""

    def feed(self, data: bytes) -> bool:
        """Take what was written; returns whether more of it will be logged."""
        *complete, partial = (self._partial + data).split(b"\n")
        self._partial = partial[:MAX_READ]
        for line in filter(bytes.strip, complete):
            self._last = line[:MAX_READ]
            if self._lines_left > 0:
                self._lines_left -= 1
                self._log_line(self._plain(line))
                if self._lines_left == 0:
                    self._log_line("(it says more than is logged)")
        return self._lines_left > 0

    @property
    def last(self) -> str:
        """Return the last line, for people, or ""."""
        return self._plain(self._partial if self._partial.strip() else self._last)

    def _plain(self, line: bytes) -> str:
        text = clean(line[:MAX_READ].decode("utf-8", "replace"))
        return truncate(self.mask(safe_prefix(text, 2 * MAX_LINE, self.mask)), MAX_LINE, self.mask)
