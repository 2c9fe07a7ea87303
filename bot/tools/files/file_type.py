"""The type of a file, from its first bytes: text or not, and which kind of binary file."""

from __future__ import annotations

from threads.store.image_header import read_header

CONTROLS = 0.1
"""The share of control characters above which bytes are not text; text with terminal colours stays below."""

_CONTROLS = bytes([*range(8 + 1), *range(0x0E, 0x20), 0x7F])
_KINDS = (
    (b"%PDF-", "PDF document"),
    (b"PK\x03\x04", "zip archive or office document"),
    (b"\x1f\x8b", "gzip archive"),
    (b"BZh", "bzip2 archive"),
    (b"\xfd7zXZ\x00", "xz archive"),
    (b"\x28\xb5\x2f\xfd", "zstd archive"),
    (b"7z\xbc\xaf\x27\x1c", "7z archive"),
    (b"\x7fELF", "program"),
    (b"SQLite format 3\x00", "SQLite database"),
    (b"\xff\xfe", "text in UTF-16"),
    (b"\xfe\xff", "text in UTF-16"),
    (b"\xd0\xcf\x11\xe0", "old office document"),
    (b"OggS", "Ogg sound or video"),
    (b"ID3", "MP3 sound"),
    (b"RIFF", "sound or video"),
)


def is_binary(data: bytes) -> bool:
    return b"\0" in data or len(data.translate(None, _CONTROLS)) < (1 - CONTROLS) * len(data)


def describe_type(head: bytes) -> str:
    """Return in words which kind of file begins with these bytes."""
    if picture := read_header(head):
        size = f", {picture.width} x {picture.height}" if picture.width else ""
        return f"{picture.media_type.removeprefix('image/').upper()} picture{size}"
    if head[4:8] == b"ftyp":
        return "MP4 video or sound"
    return next((kind for start, kind in _KINDS if head.startswith(start)), "unknown")
