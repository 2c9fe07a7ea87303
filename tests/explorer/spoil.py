"""Ways to spoil a file of lines: cut, flipped, filled with zeros, and with junk among its lines.

Some of the junk is sealed with a good checksum: what a program with a bug might write.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator


def spoilt(data: bytes, rng: random.Random, *, step: int, flips: int) -> Iterator[tuple[str, bytes]]:
    """Yield the file cut, flipped, filled and otherwise spoilt; each once, with what was done to it."""
    ends = [n for n, byte in enumerate(data) if byte == 0x0A]
    for size in sorted(
        {*range(0, len(data), step), *(end + k for end in ends for k in (-1, 0, 1))} - {len(data)}
    ):
        yield f"cut to {size}", data[:size]
    for size in range(0, len(data), step * 3):
        yield f"zeros from {size}", data[:size].ljust(len(data), b"\0")
    for n in range(flips):
        at = rng.randrange(len(data))
        byte = (data[at] ^ 1 << rng.randrange(8), 0x0A, 0x00, rng.randrange(256))[n % 4]
        if byte != data[at]:
            yield f"byte {at} is {byte}", data[:at] + bytes([byte]) + data[at + 1 :]
    for end in ends:
        yield f"newline at {end} gone", data[:end] + data[end + 1 :]
    yield "one long line", data.replace(b"\n", b"")
    for name, junk in JUNK.items():
        for place, at in (("first", 0), ("second", ends[0] + 1), ("last", len(data))):
            yield f"{name} as the {place} line", data[:at] + junk + b"\n" + data[at:]
        yield f"nothing but {name}", junk
        yield f"{name} at the end", data + junk
    yield "a BOM", b"\xef\xbb\xbf" + data
    yield "Windows line ends", data.replace(b"\n", b"\r\n")
    yield "twice", data + data
    yield "lines backwards", b"\n".join(reversed(data.split(b"\n")))


def sealed(body: bytes) -> bytes:
    """Return *body* (an object without its end) as a line with a good checksum."""
    return b'%b,"crc":"%08x"}' % (body, zlib.crc32(body))


JUNK = {
    "nothing": b"",
    "NULs": bytes(300),
    "text": b"what is this?",
    "half a line": b'{"thread_id":"fake:W:C1:1.0","message_id":"m9","seq":9',
    "a deep line": b'{"v":1,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "a long number": b'{"v":1,"seq":' + b"9" * 5000 + b"}",
    "NaN": b'{"v":NaN,"seq":1e999}',
    "invalid UTF-8": b'{"v":1,"text":"\xff\xfe\xed\xa0\x80"}',
    "a sealed deep line": sealed(b'{"v":1,"kind":"received","x":' + b"[" * 100_000 + b"]" * 100_000),
    "a sealed long number": sealed(b'{"v":1,"kind":"received","seq":' + b"9" * 5000),
    "a sealed long version": sealed(b'{"kind":"received","v":-' + b"9" * 5000),
    "a sealed list": sealed(b"[1,2"),
    "a sealed odd version": sealed(b'{"v":"x","kind":"nope"'),
    "a sealed lone surrogate": sealed(b'{"v":1,"kind":"received","text":"\\ud83d"'),
    "a sealed odd thread": sealed(
        b'{"thread_id":"nope","message_id":"m9","seq":9,"at":"","v":1,"author":{"id":"U"},"text":"","kind":"received"'
    ),
    "a sealed odd instant": sealed(
        b'{"thread_id":"fake:W:C1:1.0","message_id":"m1","seq":9,"at":"noon","v":1,"author":{"id":"U"},"text":"","kind":"received"'
    ),
    "sealed double keys": sealed(b'{"v":1,"v":1,"kind":"settled","kind":"received","text":1,"text":"x"'),
}
