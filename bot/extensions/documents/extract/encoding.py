"""The encoding of a text; pure.

It is looked for by a mark, as declared, as UTF-8, as the markup says, and last as a browser guesses it. An encoding
fits if hardly any byte of the text has no meaning in it, so that one bad byte harms one letter.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass

_MARKS = (
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

_MEANT = {
    "iso8859-1": "cp1252",
    "ascii": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "big5": "big5hkscs",
}
"""What texts with these labels are in: https://encoding.spec.whatwg.org/#names-and-labels."""

_BINARY = re.compile(rb"[\x00-\x07\x0e-\x1a\x1c-\x1f\x7f]")
_MOST_BINARY = 0.02
"""The largest share of control bytes in a text."""

_SHIFTS = ((re.compile(rb"\x1b\$[@B]"), "iso2022_jp"), (re.compile(rb"\x1b\$\)C"), "iso2022_kr"))
"""What encodings for mail begin their letters with; all of their bytes are ASCII."""

_MOST_BAD = {"utf-8": 0.5}
"""The largest share of bad characters among those beyond ASCII, in a text whose encoding fits; 0.1 for any other.

Hardly any text in another encoding has characters that are whole in UTF-8.
"""

_LEAST_WIDE = 0.05
"""The least share of characters below U+0100 in a text in UTF-16."""

_MOST_PLANES = 16

_SAMPLE = 100_000
"""Bytes by which an encoding is guessed."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """``partly``: some bytes of the text had no meaning, and U+FFFD stands in their place."""

    text: str
    encoding: str
    partly: bool = False


def decoded(data: bytes, declared: str, *, markup: bool = False) -> Decoded | None:
    """Return the text of *data*, or None if it is no text. A character that is cut off at the end is left out."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return _in(encoding, data)
    for encoding in _candidates(data, declared, markup=markup):
        found = _in(encoding, data)
        if "\0" not in found.text and _fits(found):
            return found
    if wide := _without_mark(data):
        return _in(wide, data)
    if len(_BINARY.findall(data)) > _MOST_BINARY * len(data):
        return None
    import chardetng_py  # type: ignore[import-untyped]  # noqa: PLC0415 - seldom needed

    return _in(chardetng_py.detect(data[:_SAMPLE]), data)


def _candidates(data: bytes, declared: str, *, markup: bool) -> Iterator[str]:
    if _CHARSET.fullmatch(declared):
        yield from _meant(declared)
    yield from (encoding for shift, encoding in _SHIFTS if shift.search(data))
    yield "utf-8"
    if data.isascii():
        return
    from bs4.dammit import EncodingDetector  # noqa: PLC0415 - as above

    named = EncodingDetector.find_declared_encoding(data, is_html=markup)
    if named and _CHARSET.fullmatch(named):
        yield from _meant(named)


def _without_mark(data: bytes) -> str:
    """Return the form of UTF-16 or UTF-32 that a text without a mark is in, "" if it is in none."""
    sample = data[:_SAMPLE]
    for encoding in _wide(sample):
        text = codecs.getincrementaldecoder(encoding)("replace").decode(sample)
        odd = sum(1 for character in text if not (character.isprintable() or character.isspace()))
        if odd <= _MOST_BINARY * len(text):
            return encoding
    return ""


def _wide(sample: bytes) -> Iterator[str]:
    """Yield the forms in which the zeros of *sample* are where they belong.

    In UTF-32 the highest byte of each character is zero and the next at most 16. In UTF-16 that of Latin letters,
    blanks and line ends is zero.
    """
    fourths = [sample[at::4] for at in range(4)]
    for encoding, highest, plane in (("utf-32-be", 0, 1), ("utf-32-le", 3, 2)):
        if not any(fourths[highest]) and max(fourths[plane], default=0) <= _MOST_PLANES:
            yield encoding
    even, odd = sample[::2].count(0), sample[1::2].count(0)
    if max(even, odd) >= _LEAST_WIDE * len(sample) / 2 and min(even, odd) <= max(even, odd) / 4:
        yield "utf-16-le" if odd > even else "utf-16-be"


def _meant(label: str) -> Iterator[str]:
    try:
        name = codecs.lookup(label).name
    except LookupError:
        return
    if name != "ascii":  # a text in ASCII is one in UTF-8, and another is not what its label says
        yield _MEANT.get(name, name)


def _in(encoding: str, data: bytes) -> Decoded:
    text = codecs.getincrementaldecoder(encoding)("replace").decode(data)
    return Decoded(text, encoding, partly="\ufffd" in text)


def _fits(found: Decoded) -> bool:
    bad = found.text.count("\ufffd")
    beyond_ascii = sum(1 for character in found.text if character > "\x7f") if bad else 0
    return bad <= _MOST_BAD.get(found.encoding, 0.1) * beyond_ascii
