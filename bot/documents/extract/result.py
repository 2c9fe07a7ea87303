"""What a child has to say about its file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace

MAX_TEXT = 1_000_000
"""Bytes of a text, as UTF-8, that are given back."""

SOFT_S = 12.0
"""CPU seconds after which what was read so far has to do."""

_TITLE = 300
"""Characters of a title."""


class Unreadable(Exception):
    """The file gives no text or picture; the code says why (`bot.documents.reader.WHY`)."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True)
class Extraction:
    """``body`` is the text or the picture; ``problem`` a code; ``fault`` a word on it for the operator's log."""

    body: bytes = b""
    title: str = ""
    problem: str = ""
    media_type: str = ""
    as_is: bool = False
    fault: str = ""

    def encoded(self) -> bytes:
        """Return the line that comes first, and the body."""
        head = {
            "problem": self.problem,
            "title": self.title[:_TITLE],
            "media_type": self.media_type,
            "as_is": self.as_is,
            "fault": self.fault[:100],
        }
        return json.dumps(head).encode() + b"\n" + self.body


def text(parts: Iterable[str], *, title: str = "", problem: str = "") -> Extraction:
    """Return what there is to read, until it is long enough; raises `Unreadable` when that is nothing."""
    body, full = bytearray(), False
    for part in parts:
        body += part.encode("utf-8", "replace")
        if full := len(body) > MAX_TEXT:
            break
    whole = bytes(body[:MAX_TEXT]).decode("utf-8", "ignore").encode()
    if not whole.strip():
        raise Unreadable(problem or "empty")
    return replace(Extraction(whole, " ".join(title.split()), problem), problem="cut" if full else problem)
