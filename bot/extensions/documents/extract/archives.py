"""What lies in an archive: the names and sizes of its files; and a single file that is packed."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice
from typing import IO

from .encoding import decoded
from .result import Extraction, Read, Unreadable, text
from .text import clean

MOST_FILES = 5_000

MAX_UNPACKED = 100_000_000
"""Bytes of a packed file that are read."""

_PACKERS: Mapping[bytes, Callable[[IO[bytes]], gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile]] = {
    b"\x1f\x8b": lambda source: gzip.GzipFile(fileobj=source),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\0": lzma.LZMAFile,
}
"""What unpacks a file that begins with these bytes."""

_PATHS = 0x800
"""The flag of a zip's entry whose name is in UTF-8."""


def packed(data: bytes) -> bool:
    """Return whether a file is a tar archive or a packed file."""
    return data[257:262] == b"ustar" or data.startswith(tuple(_PACKERS))


def zip_list(data: bytes) -> Extraction:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        files = [one for one in archive.infolist() if not one.is_dir()]
    # Programs write names in the encoding of their country, and the format knows none of them.
    names = "\n".join(one.filename for one in files if not one.flag_bits & _PATHS).encode("cp437", "replace")
    found = decoded(names, "")
    foreign = iter(found.text.split("\n") if found else ())
    return _listed(
        [
            (one.filename if one.flag_bits & _PATHS else next(foreign, one.filename), one.file_size)
            for one in files
        ]
    )


def unpacked(data: bytes, ending: str, read: Read) -> Extraction:
    """Return the list of a tar archive, or the text of a single packed file; raises `Unreadable`."""
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            found = ((one.name, one.size) for one in archive if one.isfile())
            files = list(islice(found, MOST_FILES + 1))
    except tarfile.ReadError:
        files = []
    unpack = next((unpack for start, unpack in _PACKERS.items() if data.startswith(start)), None)
    if files or unpack is None:
        return _listed(files)
    try:
        inner = unpack(io.BytesIO(data)).read(MAX_UNPACKED + 1)
    except (OSError, EOFError, zlib.error, lzma.LZMAError):
        raise Unreadable("damaged") from None
    if len(inner) > MAX_UNPACKED:
        raise Unreadable("too_large")
    return replace(read(inner, "", ending), as_is=False)


def _listed(files: list[tuple[str, int]]) -> Extraction:
    lines = [f"{' '.join(clean(name).split())} ({size:,} bytes)\n" for name, size in files[:MOST_FILES]]
    more = ["[more files are not listed]\n"] if len(files) > MOST_FILES else []
    many = f"over {MOST_FILES:,}" if more else f"{len(files):,}"
    return text([f"An archive of {many} files:\n", *lines, *more], left_out={"listed"})
