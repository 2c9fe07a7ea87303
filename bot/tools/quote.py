"""A model's text as a quote, with nothing live in it; pure.

Each line stands behind the mark of a quote, so that no line passes for a sentence of the bot. Markdown is shown as it
is written, invisible characters are made visible, and an address is code, which nobody clicks by mistake.
"""

from __future__ import annotations

import re

from threads.invisible_text import escaped

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s`]+|(?:mailto|tel):[^\s`]+|www\.[^\s`]+", re.IGNORECASE)
_MARKS = re.compile(r"[\\`*_{}\[\]()<>#|~&!@]")
_BLOCK = re.compile(r"\A(\s*)(\d*)([-+=.)])")
"""What begins a list or underlines a heading at the beginning of a line."""


def quote(text: str) -> str:
    """Return the text as the lines of a Markdown quote."""
    return "\n".join(f"> {_inert(line)}".rstrip() for line in escaped(text).strip().split("\n"))


def plain_line(text: str) -> str:
    """Return the text in one line, with every character visible; for a button, which shows no Markdown."""
    return " ".join(escaped(text).split())


def _inert(line: str) -> str:
    words = _ADDRESS.split(line)
    codes = [f"`{address}`" for address in _ADDRESS.findall(line)]
    escaped_words = [_MARKS.sub(r"\\\g<0>", part) for part in words]
    whole = escaped_words[0] + "".join(map("".join, zip(codes, escaped_words[1:], strict=True)))
    return _BLOCK.sub(r"\1\2\\\3", whole)
