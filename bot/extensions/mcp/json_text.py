"""Repairs the JSON text of a server where one bad character would cost the whole message.

| in the text                                       | then                               |
|---------------------------------------------------|------------------------------------|
| half of a surrogate pair, such as a cut-off emoji | U+FFFD in its place                |
| bytes that are not UTF-8                          | U+FFFD in their place              |
| control characters that are not escaped           | U+FFFD in their place; tab: space  |
| a byte-order mark at the beginning                | removed                            |
"""

from __future__ import annotations

import codecs
import re

_ESCAPE = re.compile(
    rb"\\(?:(?P<pair>u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
"""Any escape, so that an escaped backslash before a `u` is not taken for one."""
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
"""Those that are never white space between two values."""
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def repair(text: bytes) -> bytes:
    """Return *text* with the characters replaced that no JSON parser takes; a good text stays as it is."""
    text = text.removeprefix(codecs.BOM_UTF8)
    try:
        text.decode()
    except UnicodeDecodeError:
        text = text.decode("utf-8", "replace").encode()
    text = _CONTROL.sub(REPLACEMENT.encode(), text.replace(b"\t", b" "))
    if b"\\ud" in text or b"\\uD" in text:
        text = _ESCAPE.sub(lambda found: rb"\ufffd" if found["half"] else found[0], text)
    return text
