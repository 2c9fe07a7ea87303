"""The result of a child."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace

MAX_TEXT = 1_000_000
"""Bytes of a text, as UTF-8."""

SOFT_S = 12.0
"""CPU seconds after which reading stops, with what there is."""

_TITLE = 300
"""Characters of a title."""


class Unreadable(Exception):
    """The file gives no text or picture; the code says why (`bot.documents.reader.WHY`)."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True)
class Extraction:
    """``body`` is the text or the picture, ``problem`` a code, ``fault`` a detail for the operator's log."""

    body: bytes = b""
    title: str = ""
    problem: str = ""
    media_type: str = ""
    as_is: bool = False
    fault: str = ""

    def encoded(self) -> bytes:
        """Return the header, which is a line of JSON, and the body."""
        header = asdict(replace(self, title=self.title[:_TITLE], fault=self.fault[:100]))
        del header["body"]
        return json.dumps(header).encode() + b"\n" + self.body


def text(parts: Iterable[str], *, title: str = "", problem: str = "") -> Extraction:
    """Return the text up to `MAX_TEXT`; raises `Unreadable` if there is none."""
    body, full = bytearray(), False
    for part in parts:
        body += part.encode("utf-8", "replace")
        if full := len(body) > MAX_TEXT:
            break
    whole = bytes(body[:MAX_TEXT]).decode("utf-8", "ignore").encode()
    if not whole.strip():
        raise Unreadable(problem or "empty")
    return replace(Extraction(whole, " ".join(title.split()), problem), problem="cut" if full else problem)
