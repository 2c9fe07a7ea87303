"""The result of a child."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, dataclass, replace

from bot.extensions.documents.problems import LeftOut, Problem

MAX_TEXT = 1_000_000
"""Bytes of a text, as UTF-8."""

SOFT_S = 12.0
"""CPU seconds after which reading stops, with what there is."""

_TITLE = 300
"""Characters of a title."""


class Unreadable(Exception):
    """The file gives no text or picture; the code says why (`bot.extensions.documents.problems.WHY`)."""

    def __init__(self, code: Problem) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True)
class Extraction:
    """``body`` is the text or the picture, ``problem`` a code, ``fault`` a detail for the operator's log.

    ``left_out`` has codes for what the body lacks.
    """

    body: bytes = b""
    title: str = ""
    problem: Problem = ""
    left_out: tuple[LeftOut, ...] = ()
    media_type: str = ""
    as_is: bool = False
    fault: str = ""

    def encoded(self) -> bytes:
        """Return the header, which is a line of JSON, and the body."""
        header = asdict(replace(self, title=self.title[:_TITLE], fault=self.fault[:100]))
        del header["body"]
        return json.dumps(header).encode() + b"\n" + self.body


Read = Callable[[bytes, str, str], Extraction]
"""Reads a file of these bytes, this media type and this ending; raises `Unreadable` or any error of a parser."""


def text(parts: Iterable[str], *, title: str = "", left_out: Collection[LeftOut] = ()) -> Extraction:
    """Return the text up to `MAX_TEXT`; raises `Unreadable` if there is none.

    *left_out* is looked at when all parts are there, so that they may add to it.
    """
    body, full = bytearray(), False
    for part in parts:
        body += part.encode("utf-8", "replace")
        if full := len(body) > MAX_TEXT:
            break
    whole = bytes(body[:MAX_TEXT]).decode("utf-8", "ignore").encode()
    if not whole.strip():
        raise Unreadable("empty")
    codes = {*left_out, "rest"} if full else set(left_out)
    return Extraction(whole, " ".join(title.split()), left_out=tuple(sorted(codes)))
