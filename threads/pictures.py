"""What a file's first bytes say about it as a picture: its kind and its sides, whatever its name and sender claim."""

from __future__ import annotations

import struct
from dataclasses import dataclass

HEAD = 262_144
"""Bytes in which a picture must have told its size; a camera's notes and colour profile come before it."""

MAX_BYTES = 3_750_000
"""The largest picture that is shown to a model: providers that take 5 MB count its base64 form."""

MAX_SIDE = 8_000
"""The longest side, in pixels, that every provider takes."""


@dataclass(frozen=True, slots=True)
class Picture:
    """``width`` and ``height`` are in pixels; 0 when the bytes do not tell."""

    media_type: str
    width: int = 0
    height: int = 0

    @property
    def fits(self) -> bool:
        return 0 < self.width <= MAX_SIDE and 0 < self.height <= MAX_SIDE


def look(head: bytes) -> Picture | None:
    """Return what picture begins with these bytes; None when it is none of the kinds that models take."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return Picture("image/png", *_numbers(">II", head, 16))
    if head.startswith((b"GIF87a", b"GIF89a")):
        return Picture("image/gif", *_numbers("<HH", head, 6))
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return Picture("image/webp", *_webp(head))
    if head.startswith(b"\xff\xd8\xff"):
        return Picture("image/jpeg", *_jpeg(head))
    return None


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
    """Walk from segment to segment to the frame header, the first that tells a size."""
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = _numbers(">HH", data, at + 5)
            return width, height
        padding = marker == 0xFF
        at += 1 if padding else 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return 0, 0
