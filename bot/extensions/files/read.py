"""Reads files and lists folders of the thread's own workspace."""

from __future__ import annotations

import codecs
import os
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, JsonValue

from bot.ports.errors import ToolInvalidInput
from bot.ports.tool import Arguments, ItemError, ToolContext, ToolOutput
from bot.tools.files.workspace import open_path, path_parts, require_regular
from threads.model import Image
from threads.store.disk import Offload
from threads.store.image_header import HEAD, MAX_BYTES, read_header
from threads.store.open_beneath import FILE, FOLDER

from .paths import PathArguments, normalize, origin
from .walk import FileEntry, walk

MAX_READ = 20_000
"""Bytes of one read; the result says where to continue."""

MAX_SEEK = 256_000_000
"""Bytes that are read to find a line; beyond them only ``skip`` works."""

MAX_ENTRIES = 500
MAX_VISITED = 20_000
MAX_ERRORS = 20

CHUNK = 1 << 20

MAX_CONTROLS = 0.1
"""The share of control characters above which bytes are not text; text with terminal colours stays below."""

_CONTROLS = bytes([*range(8 + 1), *range(0x0E, 0x20), 0x7F])
_FILE_TYPES = (
    (b"%PDF-", "PDF document"),
    (b"PK\x03\x04", "zip archive or office document"),
    (b"\x1f\x8b", "gzip archive"),
    (b"\x7fELF", "program"),
    (b"SQLite format 3\x00", "SQLite database"),
    (b"\xff\xfe", "text in UTF-16"),
    (b"\xfe\xff", "text in UTF-16"),
)
"""The types of common binary files, by their first bytes."""


class ReadArguments(PathArguments):
    path: str = Field(max_length=4096, description="File to read, relative to the workspace")
    offset: int = Field(
        default=1, ge=1, description="Line to start at, from 1; next_offset says where to continue"
    )
    limit: int = Field(default=2000, ge=1, le=20_000, description="Lines to read at most")
    skip: int = Field(default=0, ge=0, le=1 << 62, description="Bytes to skip there, if next_skip says so")


class ListArguments(PathArguments):
    path: str = Field(default=".", max_length=4096, description="Folder to list, relative to the workspace")
    recursive: bool = Field(default=False, description="List the folders below too")
    pattern: str = Field(
        default="", max_length=500, description="Only paths like this, e.g. *.py; * stands for any text"
    )


@dataclass(frozen=True)
class ReadFile:
    offload: Offload
    name: ClassVar[str] = "read_file"
    description: ClassVar[str] = (
        f"Read a text file in this thread's workspace, up to {MAX_READ} bytes at a time."
    )
    risk: ClassVar[Literal["read"]] = "read"
    arguments: ClassVar[type[Arguments]] = ReadArguments

    async def __call__(self, arguments: ReadArguments, context: ToolContext) -> ToolOutput:
        return await self.offload(_read, context.workspace, arguments)


@dataclass(frozen=True)
class ListFiles:
    offload: Offload
    name: ClassVar[str] = "list_files"
    description: ClassVar[str] = (
        f"List a folder of this thread's workspace, up to {MAX_ENTRIES} entries at a time."
    )
    risk: ClassVar[Literal["read"]] = "read"
    arguments: ClassVar[type[Arguments]] = ListArguments

    async def __call__(self, arguments: ListArguments, context: ToolContext) -> ToolOutput:
        return await self.offload(_list, context.workspace, arguments)


def _read(workspace: Path, arguments: ReadArguments) -> ToolOutput:
    offset, skip = arguments.offset, arguments.skip
    with open_path(workspace, arguments.path, FILE) as fd:
        size = require_regular(fd, "read").st_size
        start = _line_start(fd, offset) + skip
        data = os.pread(fd, MAX_READ, start)
        if is_binary(data):
            return _binary(os.pread(fd, HEAD, 0), size, normalize(arguments.path))
    page = cut_page(data, arguments.limit, last=start + len(data) >= size)
    result: dict[str, JsonValue] = {"text": page.decode("utf-8", "replace"), "size": size}
    if start + len(page) < size:
        if skip or not page.endswith(b"\n"):  # within a long line
            result |= {"next_offset": offset, "next_skip": skip + len(page)}
        else:
            result["next_offset"] = offset + page.count(b"\n")
    return ToolOutput(result, origin=origin(workspace))


def _line_start(fd: int, line: int) -> int:
    """Return the byte at which the *line* begins, counted from 1."""
    at, missing = 0, line - 1
    while missing:
        if not (chunk := os.pread(fd, CHUNK, at)):
            lines = line - 1 - missing + (os.pread(fd, 1, max(0, at - 1)) not in (b"", b"\n"))
            raise ToolInvalidInput(f"The file has only {lines} lines.", suggestion="Start earlier.")
        if at >= MAX_SEEK:
            raise ToolInvalidInput("The line is too far down.", suggestion="Use offset 1 and skip bytes.")
        if (count := chunk.count(b"\n")) >= missing:
            return at + _lines_end(chunk, missing)
        at, missing = at + len(chunk), missing - count
    return 0


def _lines_end(data: bytes, lines: int) -> int:
    """Return where the first *lines* lines of *data*, which has as many, end."""
    return len(data) - len(data.split(b"\n", lines)[lines])


def cut_page(data: bytes, limit: int, *, last: bool) -> bytes:
    """Return up to *limit* whole lines of *data*; of a line that is longer than *data*, whole characters."""
    if data.count(b"\n") >= limit:
        return data[: _lines_end(data, limit)]
    if last:
        return data
    if b"\n" in data:
        return data[: data.rindex(b"\n") + 1]
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(data)
    return data[: len(data) - len(decoder.getstate()[0])]


def is_binary(data: bytes) -> bool:
    return b"\0" in data or len(data.translate(None, _CONTROLS)) < (1 - MAX_CONTROLS) * len(data)


def _binary(head: bytes, size: int, path: str) -> ToolOutput:
    """Return the type of a file, with the image itself if models can see it."""
    image = read_header(head)
    images = (Image(path, image.media_type),) if image and image.fits and size <= MAX_BYTES else ()
    file_type = next((name for start, name in _FILE_TYPES if head.startswith(start)), "unknown")
    if image:
        pixels = f", {image.width} x {image.height}" if image.width else ""
        file_type = f"{image.media_type.removeprefix('image/').upper()} picture{pixels}"
    return ToolOutput({"binary": file_type, "size": size}, images=images)


def _list(workspace: Path, arguments: ListArguments) -> ToolOutput:
    errors: list[ItemError] = []
    if not path_parts(arguments.path) and not workspace.exists():
        return ToolOutput({"entries": []})
    with open_path(workspace, arguments.path, FOLDER) as fd:
        entries = list(islice(walk(fd, errors, recursive=arguments.recursive), MAX_VISITED + 1))
    matching = [entry for entry in entries[:MAX_VISITED] if matches_pattern(entry, arguments.pattern)]
    result: dict[str, JsonValue] = {
        "entries": [
            {"name": entry.path, "kind": entry.kind, "size": entry.size} for entry in matching[:MAX_ENTRIES]
        ]
    }
    if len(matching) > MAX_ENTRIES:
        result["not_shown"] = len(matching) - MAX_ENTRIES
    if len(entries) > MAX_VISITED:
        result["not_visited"] = f"everything after the first {MAX_VISITED} entries: list a smaller folder"
    return ToolOutput(result, tuple(errors[:MAX_ERRORS]), origin(workspace))


def matches_pattern(entry: FileEntry, pattern: str) -> bool:
    """Return whether the entry's path or its name alone matches; an empty pattern matches everything."""
    return not pattern or fnmatchcase(entry.path, pattern) or fnmatchcase(entry.parts[-1], pattern)
