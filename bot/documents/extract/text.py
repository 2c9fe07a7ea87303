"""Plain text of any encoding: CSV, JSON, XML, source code, notes. None of it is parsed."""

from __future__ import annotations

import codecs
import re
from dataclasses import replace

from .result import MAX_TEXT, Extraction, Unreadable, text

_LOOKED_AT = 4 * MAX_TEXT
"""Bytes of a text that are read: no encoding takes more for a character."""

_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)

_CHARSET = re.compile(
    r"us-ascii|utf-?8|utf-?16(?:[-_]?[lb]e)?|latin-?1|iso-?8859-\d{1,2}|(?:windows-|cp)\d{3,4}|koi8-[rut]"
    r"|mac-?roman|shift[-_]jis|euc[-_](?:jp|kr)|iso-2022-(?:jp|kr)|gb2312|gbk|gb18030|big5(?:-?hkscs)?|tis-620",
    re.IGNORECASE,
)
"""Names that are believed: Python knows more, and some of those do other work than decoding."""

_BINARY = re.compile(rb"[\x00-\x07\x0e-\x1a\x1c-\x1f\x7f]")
_MOST_BINARY = 0.02
"""The share of control bytes from which on something is no text."""

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, movements
    r"|\x1b[\]PX^_][^\x07\x1b\x9c]{0,4096}(?:\x07|\x1b\\|\x9c)?"  # titles, links, device strings
    r"|\x1b[ -/]*[0-~]?"
)
_UNSEEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e0fff\ud800-\udfff]"
)
"""Control characters, direction marks, tags and the like: nobody sees them, and a model would read them."""

_LINE_ENDS = re.compile("\r\n?|[\x85\u2028\u2029]")


def plain(data: bytes, declared: str) -> Extraction:
    """Return a text; raises `Unreadable` when it is none."""
    whole, data = len(data) <= _LOOKED_AT, data[:_LOOKED_AT]
    found = decoded(data, declared)
    if found is None:
        raise Unreadable("unknown")
    content, encoding = found
    shown = clean(content)
    said = text([shown], problem="" if whole else "cut")
    return replace(said, as_is=encoding == "utf-8" and shown == content)


def clean(content: str) -> str:
    """Return *content* without terminal escapes and characters that nobody sees; lines end with a newline."""
    return _UNSEEN.sub("", _ESCAPES.sub("", _LINE_ENDS.sub("\n", content)))


def decoded(data: bytes, declared: str, *, markup: bool = False) -> tuple[str, str] | None:
    """Return a text and its encoding: its mark's, as *declared*, UTF-8, as the *markup* says, a guess; or None."""
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            return data.decode(encoding, "replace"), encoding
    for encoding in (declared if _CHARSET.fullmatch(declared) else "", "utf-8"):
        if encoding and "\0" not in (content := _strictly(data, encoding) or "\0"):
            return content, encoding.lower()
    if len(_BINARY.findall(data)) > _MOST_BINARY * len(data):
        return None
    from bs4.dammit import EncodingDetector, UnicodeDammit  # noqa: PLC0415 - seldom needed

    said = EncodingDetector.find_declared_encoding(data, is_html=markup)
    # Named before it may guess: which guesser it finds depends on what else is installed, and short texts fool them.
    guess = UnicodeDammit(data, user_encodings=[*filter(None, [said]), "windows-1252"], is_html=markup)
    return guess.unicode_markup or data.decode("latin-1"), guess.original_encoding or "latin-1"


def _strictly(data: bytes, encoding: str) -> str | None:
    """Return the text if it is in that encoding; a character that was cut off at its end is left out."""
    try:
        decoder = codecs.getincrementaldecoder(encoding)("strict")
        return decoder.decode(data, final=False)
    except (UnicodeError, LookupError):
        return None
