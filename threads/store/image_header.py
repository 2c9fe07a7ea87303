"""Reads a picture's type and size from its first bytes, whatever its name and sender claim."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

HEAD = 262_144
"""Bytes that must include the picture's size. A camera's notes and colour profile come before it."""

MAX_BYTES = 3_750_000
"""Bytes of the largest picture for a model: providers take 5 MB, and count the base64 form."""

MAX_SIDE = 8_000
"""Pixels of the longest side that every provider accepts."""

LONG_SIDE = 1_568
"""Pixels of the longest useful side: Anthropic scales larger pictures down (its vision guide)."""

ACCEPTED_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
"""The types that every provider accepts."""

_STARTS = (
    ("image/png", re.compile(rb"\x89PNG\r\n\x1a\n")),
    ("image/gif", re.compile(rb"GIF8[79]a")),
    ("image/webp", re.compile(rb"RIFF.{4}WEBP", re.DOTALL)),
    ("image/jpeg", re.compile(rb"\xff\xd8\xff")),
    ("image/bmp", re.compile(rb"BM.{4}\0{4}", re.DOTALL)),
    ("image/tiff", re.compile(rb"II\*\0|MM\0\*")),
    ("image/heic", re.compile(rb".{4}ftyp(?:hei[cx]|mif1|msf1)", re.DOTALL)),
    ("image/avif", re.compile(rb".{4}ftypavif", re.DOTALL)),
)
"""The first bytes of the types that people send."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture's type and size. ``width`` and ``height`` are in pixels, 0 if unknown."""

    media_type: str
    width: int = 0
    height: int = 0

    @property
    def fits(self) -> bool:
        """Whether every provider accepts a picture of this type and size."""
        accepted = self.media_type in ACCEPTED_TYPES
        return accepted and 0 < self.width <= MAX_SIDE and 0 < self.height <= MAX_SIDE


def read_header(head: bytes) -> Picture | None:
    """Return the picture that begins with these bytes, or None if it has no known type."""
    kind = next((kind for kind, start in _STARTS if start.match(head)), "")
    match kind:
        case "image/png":
            return Picture(kind, *_numbers(">II", head, 16))
        case "image/gif":
            return Picture(kind, *_numbers("<HH", head, 6))
        case "image/webp":
            return Picture(kind, *_webp(head))
        case "image/jpeg":
            return Picture(kind, *_jpeg(head))
        case _:
            return Picture(kind) if kind else None


def _numbers(form: str, data: bytes, at: int) -> tuple[int, int]:
    if len(data) < at + struct.calcsize(form):
        return 0, 0
    first, second = struct.unpack_from(form, data, at)
    return first, second


def _webp(data: bytes) -> tuple[int, int]:
    match data[12:16]:
        case b"VP8 ":
            width, height = _numbers("<HH", data, 26)
            return width & 0x3FFF, height & 0x3FFF
        case b"VP8L":
            low, high = _numbers("<HH", data, 21)
            bits = low | high << 16
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X" if len(data) >= 30:
            return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
        case _:
            return 0, 0


def _jpeg(data: bytes) -> tuple[int, int]:
    """Walk the segments to the frame header, the first one with a size."""
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = _numbers(">HH", data, at + 5)
            return width, height
        padding = marker == 0xFF
        at += 1 if padding else 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return 0, 0
