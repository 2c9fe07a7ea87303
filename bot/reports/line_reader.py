"""Reads checksummed lines. A line that is still being written is left for the next read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar

from pydantic import TypeAdapter

from threads.store.checksummed_lines import Versioned, intact, read_line

V = TypeVar("V", bound=Versioned)

LONGEST = 64_000_000
"""Bytes of a line. No bot writes a longer one."""

BLOCK = 1 << 16
"""Bytes that are read at once."""


@dataclass(slots=True)
class Damage:
    """How many lines could not be read."""

    lines: int = 0


def lines_of(path: Path, having: Sequence[bytes] = ()) -> Iterator[bytes]:
    """Return a file's lines as `lines_from`; a missing file has none. Raises OSError."""
    with suppress(FileNotFoundError), path.open("rb") as file:
        yield from lines_from(file, having)


def lines_from(file: BinaryIO, having: Sequence[bytes] = ()) -> Iterator[bytes]:
    """Return the whole lines from the position of *file*, and leave it behind the last of them.

    *having* limits them to lines near one of these pieces: blocks without any are not taken apart.
    """
    rest = b""
    while block := file.read(max(BLOCK, len(rest))):
        whole, newline, rest = (rest + block).rpartition(b"\n")
        if newline and (not having or any(piece in whole for piece in having)):
            yield from whole.split(b"\n")
        if len(rest) >= LONGEST:
            yield rest
            rest = b""
    file.seek(-len(rest), os.SEEK_CUR)


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
