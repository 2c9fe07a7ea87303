"""Hides a secret in what a server sends, piece by piece, whatever its pieces are. Lengths stay the same."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from contextlib import suppress

from bot.guards.redaction import secret_forms


def forms_of(header: str) -> tuple[str, ...]:
    """Return the forms in which a server may repeat the value of a header: with its parts, and encoded."""
    plain = {header, *_parts(header)}
    encoded = {base64.b64encode(part.encode()).decode().rstrip("=") for part in plain}
    return tuple(sorted(secret_forms(plain | encoded), key=len, reverse=True))


def _parts(header: str) -> Iterator[str]:
    scheme, _, rest = header.partition(" ")
    if rest:
        yield rest
    if scheme.lower() == "basic":
        with suppress(ValueError):  # the host will say so
            account = base64.b64decode(rest, validate=True).decode()
            yield from (account, account.partition(":")[2])


class EchoMask:
    """*forms* are the texts to hide, the longest first."""

    def __init__(self, forms: tuple[str, ...]) -> None:
        encoded = [form.encode() for form in forms]
        self._shape = re.compile(b"|".join(map(re.escape, encoded)) or b"(?!)")
        self._held, self._longest = b"", max(map(len, encoded), default=1)

    def all(self, data: bytes) -> bytes:
        """Return a whole text with the secret hidden."""
        return self._shape.sub(lambda found: b"*" * len(found[0]), data)

    def next(self, data: bytes, *, last: bool = False) -> bytes:
        """Return what can be passed on now; the rest may be the beginning of the secret, and is held back."""
        data = self._held + data
        end = len(data) if last else max(0, len(data) - self._longest + 1)
        parts, done = [], 0
        for found in self._shape.finditer(data):
            if found.start() >= end:
                break
            parts += [data[done : found.start()], b"*" * len(found[0])]
            done = found.end()
        end = max(end, done)
        self._held = data[end:]
        return b"".join([*parts, data[done:end]])
