"""Reads checksummed lines. A line that is still being written is left for the next read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar

from pydantic import TypeAdapter

from threads.store.checksummed_lines import Versioned, intact, read_line

V = TypeVar("V", bound=Versioned)

LONGEST = 64_000_000
"""Bytes of a line. No bot writes a longer one."""


@dataclass(slots=True)
class Damage:
    """How many lines could not be read."""

    lines: int = 0


def lines_of(path: Path) -> Iterator[bytes]:
    """Return a file's whole lines; a missing file has none. Raises OSError."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        yield from lines_from(file)


def lines_from(file: BinaryIO) -> Iterator[bytes]:
    """Return the whole lines from the position of *file*, and leave it behind the last of them."""
    while line := file.readline(LONGEST):
        if not line.endswith(b"\n") and len(line) < LONGEST:
            file.seek(-len(line), 1)
            return
        yield line[:-1]


def records(
    lines: Iterable[bytes], adapter: TypeAdapter[V], damage: Damage, having: Sequence[bytes] = ()
) -> Iterator[V]:
    """Return the records of all lines, or of the lines that hold one of the pieces in *having*.

    Raises `threads.errors.NewerSchema` when a newer version wrote one.
    """
    for line in lines:
        if having and not any(piece in line for piece in having):
            continue
        try:
            record = read_line(adapter, line) if intact(line) else None
        except ValueError:
            record = None
        if record is None:
            damage.lines += 1
        else:
            yield record
