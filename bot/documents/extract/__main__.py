"""The child: ``python -I -m bot.documents.extract text|picture PARENT [MEDIA_TYPE ENDING]``."""

from __future__ import annotations

import os
import sys

from .confinement import MEMORY, confine
from .result import Extraction, Unreadable

MAX_INPUT = 100_000_000
"""Bytes of a file that are read."""


def main(what: str, parent: str, media_type: str = "", ending: str = "") -> None:
    """Read standard input, and write what is in it."""
    confine(int(parent), MEMORY[what])
    output = os.dup(1)
    os.dup2(2, 1)  # what a library prints is not output
    try:
        extraction = _read(what, media_type, ending)
    except Unreadable as error:
        extraction = Extraction(problem=error.code)
    except MemoryError:
        extraction = Extraction(problem="too_large", fault="MemoryError")
    except Exception as error:  # noqa: BLE001 - the boundary of the parsers: they fail in any way
        extraction = Extraction(problem="damaged", fault=type(error).__name__)
    with os.fdopen(output, "wb") as file:
        file.write(extraction.encoded())


def _read(what: str, media_type: str, ending: str) -> Extraction:
    data = sys.stdin.buffer.read(MAX_INPUT + 1)
    if len(data) > MAX_INPUT:
        raise Unreadable("too_large")
    if what == "picture":
        from .image import picture  # noqa: PLC0415 - only what is needed is imported

        return picture(data)
    from .kinds import read  # noqa: PLC0415

    return read(data, media_type, ending)


if __name__ == "__main__":
    main(*sys.argv[1:])
