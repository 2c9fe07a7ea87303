"""Plain text of any encoding: CSV, JSON, XML, source code, notes. None of it is parsed."""

from __future__ import annotations

import codecs
import re
from contextlib import suppress
from dataclasses import replace

from threads.invisible_text import prose

from .result import MAX_TEXT, Extraction, Unreadable, text

_MAX_READ = 4 * MAX_TEXT
"""Bytes of a text that are read: no encoding takes more than 4 for a character."""

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
"""Declared encodings that are tried: some of Python's codecs do other work than decoding."""

_BINARY = re.compile(rb"[\x00-\x07\x0e-\x1a\x1c-\x1f\x7f]")
_MOST_BINARY = 0.02
"""The largest share of control bytes in a text."""

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
    problem, data = "cut" if len(data) > _MAX_READ else "", data[:_MAX_READ]
    result = decoded(data, declared)
    if result is None:
        raise Unreadable("unknown")
    content, encoding = result
    cleaned = clean(content)
    return replace(text([cleaned], problem=problem), as_is=encoding == "utf-8" and cleaned == content)


def clean(content: str) -> str:
    """Return *content* without terminal escapes and invisible characters; lines end with a newline."""
    without_escapes = _ESCAPES.sub("", _LINE_ENDS.sub("\n", content))
    return _BETWEEN_BLANKS.sub(lambda part: prose(part[0], lambda _: ""), without_escapes)


def decoded(data: bytes, declared: str, *, markup: bool = False) -> tuple[str, str] | None:
    """Return a text and its encoding: by its mark, as *declared*, UTF-8, by its *markup*, or a guess; or None."""
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            return data.decode(encoding, "replace"), encoding
    for encoding in filter(None, (declared if _CHARSET.fullmatch(declared) else "", "utf-8")):
        with suppress(UnicodeError, LookupError):
            # A character that is cut off at the end is left out.
            content = codecs.getincrementaldecoder(encoding)().decode(data)
            if "\0" not in content:
                return content, encoding.lower()
    if len(_BINARY.findall(data)) > _MOST_BINARY * len(data):
        return None
    from bs4.dammit import EncodingDetector, UnicodeDammit  # noqa: PLC0415 - seldom needed

    named = EncodingDetector.find_declared_encoding(data, is_html=markup)
    # windows-1252 comes before a guess: which guesser there is depends on the installation, and short texts fool it.
    guess = UnicodeDammit(data, user_encodings=[*filter(None, [named]), "windows-1252"], is_html=markup)
    return guess.unicode_markup or data.decode("latin-1"), guess.original_encoding or "latin-1"
