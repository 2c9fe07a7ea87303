"""Plain text of any encoding: CSV, JSON, XML, source code, notes. None of it is parsed."""

from __future__ import annotations

import re
from dataclasses import replace

from bot.extensions.documents.problems import LeftOut
from threads.invisible_text import prose

from .encoding import decoded
from .result import MAX_TEXT, Extraction, Unreadable, text

_MAX_READ = 4 * MAX_TEXT
"""Bytes of a text that are read: no encoding takes more than 4 for a character."""

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, movements
    r"|\x1b[\]PX^_][^\x07\x1b\x9c]{0,4096}(?:\x07|\x1b\\|\x9c)?"  # titles, links, device strings
    r"|\x1b[ -/]*[0-~]?"
)
_BETWEEN_BLANKS = re.compile(r"[^\n\t]+")
"""Most of these parts are printable, which `prose` sees at once."""

_LINE_ENDS = re.compile("\r\n?|[\x85\u2028\u2029]")


def plain(data: bytes, declared: str) -> Extraction:
    """Return a text; raises `Unreadable` if it is not one."""
    left_out: set[LeftOut] = {"rest"} if len(data) > _MAX_READ else set()
    if (result := decoded(data[:_MAX_READ], declared)) is None:
        raise Unreadable("unknown")
    cleaned = clean(result.text)
    if result.partly:
        left_out.add("characters")
    extraction = text([cleaned], left_out=left_out)
    return replace(
        extraction, as_is=result.encoding == "utf-8" and not result.partly and cleaned == result.text
    )


def clean(content: str) -> str:
    """Return *content* without terminal escapes and invisible characters; lines end with a newline."""
    without_escapes = _ESCAPES.sub("", _LINE_ENDS.sub("\n", content))
    return _BETWEEN_BLANKS.sub(lambda part: prose(part[0], lambda _: ""), without_escapes)
