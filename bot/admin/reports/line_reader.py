"""Reads files of checksummed lines. A line that is still being written is left for the next read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar

from pydantic import TypeAdapter

from threads.store.checksummed_lines import Versioned, intact, read_line

V = TypeVar("V", bound=Versioned)

LONGEST = 64_000_000
"""Bytes of a line; what is longer was written by no bot."""


@dataclass(slots=True)
class Damage:
    """How many lines could not be read."""

    lines: int = 0


def records(path: Path, adapter: TypeAdapter[V], damage: Damage, having: Sequence[bytes] = ()) -> Iterator[V]:
    """Return a file's records, of all or of the lines that hold one of these pieces. A missing file has none.

    Raises `threads.errors.NewerSchema` when a newer version wrote it, and OSError.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        yield from read_from(file, adapter, damage, having)


def read_from(
    file: BinaryIO, adapter: TypeAdapter[V], damage: Damage, having: Sequence[bytes] = ()
) -> Iterator[V]:
    """Return the records from where *file* stands on; afterwards it stands behind the last whole line."""
    while line := file.readline(LONGEST):
        if not line.endswith(b"\n") and len(line) < LONGEST:
            file.seek(-len(line), 1)
            return
        if having and not any(piece in line for piece in having):
            continue
        if (record := _record(adapter, line[:-1])) is not None:
            yield record
        else:
            damage.lines += 1


def _record(adapter: TypeAdapter[V], line: bytes) -> V | None:
    try:
        return read_line(adapter, line) if intact(line) else None
    except ValueError:
        return None
