"""The text of an RTF file."""

from __future__ import annotations

from striprtf.striprtf import rtf_to_text

from .result import Extraction, text
from .text import clean


def rich_text(data: bytes) -> Extraction:
    """Return an RTF file's text; raises `Unreadable`, or any error of striprtf for a broken one."""
    words = rtf_to_text(data.decode("latin-1"), errors="replace")  # type: ignore[no-untyped-call]
    return text([clean(words)])
