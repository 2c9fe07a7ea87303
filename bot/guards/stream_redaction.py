"""Secrets stay out of text that is shown while it grows, where one may come in pieces.

What is shown is never taken back. So the last word is held back until it is whole, and with it all that a secret may
go on after: a name (``token: ``), the first words of a literal of several, a private key. What comes before is masked
and shown as a part of its own: a piece costs what it is long, however much was said before it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from bot.guards.redaction import ANNOUNCES, secret_forms
from threads.model import OnEvent, TextDelta, TextReset, ThinkingDelta, TurnEvent

LONGEST = 4_000
"""Characters that are held back at most. A longer word is shown in parts; of a longer key the middle is forgotten."""

_REACH = 100
"""Characters before its value in which a secret is announced, and more than a key's first or last line has."""

_KEY = "-----BEGIN"
_TAIL = 1_000
"""Characters of a long word that stay held back: more than a secret has."""

_BEGINS = re.compile(rf"{_KEY}(?: [A-Z0-9 ]{{0,40}}PRIVATE KEY-----|[A-Z0-9 ]{{0,55}}-{{0,4}}\Z)")
_ENDS = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----")

FindBoundary = Callable[[str], int]


def boundary_finder(literals: Iterable[str] = ()) -> FindBoundary:
    """Return what tells where in a text begins what cannot be judged yet; the text before it can be masked alone.

    *literals* as for `bot.guards.redaction.Masker`.
    """
    several = [form for form in secret_forms(literals) if len(form.split(maxsplit=1)) > 1]

    def certain(text: str) -> int:
        end = _word(text, len(text))
        if announced := ANNOUNCES.search(text, max(0, end - _REACH), end):
            end = _word(text, announced.start())
        end = _word(text, min(_begun(several, text, end)))
        return min(end, _open_key(text, end))

    return certain


def _word(text: str, at: int) -> int:
    """Return where the word begins that *at* is in."""
    return 1 + max(text.rfind(blank, 0, at) for blank in " \n\t")


def _begun(several: Sequence[str], text: str, end: int) -> Iterator[int]:
    """Yield where in *text*, up to *end*, literals of *several* words begin that may go on."""
    yield end
    for form in several:
        word = form.split(maxsplit=1)[0]
        at = text.find(word, 0, end)
        while at >= 0 and not form.startswith(text[at:end]):
            at = text.find(word, at + 1, end)
        if at >= 0:
            yield at


def _open_key(text: str, end: int) -> int:
    """Return where a private key begins that is not whole before *end*, or may begin; else the end of *text*."""
    if _KEY in text:
        for begun in _BEGINS.finditer(text):
            if not _ENDS.search(text, begun.end(), end):
                return begun.start()
    return len(text)


class StreamMasker:
    """A listener in front of another one, for one turn: what it is told has its secrets masked."""

    def __init__(self, tell: OnEvent, mask: Callable[[str], str], suspicious: FindBoundary) -> None:
        self._tell, self._mask, self._certain = tell, mask, suspicious
        self._held = ""

    async def __call__(self, event: TurnEvent) -> None:
        match event:
            case TextDelta(text=text):
                self._held += text
                await self._show(self._certain(self._held))
                if len(self._held) > LONGEST:
                    await self._shorten()
            case ThinkingDelta(text=text):
                await self._tell(ThinkingDelta(self._mask(text)))
            case TextReset():
                self._held = ""
                await self._tell(event)
            case _:
                await self.finish()
                await self._tell(event)

    async def finish(self) -> None:
        """Show what was held back: the text is whole."""
        await self._show(len(self._held))

    async def _show(self, end: int) -> None:
        text, self._held = self._held[:end], self._held[end:]
        if text:
            await self._tell(TextDelta(self._mask(text)))

    async def _shorten(self) -> None:
        key = _open_key(self._held, len(self._held))
        if key < len(self._held):
            self._held = self._held[: key + _REACH] + self._held[-_REACH:]
            return
        end = len(self._held) - _TAIL
        parts = self._mask(self._held[:end]) + self._mask(self._held[end:])
        if parts == self._mask(self._held):  # else a secret would be cut
            await self._show(end)
