"""Colours of code by Pygments, in a process of its own: what a stranger wrote may keep a lexer busy for hours."""

from __future__ import annotations

from contextlib import suppress

import anyio
from anyio.to_process import run_sync

LONGEST = 50_000
"""Characters of code. Longer code has no colours."""

WITHIN_S = 5.0
"""After so long a lexer is ended, with its process. The code stays as it is."""

MOST_WAITING = 20

KINDS = {"Comment": "c", "Keyword": "k", "String": "s", "Number": "m"}
NAMES = frozenset(("Function", "Class", "Builtin", "Tag", "Attribute", "Decorator", "Variable"))
"""What has a colour: the type of a token, and the class of the page's style sheet; of names, ``n``, only some."""

Parts = list[tuple[str, str]]


class Colours:
    """Lexes code, one piece at a time."""

    def __init__(self) -> None:
        self._one, self._open = anyio.CapacityLimiter(1), set[anyio.CancelScope]()

    async def of(self, language: str, code: str) -> Parts:
        """Return *code* in parts, each with its class; nothing if it is too long, or of an unknown language."""
        if len(code) > LONGEST or len(self._open) >= MOST_WAITING:
            return []
        with anyio.move_on_after(WITHIN_S) as scope, suppress(anyio.BrokenWorkerProcess):
            self._open.add(scope)
            try:
                return await run_sync(lex, language, code, cancellable=True, limiter=self._one)
            finally:
                self._open.discard(scope)
        return []

    def end(self) -> None:
        """Let go of all code: the bot stops."""
        for scope in self._open:
            scope.cancel()


def lex(language: str, code: str) -> Parts:
    """Return the parts of *code*, none for an unknown language."""
    from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]  # noqa: PLC0415 - only where it lexes
    from pygments.util import ClassNotFound  # type: ignore[import-untyped]  # noqa: PLC0415

    try:
        lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return []
    parts = Parts()
    for token, text in lexer.get_tokens(code):
        kind = next(
            (KINDS[name] for name in token if name in KINDS), "n" if NAMES.intersection(token) else ""
        )
        if parts and parts[-1][0] == kind:
            parts[-1] = (kind, parts[-1][1] + text)
        else:
            parts.append((kind, text))
    return parts
