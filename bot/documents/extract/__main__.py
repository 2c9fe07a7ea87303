"""The child: ``python -I -m bot.documents.extract text|picture PARENT [MEDIA_TYPE ENDING]``."""

from __future__ import annotations

import os
import sys

from .confinement import MEMORY, confine
from .result import Extraction, Unreadable

MAX_INPUT = 100_000_000
"""Bytes of a file that is looked at."""


def main(what: str, parent: str, media_type: str = "", ending: str = "") -> None:
    """Read standard input, and say what is in it."""
    confine(int(parent), MEMORY[what])
    answer = os.dup(1)
    os.dup2(2, 1)  # what a library prints is no answer
    try:
        said = _read(what, media_type, ending)
    except Unreadable as error:
        said = Extraction(problem=error.code)
    except MemoryError:
        said = Extraction(problem="too_large", fault="MemoryError")
    except Exception as error:  # noqa: BLE001 - the boundary of the parsers: they fail in any way on what is broken
        said = Extraction(problem="damaged", fault=type(error).__name__)
    with os.fdopen(answer, "wb") as file:
        file.write(said.encoded())


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
