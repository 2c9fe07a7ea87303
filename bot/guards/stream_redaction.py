"""Keeps secrets out of text that is shown while it grows, where a secret may come in pieces.

Text that is shown cannot be taken back. So the last word is held back until it is complete, with every possible
beginning of a secret: a name (``token: ``), the first words of a literal of several, a private key. The text before
is masked and shown by itself, so the cost of a piece depends only on its length.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from bot.guards.redaction import ANNOUNCES, secret_forms
from threads.model import OnEvent, TextDelta, TextReset, ThinkingDelta, TurnEvent

LONGEST = 4_000
"""Characters that are held back at most. A longer word is shown in parts; a longer key loses its middle."""

_REACH = 100
"""Characters that announce a secret before its value, and more than a key's first or last line has."""

_KEY = "-----BEGIN"
_TAIL = 1_000
"""Characters of a long word that stay held back: more than a secret has."""

_BEGINS = re.compile(rf"{_KEY}(?: [A-Z0-9 ]{{0,40}}PRIVATE KEY-----|[A-Z0-9 ]{{0,55}}-{{0,4}}\Z)")
_ENDS = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----")

FindBoundary = Callable[[str], int]


def boundary_finder(literals: Iterable[str] = ()) -> FindBoundary:
    """Return a function that finds where the undecided end of a text begins; the text before can be masked alone.

    *literals* are those of `bot.guards.redaction.Masker`.
    """
    phrases = [form for form in secret_forms(literals) if len(form.split(maxsplit=1)) > 1]

    def find_boundary(text: str) -> int:
        end = _word_start(text, len(text))
        if announced := ANNOUNCES.search(text, max(0, end - _REACH), end):
            end = _word_start(text, announced.start())
        end = _word_start(text, min(_open_phrases(phrases, text, end)))
        return min(end, _open_key(text, end))

    return find_boundary


def _word_start(text: str, at: int) -> int:
    """Return where the word at *at* begins."""
    return 1 + max(text.rfind(blank, 0, at) for blank in " \n\t")


def _open_phrases(phrases: Sequence[str], text: str, end: int) -> Iterator[int]:
    """Yield where in *text*, up to *end*, literals of several words begin that may go on."""
    yield end
    for form in phrases:
        word = form.split(maxsplit=1)[0]
        at = text.find(word, 0, end)
        while at >= 0 and not form.startswith(text[at:end]):
            at = text.find(word, at + 1, end)
        if at >= 0:
            yield at


def _open_key(text: str, end: int) -> int:
    """Return where a private key begins, or may begin, that is not complete before *end*; else the end of *text*."""
    if _KEY in text:
        for first_line in _BEGINS.finditer(text):
            if not _ENDS.search(text, first_line.end(), end):
                return first_line.start()
    return len(text)


class StreamMasker:
    """Passes the events of one turn on to *listener*, with their secrets masked."""

    def __init__(self, listener: OnEvent, mask: Callable[[str], str], find_boundary: FindBoundary) -> None:
        self._listener, self._mask, self._find_boundary = listener, mask, find_boundary
        self._held = ""

    async def __call__(self, event: TurnEvent) -> None:
        match event:
            case TextDelta(text=text):
                self._held += text
                await self._show(self._find_boundary(self._held))
                if len(self._held) > LONGEST:
                    await self._shorten()
            case ThinkingDelta(text=text):
                await self._listener(ThinkingDelta(self._mask(text)))
            case TextReset():
                self._held = ""
                await self._listener(event)
            case _:
                await self.finish()
                await self._listener(event)

    async def finish(self) -> None:
        """Show what is held back: the text is complete."""
        await self._show(len(self._held))

    async def _show(self, end: int) -> None:
        text, self._held = self._held[:end], self._held[end:]
        if text:
            await self._listener(TextDelta(self._mask(text)))

    async def _shorten(self) -> None:
        if (key := _open_key(self._held, len(self._held))) < len(self._held):
            self._held = self._held[: key + _REACH] + self._held[-_REACH:]
            return
        end = len(self._held) - _TAIL
        parts = self._mask(self._held[:end]) + self._mask(self._held[end:])
        if parts == self._mask(self._held):  # otherwise this would cut a secret
            await self._show(end)
