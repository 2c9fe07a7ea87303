"""Secrets stay out of text that is shown while it grows, where one may come in pieces.

The last word is held back until it is whole, and so is a line that may begin a private key; what is shown is never
taken back. A line is masked as one, so a key is known by the name before it. A cheap search for what is
suspicious keeps the many lines that hold nothing from being masked at every piece.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from bot.guards.secrets import MIN_LITERAL
from threads.model import OnEvent, TextDelta, TextReset, ThinkingDelta, TurnEvent

LONGEST = 4_000
"""Characters of a line, or of a key, after which a new one is begun."""

_SHAPES = (
    r"-----begin|authorization|bearer|token|secret|passw|api[_-]?key|access[_-]?key|ticket|signature|://|webhooks"
    r"|xox|xapp|sk-|gh[a-z]_|github_pat|a[ks]ia|aiza|eyj|[mno][\w-]{22}|[?&][\w.-]{0,60}="
)
_KEY = "-----BEGIN"
_KEY_ENDS = "PRIVATE KEY-----"


def suspicion(literals: Iterable[str] = ()) -> re.Pattern[str]:
    """Return what finds every line that `bot.guards.secrets.Masker` of the same literals could change, and more."""
    known = [re.escape(literal[:MIN_LITERAL]) for literal in literals if len(literal) >= MIN_LITERAL]
    return re.compile("|".join([_SHAPES, *known]), re.IGNORECASE)


class Veiled:
    """A listener in front of another one, for one turn: what it is told has its secrets masked."""

    def __init__(self, tell: OnEvent, mask: Callable[[str], str], suspicious: re.Pattern[str]) -> None:
        self._tell, self._mask, self._suspicious = tell, mask, suspicious
        self._line = self._shown = ""

    async def __call__(self, event: TurnEvent) -> None:
        match event:
            case TextDelta(text=text):
                for piece in text.splitlines(keepends=True):
                    await self._add(piece)
            case ThinkingDelta(text=text):
                await self._tell(ThinkingDelta(self._mask(text)))
            case TextReset():
                self._line = self._shown = ""
                await self._tell(event)
            case _:
                await self._show(len(self._line))
                self._line = self._shown = ""
                await self._tell(event)

    async def finish(self) -> None:
        """Show what was held back: the text is whole."""
        await self._show(len(self._line))
        self._line = self._shown = ""

    async def _add(self, piece: str) -> None:
        self._line += piece
        key = self._line.rfind(_KEY)
        in_key = key >= 0 and self._line.count(_KEY_ENDS, key) < 2
        whole = self._line.endswith("\n") and not in_key
        if whole or len(self._line) > LONGEST:
            await self.finish()
        elif not in_key:
            await self._show(1 + max(self._line.rfind(" "), self._line.rfind("\t")))

    async def _show(self, end: int) -> None:
        text = self._line[:end]
        masked = self._mask(text) if self._suspicious.search(text) else text
        if len(masked) > len(self._shown) and masked.startswith(self._shown):
            await self._tell(TextDelta(masked[len(self._shown) :]))
            self._shown = masked
