"""One record per line: JSON with a checksum as its last field. Lines end at newline bytes only.

A line is ``{…,"crc":"1a2b3c4d"}``, with the CRC-32 of the bytes before the comma. Without it a flipped bit in a
string would go unnoticed, and a message could be answered twice. U+2028 and other Unicode line ends are content.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import is_
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError, from_json

from threads.errors import NewerSchema

from .disk import Disk, set_aside

R = TypeVar("R")
V = TypeVar("V", bound="Versioned")

SCHEMA_VERSION = 1
_TAIL = len(',"crc":"00000000"}')


def encode(adapter: TypeAdapter[R], record: R) -> bytes:
    """Return the line of *record* with its newline. Lone surrogates become question marks."""
    try:
        body = adapter.serializer.to_json(record)[:-1]
    except PydanticSerializationError:
        body = json.dumps(adapter.dump_python(record), ensure_ascii=False).encode("utf-8", "replace")[:-1]
    return b'%b,"crc":"%08x"}\n' % (body, zlib.crc32(body))


class Lines(Generic[R]):
    """The lines of a file in one piece. A record is encoded once: the same object keeps its line."""

    def __init__(self, encoded: Callable[[R], bytes]) -> None:
        self.data = bytearray()
        self._encoded, self._records, self._ends = encoded, list[R](), [0]

    def update(self, records: Sequence[R]) -> None:
        """Make ``data`` the lines of these records, from the first that is another object on."""
        same = [*map(is_, self._records, records), False].index(False)
        lines = [*map(self._encoded, records[same:])]
        del self.data[self._ends[same] :], self._ends[same + 1 :]
        self._records[same:] = records[same:]
        for line in lines:
            self.data += line
            self._ends.append(len(self.data))


class Versioned(Protocol):
    """A record with its schema version."""

    @property
    def v(self) -> int: ...


def read_line(adapter: TypeAdapter[V], line: bytes) -> V:
    """Return the record of an intact line. Raises ValueError if it has another shape.

    Raises `NewerSchema` if a newer version of the program wrote it. Leave such a file unchanged.
    """
    try:
        record = adapter.validate_json(line)
        version = record.v
    except ValueError:
        if (version := version_of(line)) <= SCHEMA_VERSION:
            raise
    if version > SCHEMA_VERSION:
        raise NewerSchema(
            f"The data was written by a newer Threadfast (schema {version}, this one knows {SCHEMA_VERSION}) and is "
            "left as it is; update this one, or choose another data folder."
        )
    return record


def version_of(line: bytes) -> int:
    """Return the schema version of a JSON object, 0 if it has none."""
    try:
        version = from_json(line).get("v")
    except (ValueError, AttributeError):
        return 0
    return version if isinstance(version, int) else 0


def scrub(text: str) -> str:
    """Return *text* with lone surrogates replaced, because they cannot be encoded."""
    return text.encode("utf-8", "replace").decode("utf-8")


def intact(line: bytes) -> bool:
    """Return whether the line, without its newline, has its checksum."""
    body, tail = line[:-_TAIL], line[-_TAIL:]
    return tail == b',"crc":"%08x"}' % zlib.crc32(body)


@dataclass(frozen=True, slots=True)
class Scan:
    """The content of a file of lines. The last good line ends at ``end``, and ``tail`` follows it."""

    good: list[bytes]
    broken: list[bytes]
    tail: bytes
    end: int


def scan(data: bytes) -> Scan:
    """Split *data* into good lines, damaged lines between them, and a torn or damaged tail."""
    good: list[bytes] = []
    broken: list[bytes] = []
    broken_before_end = end = position = 0
    for line in data.split(b"\n"):
        position += len(line) + 1
        if intact(line) and position <= len(data):
            good.append(line)
            end, broken_before_end = position, len(broken)
        elif line:
            broken.append(line)
    return Scan(good, broken[:broken_before_end], data[end:], end)


def read_records(adapter: TypeAdapter[V], data: bytes) -> tuple[list[tuple[V, bytes]], list[bytes]]:
    """Return a file's records with their lines, and its damaged parts. Raises `NewerSchema`."""
    found = scan(data)
    good: list[tuple[V, bytes]] = []
    damaged = [*found.broken, *([found.tail] if found.tail else [])]
    for line in found.good:
        try:
            good.append((read_line(adapter, line), line))
        except ValueError:
            damaged.append(line)
    return good, damaged


def repair_tail(disk: Disk, path: Path) -> None:
    """Set a torn last line aside, so that the next one starts on its own line. Raises FileNotFoundError."""
    if disk.tail(path, 1) not in (b"", b"\n"):
        found = scan(disk.read(path))
        set_aside(disk, path, found.tail)
        disk.truncate(path, found.end)
